// SPDX-License-Identifier: MIT
// Descriptors over a Unix socket. One message carries all of them, or it is refused.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "../../base/unique_fd.hpp"

namespace pvring::platform::detail {

inline constexpr std::size_t most_descriptors = 253;  // SCM_MAX_FD

/// Blocks until the message is sent. Throws std::system_error.
inline void send_descriptors(int socket, std::span<const int> descriptors) {
  auto count = static_cast<std::uint32_t>(descriptors.size());
  iovec data{&count, sizeof count};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> control{};
  if (descriptors.size() > most_descriptors) {
    throw std::invalid_argument("more descriptors than one message carries");
  }
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(sizeof count)) {
    throw std::system_error(sent < 0 ? errno : EIO, std::generic_category(),
                            "sending an emulated host");
  }
}

/// Blocks until the message is there. Throws std::system_error; also where some did not arrive
/// (RLIMIT_NOFILE).
inline std::vector<unique_fd> receive_descriptors(int socket) {
  std::uint32_t count = 0;
  iovec data{&count, sizeof count};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const int error = errno;
  std::vector<unique_fd> received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got > 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      std::vector<int> numbers((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(numbers.data(), CMSG_DATA(header), numbers.size() * sizeof(int));
      for (const int fd : numbers) {
        received.emplace_back(fd);
      }
    }
  }
  if (got != static_cast<ssize_t>(sizeof count) || received.size() != count) {
    throw std::system_error(got < 0 ? error : EPROTO, std::generic_category(),
                            "receiving an emulated host: " + std::to_string(received.size()) +
                                " of " + std::to_string(count) +
                                " descriptors came; is RLIMIT_NOFILE too low?");
  }
  return received;
}

}  // namespace pvring::platform::detail
