// SPDX-License-Identifier: MIT
// The one thread beside the queues: it does what would block them and has no asynchronous form
// (discard, write zeroes, a flush where the kernel has no FDSYNC). It is started by the first job.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "../base/unique_fd.hpp"

namespace pvring::aio {

/// A job, embedded in what it works on.
struct helper_job {
  void (*run)(helper_job&) noexcept = nullptr;
  helper_job* next = nullptr;  ///< the helper's, while posted
};

class helper_thread {
 public:
  /// \param name what `ps` and `top` show; at most 15 characters
  explicit helper_thread(const char* name = "pvring-helper") noexcept : name_(name) {}

  helper_thread(const helper_thread&) = delete;
  helper_thread& operator=(const helper_thread&) = delete;

  /// Precondition: no job is posted or running.
  ~helper_thread() {
    if (running_.load(std::memory_order_acquire)) {
      stop_.store(true, std::memory_order_release);
      wake();
      ::pthread_join(thread_, nullptr);
    }
  }

  /// Any thread: has `job` run after those posted before it. False when the thread cannot be
  /// started.
  [[nodiscard]] bool post(helper_job& job) noexcept {
    // acquire: pairs with start(), so that wake_fd_ is there.
    if (!running_.load(std::memory_order_acquire) && !start()) {
      return false;
    }
    posted_.fetch_add(1, std::memory_order_relaxed);
    // A stack whose only consumer takes all of it at once: no node is ever taken singly, so there
    // is no ABA.
    helper_job* head = jobs_.load(std::memory_order_relaxed);
    do {
      job.next = head;
      // release: the consumer's acquire sees the job's fields, and through it those of the jobs
      // below.
    } while (!jobs_.compare_exchange_weak(head, &job, std::memory_order_release,
                                          std::memory_order_relaxed));
    if (head == nullptr) {
      // Whoever finds the stack empty wakes. A job pushed on another one needs no wake-up: the one
      // below is still there, so it is taken together with it.
      wake();
    }
    return true;
  }

  /// Any thread but the helper: waits until everything posted before has returned. After that the
  /// helper touches nothing that those jobs belonged to.
  void quiesce() noexcept {
    const std::uint64_t target = posted_.load(std::memory_order_relaxed);
    std::uint64_t done = finished_.load(std::memory_order_acquire);
    while (done < target) {
      finished_.wait(done, std::memory_order_acquire);
      done = finished_.load(std::memory_order_acquire);
    }
  }

  [[nodiscard]] bool started() const noexcept { return running_.load(std::memory_order_acquire); }

 private:
  bool start() noexcept {
    const std::lock_guard guard(starting_);  // once per image, not per job
    if (running_.load(std::memory_order_relaxed)) {
      return true;
    }
    wake_fd_.reset(::eventfd(0, EFD_CLOEXEC));
    if (!wake_fd_) {
      return false;
    }
    // The program's signals belong to its own threads: the helper takes none.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = ::pthread_create(&thread_, nullptr, &enter, this);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failed != 0) {
      return false;
    }
    ::pthread_setname_np(thread_, name_);
    running_.store(true, std::memory_order_release);
    return true;
  }

  static void* enter(void* self) {
    static_cast<helper_thread*>(self)->loop();
    return nullptr;
  }

  void loop() noexcept {
    while (!stop_.load(std::memory_order_acquire)) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto cleared =
          ::read(wake_fd_.get(), &count, sizeof count);  // sleeps here
      helper_job* newest = jobs_.exchange(nullptr, std::memory_order_acquire);
      helper_job* oldest = nullptr;
      while (newest != nullptr) {  // the stack has the newest on top
        helper_job* below = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = below;
      }
      while (oldest != nullptr) {
        helper_job* next = oldest->next;  // read first: the job may be gone once it ran
        oldest->run(*oldest);
        // release: quiesce() returns only after what the job did.
        finished_.fetch_add(1, std::memory_order_release);
        finished_.notify_all();
        oldest = next;
      }
    }
  }

  void wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof one);
  }

  const char* name_;
  std::atomic<helper_job*> jobs_{nullptr};
  std::atomic<std::uint64_t> posted_{0};
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<bool> running_{false};
  std::atomic<bool> stop_{false};
  std::mutex starting_;
  unique_fd wake_fd_;
  pthread_t thread_{};
};

}  // namespace pvring::aio
