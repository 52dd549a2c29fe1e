// SPDX-License-Identifier: MIT
// Owns one file descriptor. Closing is all it does; who opens it says what it is.
#pragma once

#include <unistd.h>

#include <utility>

namespace pvring {

class unique_fd {
 public:
  unique_fd() = default;
  /// Takes over `fd`; -1 means none.
  explicit unique_fd(int fd) noexcept : fd_(fd) {}
  unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
    }
    return *this;
  }
  unique_fd(const unique_fd&) = delete;
  unique_fd& operator=(const unique_fd&) = delete;
  ~unique_fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

  /// Closes what is held and takes over `fd`.
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) {
      // EINTR from close still closes on Linux: repeating could close somebody else's descriptor.
      (void)::close(fd_);
    }
    fd_ = fd;
  }

  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace pvring
