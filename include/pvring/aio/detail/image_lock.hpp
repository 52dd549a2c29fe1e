// SPDX-License-Identifier: MIT
// Locks on an image that tell whether anybody else has it, and whether I/O of a dead process may
// still reach it. They are advisory, and bind those who use this library.
#pragma once

#include <fcntl.h>

#include "../../base/description_lock.hpp"

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
    return lock_description(fd, exclusive ? F_WRLCK : F_RDLCK, start, length);
  }
  static void release(int fd, off_t start, off_t length) noexcept {
    (void)lock_description(fd, F_UNLCK, start, length);
  }
};

}  // namespace pvring::aio::detail
