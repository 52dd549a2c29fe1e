// SPDX-License-Identifier: MIT
// Names a process so that another one can tell whether it still lives. A number alone would not do:
// numbers are reused, so the time at which the process started goes with it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../../base/unique_fd.hpp"

namespace pvring::platform::detail {

/// A process, as other processes of the same PID namespace see it.
struct process_identity {
  std::uint32_t pid = 0;
  std::uint32_t unused = 0;
  std::uint64_t start_time = 0;  ///< clock ticks since boot; 0 where /proc is not mounted
};

struct process_status {
  bool found = false;
  bool exited = false;
  std::uint64_t start_time = 0;
};

/// Reads /proc/<pid>/stat. Allocates nothing: guests ask while they serve requests.
inline process_status read_process_status(std::uint32_t pid) noexcept {
  process_status result;
  std::array<char, 32> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%u/stat", pid);
  const unique_fd fd(::open(path.data(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    return result;
  }
  std::array<char, 1024> text{};
  const ssize_t length = ::read(fd.get(), text.data(), text.size() - 1);
  // The second field is the program's name in parentheses, which may itself hold spaces and
  // parentheses.
  const char* at = length > 0 ? std::strrchr(text.data(), ')') : nullptr;
  if (at == nullptr || at[1] == '\0') {
    return result;
  }
  at += 2;
  const char state = *at;
  unsigned long threads = 0;
  for (int field = 3; field <= 22 && at != nullptr; ++field) {
    if (field == 20) {
      threads = std::strtoul(at, nullptr, 10);
    } else if (field == 22) {
      result.start_time = std::strtoull(at, nullptr, 10);
      result.found = true;
    }
    at = std::strchr(at, ' ');
    at = at != nullptr ? at + 1 : nullptr;
  }
  // A zombie with threads left is a process whose first thread ended before the others.
  result.exited = (state == 'Z' || state == 'X' || state == 'x') && threads <= 1;
  return result;
}

inline process_identity this_process() noexcept {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return {pid, 0, read_process_status(pid).start_time};
}

/// Whether it is this process, without asking the kernel more than its number: a guest whose
/// backend is in the same process asks about it for every page that stays mapped.
inline bool is_this_process(const process_identity& who) noexcept {
  // A child after fork finds its parent's entry here, sees another number, and makes its own.
  static std::atomic<std::uint32_t> known_pid{0};
  static std::atomic<std::uint64_t> known_start{0};
  const auto pid = static_cast<std::uint32_t>(::getpid());
  if (pid != who.pid) {
    return false;
  }
  // acquire, release: whoever sees the number sees the time that goes with it.
  if (known_pid.load(std::memory_order_acquire) != pid) {
    known_start.store(read_process_status(pid).start_time, std::memory_order_relaxed);
    known_pid.store(pid, std::memory_order_release);
  }
  return known_start.load(std::memory_order_relaxed) == who.start_time;
}

/// Whether the process still runs; one that exited and was not waited for does not.
inline bool is_alive(const process_identity& who) noexcept {
  if (is_this_process(who)) {
    return true;
  }
  const process_status status = read_process_status(who.pid);
  if (status.found) {
    return !status.exited && (who.start_time == 0 || status.start_time == who.start_time);
  }
  // No entry: gone, or there is no /proc to look at.
  return who.start_time == 0 && (::kill(static_cast<pid_t>(who.pid), 0) == 0 || errno == EPERM);
}

}  // namespace pvring::platform::detail
