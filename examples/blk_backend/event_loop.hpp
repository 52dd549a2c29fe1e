// SPDX-License-Identifier: MIT
// One thread that waits for many descriptors and calls who asked for them.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <functional>
#include <map>
#include <pvring/base/unique_fd.hpp>
#include <system_error>
#include <utility>

namespace tool {

class event_loop {
 public:
  event_loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { check(epoll_.get(), "epoll_create1"); }

  /// `on_readable` is called while `fd` is readable, and may remove itself or others.
  void add(int fd, std::function<void()> on_readable) {
    epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
    check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted), "epoll_ctl");
    handlers_[fd] = std::move(on_readable);
  }
  void remove(int fd) noexcept {
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    handlers_.erase(fd);
  }

  /// Waits, and handles one event: whatever a handler removes, no event of it is left over.
  void turn() {
    epoll_event ready{};
    const int count = ::epoll_wait(epoll_.get(), &ready, 1, -1);
    if (count < 0 && errno != EINTR) {
      check(-1, "epoll_wait");
    }
    if (count != 1) {
      return;
    }
    if (const auto found = handlers_.find(ready.data.fd); found != handlers_.end()) {
      const std::function<void()> handler = found->second;  // it may remove itself
      handler();
    }
  }

 private:
  static void check(int result, const char* what) {
    if (result < 0) {
      throw std::system_error(errno, std::generic_category(), what);
    }
  }

  pvring::unique_fd epoll_;
  std::map<int, std::function<void()>> handlers_;
};

}  // namespace tool
