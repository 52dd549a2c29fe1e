// SPDX-License-Identifier: MIT
// See the header. These definitions come before the C library's.
#include "fake_kernel.hpp"

#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace fake {

kernel& the_kernel() {
  static kernel one;
  return one;
}

namespace {

// The result of a call, or nothing for the real kernel to do it.
std::optional<int> scripted(const range_call& call) {
  const auto error = the_kernel().answer(call);
  if (!error) {
    return std::nullopt;
  }
  errno = *error;
  return *error == 0 ? 0 : -1;
}

}  // namespace
}  // namespace fake

extern "C" {

int fallocate(int fd, int mode, off_t offset, off_t length) {
  const auto result =
      fake::scripted({static_cast<unsigned long>(mode), static_cast<std::uint64_t>(offset),
                      static_cast<std::uint64_t>(length)});
  return result ? *result : static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, length));
}

int ioctl(int fd, unsigned long what, ...) noexcept {
  va_list rest;
  va_start(rest, what);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (what == BLKDISCARD || what == BLKZEROOUT) {
    const auto* range = static_cast<const std::uint64_t*>(argument);
    if (const auto result = fake::scripted({what, range[0], range[1]})) {
      return *result;
    }
  }
  return static_cast<int>(::syscall(SYS_ioctl, fd, what, argument));
}

}  // extern "C"
