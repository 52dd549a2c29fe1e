// SPDX-License-Identifier: MIT
// A port as a source that can be left alone: while its frames cannot be taken, a readable
// descriptor would keep the sleeper awake.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <system_error>

#include "../base/source.hpp"
#include "../base/unique_fd.hpp"
#include "uplink.hpp"

namespace pvring::net {

/// One thread uses it. A call that changes what is wanted is a system call; others are not.
template <uplink_port Port>
class gated_port {
 public:
  /// `port` outlives it. \throws std::system_error
  explicit gated_port(Port& port) : port_(port), gate_(::epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event{.events = EPOLLIN, .data = {}};
    if (!gate_ || ::epoll_ctl(gate_.get(), EPOLL_CTL_ADD, port.fd(), &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "waiting for the uplink's port");
    }
  }

  [[nodiscard]] Port& port() noexcept { return port_; }

  /// Whether its frames can be taken: else nothing is said of them.
  void want(bool wanted) noexcept {
    if (wanted == wanted_) {
      return;
    }
    wanted_ = wanted;
    // Removed, not masked: an error would be reported all the same.
    epoll_event event{.events = EPOLLIN, .data = {}};
    (void)::epoll_ctl(gate_.get(), wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, port_.fd(), &event);
  }
  [[nodiscard]] bool wanted() const noexcept { return wanted_; }

  [[nodiscard]] int fd() const noexcept { return gate_.get(); }
  [[nodiscard]] bool arm() noexcept { return wanted_ && port_.arm(); }
  void disarm() noexcept { port_.disarm(); }

 private:
  Port& port_;
  unique_fd gate_;
  bool wanted_ = true;
};

}  // namespace pvring::net
