// SPDX-License-Identifier: MIT
// A mutex in shared memory that survives the death of a process holding it. Whoever locks it next
// hears of that and repairs what it guards.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <system_error>

namespace pvring::platform::detail {

/// Prepares a mutex in shared memory; once, by whoever creates the memory.
inline void initialise_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  (void)::pthread_mutexattr_init(&attributes);
  (void)::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  (void)::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int error = ::pthread_mutex_init(&mutex, &attributes);
  (void)::pthread_mutexattr_destroy(&attributes);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "process-shared mutex");
  }
}

/// Holds a mutex while it lives.
class robust_lock {
 public:
  explicit robust_lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) {
    if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) {
      owner_died_ = true;
      (void)::pthread_mutex_consistent(&mutex_);
    }
  }
  robust_lock(const robust_lock&) = delete;
  robust_lock& operator=(const robust_lock&) = delete;
  ~robust_lock() { (void)::pthread_mutex_unlock(&mutex_); }

  /// True when the last holder died with the mutex held, so that what it guards may be half
  /// changed.
  [[nodiscard]] bool owner_died() const noexcept { return owner_died_; }

 private:
  pthread_mutex_t& mutex_;
  bool owner_died_ = false;
};

}  // namespace pvring::platform::detail
