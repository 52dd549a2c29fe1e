// SPDX-License-Identifier: MIT
// Locks that belong to an open file description. They last as long as anything holds that: a
// descriptor, a mapping, a request in flight, and with them a process that has not quite ended.
#pragma once

#include <fcntl.h>

#include <cerrno>

namespace pvring {

/// Takes (F_RDLCK, F_WRLCK) or gives back (F_UNLCK) a range; length 0 reaches to the end. Never
/// waits. 0, or the errno: EAGAIN where another description has some of it, EBADF where the
/// descriptor is not open for what the kind needs.
///
/// Not the process's locks: those go with any descriptor of the file that is closed, and are gone
/// when the process is, whatever is in flight.
[[nodiscard]] inline int lock_description(int fd, int kind, off_t start, off_t length) noexcept {
  struct ::flock what {};
  what.l_type = static_cast<short>(kind);
  what.l_whence = SEEK_SET;
  what.l_start = start;
  what.l_len = length;
  if (::fcntl(fd, F_OFD_SETLK, &what) == 0) {
    return 0;
  }
  return errno == EACCES ? EAGAIN : errno;
}

}  // namespace pvring
