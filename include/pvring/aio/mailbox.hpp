// SPDX-License-Identifier: MIT
// What other threads hand to a queue: many producers, one consumer, a fixed number of places. A
// producer pays a system call only when the consumer sleeps.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <boost/lockfree/queue.hpp>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "../base/error.hpp"
#include "../base/source.hpp"
#include "../base/unique_fd.hpp"

#if defined(__SANITIZE_THREAD__)
#define PVRING_DETAIL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PVRING_DETAIL_TSAN 1
#endif
#endif

#ifdef PVRING_DETAIL_TSAN
extern "C" {
// Exported by the sanitizer's runtime.
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace pvring::aio {

namespace detail {

/// Hides the plain memory accesses of its scope from ThreadSanitizer, not the atomic ones.
/// Boost.Lockfree's node lists read a node that another thread may be reusing, and believe it only
/// when a tag says that it was not. The sanitizer is right to report that, and we can do nothing
/// about it; what the queue carries is ordered by the atomic operations.
class tagged_list_access {
 public:
#ifdef PVRING_DETAIL_TSAN
  tagged_list_access() noexcept {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~tagged_list_access() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  // Not defaulted: a variable of a trivial type would be an unused one.
  tagged_list_access() noexcept {}  // NOLINT(modernize-use-equals-default)
  ~tagged_list_access() {}          // NOLINT(modernize-use-equals-default)
#endif
  tagged_list_access(const tagged_list_access&) = delete;
  tagged_list_access& operator=(const tagged_list_access&) = delete;
};

}  // namespace detail

/// \tparam Handle a pointer or an index: trivially copyable, and nothing is destroyed with it
///
/// No wake-up is lost. The consumer stores `armed`, then looks (empty()); a producer pushes, then
/// loads `armed`. The four are seq_cst (Boost's links and empty() too), so in their single order
/// either the look comes after the push and finds it, or the load comes after the store, finds
/// `armed`, and the descriptor is written. The exchange that follows the load lets one producer
/// write per arming.
///
/// Two producers' handles come out in no promised order.
template <class Handle>
  requires std::is_trivially_copyable_v<Handle> && std::is_trivially_destructible_v<Handle>
class mailbox {
 public:
  /// Places are limited by the width of Boost.Lockfree's node index.
  static constexpr std::size_t most_places = 65533;

  /// \param capacity handles that are in the box at most; nothing is allocated later
  /// \throws configuration_error when there cannot be that many, std::system_error when there is no descriptor left
  explicit mailbox(std::size_t capacity) : mailbox(capacity, -1) {
    own_fd_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!own_fd_) {
      throw std::system_error(errno, std::generic_category(), "eventfd of a mailbox");
    }
    wake_fd_ = own_fd_.get();
  }

  /// Wakes through an eventfd that the consumer shares with its other sources and clears itself.
  mailbox(std::size_t capacity, int wake_fd)
      : queue_(checked(capacity) + spare), wake_fd_(wake_fd) {}

  mailbox(const mailbox&) = delete;
  mailbox& operator=(const mailbox&) = delete;

  /// Any thread. Precondition: fewer than `capacity` handles are in the box, which the owner of the
  /// handles sees to by having no more of them. The box must outlive the call, not only the
  /// handle's arrival.
  void push(Handle handle) noexcept {
    // One producer at a time: see `pushing_`. Acquire and release: each sees what the one before it
    // did.
    while (pushing_.test_and_set(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
    {
      const detail::tagged_list_access access;
      [[maybe_unused]] const bool pushed = queue_.bounded_push(handle);
      assert(pushed && "more handles than places");
    }
    pushing_.clear(std::memory_order_release);
    // seq_cst: see the class.
    if (armed_.load(std::memory_order_seq_cst) &&
        armed_.exchange(false, std::memory_order_seq_cst)) {
      const std::uint64_t one = 1;
      // Fails only when the counter is full, and then the descriptor is readable anyway.
      [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
    }
  }

  /// Consumer only: takes the oldest handle, false when there is none.
  [[nodiscard]] bool pop(Handle& handle) noexcept {
    const detail::tagged_list_access access;
    return queue_.pop(handle);
  }

  /// Consumer only: hands at most `budget` handles to `f` and returns how many.
  template <class F>
  std::size_t consume(F&& f, std::size_t budget = most_places) noexcept {
    std::size_t n = 0;
    for (Handle handle{}; n < budget && pop(handle); ++n) {
      f(handle);
    }
    return n;
  }

  /// Consumer only.
  [[nodiscard]] bool empty() const noexcept { return queue_.empty(); }

  [[nodiscard]] int fd() const noexcept { return wake_fd_; }

  [[nodiscard]] bool arm() noexcept {
    // Armed before clearing: a signal that is cleared here came after its push, so the look below
    // finds that.
    signals_ += announce() ? 1 : 0;
    std::uint64_t count = 0;
    if (own_fd_ && signals_ != 0 && ::read(wake_fd_, &count, sizeof count) == sizeof count) {
      signals_ -= static_cast<std::int64_t>(count);
    }
    return !empty();
  }

  void disarm() noexcept { signals_ += withdraw() ? 1 : 0; }

  /// For a consumer with a shared descriptor: arms without clearing or looking; true when a
  /// producer had written the descriptor since the last time.
  bool announce() noexcept {
    const bool was_armed = armed_.exchange(true, std::memory_order_seq_cst);
    return std::exchange(expected_, true) && !was_armed;
  }

  /// Like disarm(); true when a producer had written the descriptor since the last time.
  bool withdraw() noexcept {
    if (!std::exchange(expected_, false)) {
      return false;
    }
    return !armed_.exchange(false, std::memory_order_seq_cst);
  }

 private:
  // The queue's list of free nodes then never runs empty, so its last node never carries anything.
  // A producer that was held up while it linked to a node cannot mistake that node, recycled, for
  // the end of the queue: only the last free node has an end mark, and Boost's tag for that mark is
  // not kept across reuse.
  static constexpr std::size_t spare = 1;

  static std::size_t checked(std::size_t capacity) {
    if (capacity > most_places) {
      throw configuration_error("a mailbox for " + std::to_string(capacity) + " handles: at most " +
                                std::to_string(most_places) + " are possible");
    }
    return capacity;
  }

  boost::lockfree::queue<Handle, boost::lockfree::fixed_sized<true>> queue_;
  // Boost's tags have 16 bits and do not survive a node's time in its list of free nodes, so a
  // producer that was held up while it linked could link to a node that others have recycled
  // meanwhile, and its handle would be out of reach. With one producer at a time nobody recycles
  // under its hands. The consumer never waits for it.
  std::atomic_flag pushing_ = ATOMIC_FLAG_INIT;
  std::atomic<bool> armed_{false};
  bool expected_ = false;     // the consumer's own note of what it last stored in armed_
  std::int64_t signals_ = 0;  // that we know of and have not read: else there is nothing to read
  unique_fd own_fd_;
  int wake_fd_;
};

static_assert(source<mailbox<void*>>);

#undef PVRING_DETAIL_TSAN

}  // namespace pvring::aio
