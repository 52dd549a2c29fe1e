// SPDX-License-Identifier: MIT
// Pieces of memory copied within the own process by the kernel: what stands for a grant copy. The
// kernel looks up and pins pages on one side, as a hypervisor does on both, and returns an error
// where memory is not there.
#pragma once

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "../counters.hpp"

namespace pvring::platform::detail {

/// Collects pieces and copies them with as few system calls as the kernel allows.
class copy_pieces {
 public:
  /// Pieces that process_vm_readv takes at once.
  static constexpr std::size_t per_call = 1024;

  copy_pieces() noexcept : process_(::getpid()) {}

  /// Whether the kernel lets this process copy within itself (a container's filter may not).
  [[nodiscard]] static bool available() noexcept {
    char from = 1;
    char to = 0;
    const iovec target{&to, 1};
    const iovec source{&from, 1};
    return copy(::getpid(), &target, &source, 1) == 1;
  }

  /// Notes a piece; copies what was noted when it fills a call. 0, or an errno.
  [[nodiscard]] int add(std::byte* to, std::byte* from, std::size_t length,
                        grant_counters& counters) noexcept {
    to_[count_] = {to, length};
    from_[count_] = {from, length};
    bytes_ += length;
    return ++count_ == per_call ? flush(counters) : 0;
  }

  /// Copies what was noted. 0, or an errno: then some of it may have been copied.
  [[nodiscard]] int flush(grant_counters& counters) noexcept {
    if (count_ == 0) {
      return 0;
    }
    const ssize_t got = copy(process_, to_.data(), from_.data(), count_);
    const int error = got < 0 ? errno : static_cast<std::size_t>(got) == bytes_ ? 0 : EFAULT;
    counters.copy_system_calls.add();
    counters.system_calls.add();
    counters.copy_bytes.add(error == 0 ? bytes_ : 0);
    drop();
    return error;
  }

  /// Forgets what was noted.
  void drop() noexcept { count_ = bytes_ = 0; }

 private:
  // The system call itself, without libc's wrapper: the sanitizers watch the wrapper and would take
  // two queues' copies into the same guest page, which the guest keeps apart, for a race between
  // our threads.
  static ssize_t copy(pid_t process, const iovec* to, const iovec* from,
                      std::size_t count) noexcept {
    return ::syscall(SYS_process_vm_readv, process, to, count, from, count, 0UL);
  }

  pid_t process_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  std::array<iovec, per_call> to_;
  std::array<iovec, per_call> from_;
};

}  // namespace pvring::platform::detail
