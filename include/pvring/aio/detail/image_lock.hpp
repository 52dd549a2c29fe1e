// SPDX-License-Identifier: MIT
// Locks on an image that tell whether anybody else has it, and whether I/O of a dead process may
// still reach it. They are advisory, and bind those who use this library.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <cstdint>

namespace pvring::aio::detail {

/// Every open file description has a byte of its own to lock, far beyond any image. The kernel
/// keeps a lock until the description is gone, and a request in flight holds its description: so a
/// byte that can be locked is one whose I/O is over, also that of a killed process.
struct image_lock {
  static constexpr off_t device = off_t{1} << 62;  ///< held by whoever serves the image
  static constexpr off_t queues = device + 1;      ///< one per further description
  static constexpr off_t most_queues = 4096;

  /// 0, or the errno (EAGAIN: somebody else has some of it). \param exclusive false: others may
  /// share it; true needs a descriptor that is open for writing
  [[nodiscard]] static int take(int fd, off_t start, off_t length, bool exclusive) noexcept {
    return set(fd, start, length, exclusive ? F_WRLCK : F_RDLCK);
  }
  static void release(int fd, off_t start, off_t length) noexcept {
    (void)set(fd, start, length, F_UNLCK);
  }

 private:
  static int set(int fd, off_t start, off_t length, int kind) noexcept {
    struct ::flock what {};
    what.l_type = static_cast<short>(kind);
    what.l_whence = SEEK_SET;
    what.l_start = start;
    what.l_len = length;
    // Not the process's locks: those go with any descriptor that is closed, and are gone when the
    // process is, whatever is in flight.
    if (::fcntl(fd, F_OFD_SETLK, &what) == 0) {
      return 0;
    }
    return errno == EACCES ? EAGAIN : errno;
  }
};

}  // namespace pvring::aio::detail
