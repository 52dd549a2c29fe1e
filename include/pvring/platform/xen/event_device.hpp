// SPDX-License-Identifier: MIT
// /dev/xen/evtchn as libxenevtchn opens it, and beside it an eventfd for ports that fire without
// the kernel's knowing. One epoll set stands for both.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "../../base/unique_fd.hpp"
#include "../counters.hpp"
#include "diagnosis.hpp"
#include "port_gate.hpp"
#include "tool_logger.hpp"

namespace pvring::platform::detail {

/// What `xen_events` is made of.
struct event_device {
  struct close_handle {
    void operator()(xenevtchn_handle* open) const noexcept { (void)xenevtchn_close(open); }
  };

  event_device() {
    errno = 0;
    handle.reset(xenevtchn_open(logger.get(), 0));
    if (!handle) {
      const int error = failure();  // before anything else is asked
      refuse_open(event_node, error, is_xen_host());
    }
    const int device = xenevtchn_fd(handle.get());
    // The library reads the device and nothing else, and Linux looks at the flag under its own
    // lock: where nothing has fired the read says EAGAIN instead of waiting.
    require(::fcntl(device, F_SETFL, O_NONBLOCK) == 0, "the device cannot be read without waiting");
    bell.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    require(static_cast<bool>(bell), "no eventfd");
    set.reset(::epoll_create1(EPOLL_CLOEXEC));
    require(static_cast<bool>(set), "no epoll set");
    for (const int fd : {device, bell.get()}) {
      epoll_event wanted{};
      wanted.events = EPOLLIN;
      require(::epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &wanted) == 0,
              "cannot wait for the device");
    }
  }

  static void require(bool done, const char* what) {
    if (!done) {
      const int error = errno;
      throw std::system_error(error, std::generic_category(),
                              std::string("xen: event channels: ") + what);
    }
  }

  template <class Call>
  port checked(Call&& call, const std::string& what) {
    int result = 0;
    do {
      counters.system_calls.add();
      counters.hypercalls.add();
      errno = 0;
      result = call(handle.get());
    } while (result < 0 && errno == EINTR);
    if (result < 0) {
      const int error = failure();
      throw std::system_error(error, std::generic_category(),
                              "xen: " + what + ": " + remedy(error));
    }
    const auto bound = static_cast<port>(result);
    try {
      gate.add(bound);
    } catch (...) {
      (void)xenevtchn_unbind(handle.get(), bound);
      throw;
    }
    return bound;
  }

  static const char* remedy(int error) noexcept {
    switch (error) {
      case ESRCH:
        return "there is no such domain";
      case EINVAL:
        return "its domain must offer the port to this one, and nobody else may be bound to it";
      case EPERM:
      case EACCES:
        return "this domain is not allowed to: see the hypervisor's security policy";
      case ENOSPC:
        return "no port is left in this domain";
      default:
        return "see the kernel's log";
    }
  }

  // Takes in the event that a bind causes. Xen has raised it already, so the wait is for the
  // interrupt only; where it does not come in time, it is kept when it comes.
  void settle(port fresh) noexcept {
    constexpr int most_milliseconds = 20;
    pollfd device{xenevtchn_fd(handle.get()), POLLIN, 0};
    bool progress = true;
    while (progress && !gate.is_kept(fresh) && ::poll(&device, 1, most_milliseconds) == 1) {
      progress = false;
      while (const std::optional<port> other = read_fired(&progress)) {
        if (!gate.has_ready()) {
          ring();
        }
        gate.defer(*other);
      }
    }
  }

  // The next port that has fired and may, as far as the kernel knows. Ends: each port that is
  // read stays silent until it is unmasked.
  std::optional<port> read_fired(bool* progress = nullptr) noexcept {
    while (true) {
      counters.system_calls.add();
      errno = 0;
      const int result = xenevtchn_pending(handle.get());
      if (result < 0 && errno == EINTR) {
        continue;
      }
      if (result < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
          logger.write(log::level::error, "reading /dev/xen/evtchn failed: kicks may be lost");
        }
        return std::nullopt;
      }
      if (progress != nullptr) {
        *progress = true;
      }
      if (gate.arrived(static_cast<port>(result))) {
        return static_cast<port>(result);
      }
    }
  }

  // Makes the handle readable for what the kernel does not know; more than once does no harm.
  void ring() noexcept {
    const std::uint64_t one = 1;
    (void)!::write(bell.get(), &one, sizeof one);
    counters.system_calls.add();
  }
  void quieten() noexcept {
    std::uint64_t rings = 0;
    (void)!::read(bell.get(), &rings, sizeof rings);
    counters.system_calls.add();
  }

  // In the order in which they are needed: the handle is closed before its logger goes.
  tool_logger logger;
  std::unique_ptr<xenevtchn_handle, close_handle> handle;
  unique_fd bell;
  unique_fd set;
  port_gate gate;
  event_counters counters;
};

}  // namespace pvring::platform::detail
