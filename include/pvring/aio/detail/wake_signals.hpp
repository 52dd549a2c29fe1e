// SPDX-License-Identifier: MIT
// An eventfd that the kernel, the helper thread and the queue itself signal, and an account of its
// signals. The account is there so that the descriptor is read only when it can hold something.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "../../base/counter.hpp"
#include "../../base/unique_fd.hpp"

namespace pvring::aio::detail {

/// Who takes something that was signalled calls expect(): the signal is in the descriptor, or on
/// its way there. read() takes signals out. What was read beyond what was expected belongs to
/// something that nobody has taken yet: work.
class wake_signals {
 public:
  /// \param calls counts the system calls on the descriptor
  explicit wake_signals(counter& calls)
      : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), calls_(calls) {
    if (!fd_) {
      throw std::system_error(errno, std::generic_category(), "eventfd of an AIO context");
    }
  }

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  void expect(std::size_t signals) noexcept { unread_ += static_cast<std::int64_t>(signals); }

  /// Whether a read would find a signal that is already accounted for.
  [[nodiscard]] bool stale() const noexcept { return unread_ != 0; }
  /// Whether there was a signal that nobody has accounted for.
  [[nodiscard]] bool unexplained() const noexcept { return unread_ < 0; }

  void read() noexcept {
    std::uint64_t count = 0;
    calls_.add();
    if (::read(fd_.get(), &count, sizeof count) == sizeof count) {
      unread_ -= static_cast<std::int64_t>(count);
    }
    // Else what is expected is still on its way: the kernel shows a completion before it signals
    // it. It will wake a sleeper for nothing once, and be read then.
  }

  /// There was nothing to take: signals that nobody explains must not be reported for ever.
  void forget_unexplained() noexcept { unread_ = std::max<std::int64_t>(unread_, 0); }

  void signal() noexcept {
    const std::uint64_t one = 1;
    calls_.add();
    unread_ += ::write(fd_.get(), &one, sizeof one) == sizeof one ? 1 : 0;
  }

 private:
  unique_fd fd_;
  counter& calls_;
  std::int64_t unread_ = 0;
};

}  // namespace pvring::aio::detail
