// SPDX-License-Identifier: MIT
// A thread of its own for one queue: named, pinned where that is wanted, serving by a wait policy
// until it is stopped. The decisions are the waiter's; what is here is the thread, the sleep, and
// stopping.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

#include "../base/counter.hpp"
#include "../base/unique_fd.hpp"
#include "loop.hpp"
#include "policy.hpp"
#include "served.hpp"

namespace pvring::wait {

struct runner_options {
  std::string name = "pvring-queue";  ///< what `ps` and `top` show, cut after 15 characters
  std::optional<unsigned> cpu = {};   ///< the only CPU to run on
  policy wait = {};                   ///< how to wait
  waiter_options waiter = {};         ///< budget of a pass, clock
};

namespace detail {
// Tells the CPU that this is a polling loop: its sibling gets the pipeline, and leaving the loop is
// cheaper.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm("isb");
#endif
}
}  // namespace detail

/// Serves `Served` on its own thread from construction to `stop`. What is served must outlive the
/// runner, and belongs to the thread until `stop` has returned on another.
template <served Served>
class runner {
 public:
  /// \throws std::system_error naming thread, CPU and remedy
  explicit runner(Served& to_serve, const runner_options& options = {})
      : waiter_(to_serve, options.wait, options.waiter),
        kick_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!kick_fd_) {
      throw std::system_error(errno, std::generic_category(),
                              "eventfd of the thread " + options.name);
    }
    start(options);
  }

  runner(const runner&) = delete;
  runner& operator=(const runner&) = delete;

  /// Stops. Not on the runner's own thread.
  ~runner() {
    stop();
    ::pthread_join(thread_, nullptr);
  }

  /// Ends the thread after the pass that is running, and waits for that. Any thread, any number of
  /// times, also at once. From a callback of the pass itself it only asks, since waiting would be
  /// for ever.
  void stop() noexcept {
    // release: what the caller did before is seen by the last pass, if there is one more.
    stop_.store(true, std::memory_order_release);
    kick();
    if (on_own_thread()) {
      return;
    }
    // acquire: what the passes did is seen by whoever takes the queue over.
    finished_.wait(false, std::memory_order_acquire);
  }

  /// Any thread: has one more pass run soon, whether a source wakes or not.
  void kick() noexcept {
    const std::uint64_t one = 1;
    // Fails only when the counter is full, and then the descriptor is readable anyway.
    [[maybe_unused]] const auto written = ::write(kick_fd_.get(), &one, sizeof one);
  }

  /// Whether the thread has left its loop.
  [[nodiscard]] bool stopped() const noexcept { return finished_.load(std::memory_order_acquire); }

  [[nodiscard]] bool on_own_thread() const noexcept {
    return ::pthread_equal(::pthread_self(), thread_id_.load(std::memory_order_relaxed)) != 0;
  }

  /// Any thread may read these.
  [[nodiscard]] const waiter_counters& counters() const noexcept { return waiter_.counters(); }
  /// Sleeps that ended because something was readable; the others ended at a deadline or by a
  /// signal.
  [[nodiscard]] const counter& wakeups() const noexcept { return wakeups_; }

 private:
  void start(const runner_options& options) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    int failed = 0;
    if (options.cpu) {
      // Set before the start, so that the thread's own memory is first touched where it will stay.
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      if (*options.cpu < CPU_SETSIZE) {
        CPU_SET(*options.cpu, &cpus);
      }
      failed = ::pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    }
    if (failed == 0) {
      // The program's signals belong to its own threads: this one takes none.
      sigset_t all;
      sigset_t before;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
      failed = ::pthread_create(&thread_, &attributes, &enter, this);
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    ::pthread_attr_destroy(&attributes);
    if (failed != 0) {
      std::string what = "starting the thread " + options.name;
      if (options.cpu) {
        what += " on CPU " + std::to_string(*options.cpu) +
                " (is it there, and allowed to this process?)";
      }
      throw std::system_error(failed, std::generic_category(), what);
    }
    ::pthread_setname_np(thread_, options.name.substr(0, 15).c_str());
  }

  static void* enter(void* self) {
    static_cast<runner*>(self)->loop();
    return nullptr;
  }

  void loop() noexcept {
    thread_id_.store(::pthread_self(), std::memory_order_relaxed);
    // acquire: pairs with stop().
    while (!stop_.load(std::memory_order_acquire)) {
      if (waiter_.turn()) {
        sleep();
      } else if (waiter_.idle()) {
        detail::relax();
      }
    }
    // release: stop() returns only after what the passes did.
    finished_.store(true, std::memory_order_release);
    finished_.notify_all();
  }

  // One sleep. However it ends, a pass follows: so a signal, or any other reason for poll to fail,
  // needs no care.
  void sleep() noexcept {
    std::array<pollfd, max_sources + 1> polled;  // NOLINT(*-member-init): filled as far as used
    std::size_t count = 0;
    polled[count++] = {.fd = kick_fd_.get(), .events = POLLIN, .revents = 0};
    for (const int fd : waiter_.fds()) {
      polled[count++] = {.fd = fd, .events = POLLIN, .revents = 0};
    }
    timespec left{};
    const timespec* until = nullptr;
    if (const auto timeout = waiter_.timeout()) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*timeout);
      left.tv_sec = static_cast<std::time_t>(seconds.count());
      left.tv_nsec = static_cast<long>((*timeout - seconds).count());
      until = &left;
    }
    if (::ppoll(polled.data(), count, until, nullptr) <= 0) {
      return;
    }
    wakeups_.add();
    if (polled[0].revents != 0) {
      // Cleared before the pass and before stop_ is looked at: a kick that comes later wakes the
      // next sleep.
      std::uint64_t kicks = 0;
      [[maybe_unused]] const auto cleared = ::read(kick_fd_.get(), &kicks, sizeof kicks);
    }
  }

  waiter<Served> waiter_;
  unique_fd kick_fd_;
  pthread_t thread_{};
  std::atomic<pthread_t> thread_id_{};
  std::atomic<bool> stop_{false};
  std::atomic<bool> finished_{false};
  counter wakeups_;
};

}  // namespace pvring::wait
