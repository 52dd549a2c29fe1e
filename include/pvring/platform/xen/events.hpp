// SPDX-License-Identifier: MIT
// The event-channel handle of a Xen host: libxenevtchn on /dev/xen/evtchn, one descriptor per
// queue. The same class serves a frontend in user space, which offers ports.
#pragma once

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "event_device.hpp"

namespace pvring::platform {

/// Models `event_channel`. One thread uses it. Must not be used in a child after fork.
///
/// Xen makes every newly bound port pending, because kicks may have come before; Linux delivers
/// that at once, whatever the user wants. `bind` takes it in and keeps it, so a port fires once
/// when it is first unmasked, perhaps for nothing. What is kept cannot be given back to the kernel:
/// hence `fd()` is that of an epoll set, with the device and an eventfd in it.
///
/// `counters()`: `refires` are the kept ones only; what the kernel delivers after an unmask looks
/// like any other kick.
class xen_events {
 public:
  /// Throws std::system_error naming node and remedy.
  xen_events() : device_(std::make_unique<detail::event_device>()) {}
  xen_events(xen_events&&) noexcept = default;
  xen_events& operator=(xen_events&&) noexcept = default;
  /// Closes all ports.
  ~xen_events() = default;

  [[nodiscard]] int fd() const noexcept { return device_->set.get(); }
  [[nodiscard]] const event_counters& counters() const noexcept { return device_->counters; }

  /// Throws std::system_error naming both ends: EINVAL where the port is not offered to this
  /// domain, or is bound already; ESRCH where there is no such domain.
  [[nodiscard]] port bind(domain_id domain, port remote) {
    const port bound = device_->checked(
        [&](xenevtchn_handle* h) { return xenevtchn_bind_interdomain(h, domain, remote); },
        "cannot bind to port " + std::to_string(remote) + " of domain " + std::to_string(domain));
    device_->settle(bound);
    return bound;
  }

  /// A new port that `remote` may bind to, masked from the start. Throws std::system_error.
  [[nodiscard]] port alloc_unbound(domain_id remote) {
    return device_->checked(
        [&](xenevtchn_handle* h) { return xenevtchn_bind_unbound_port(h, remote); },
        "cannot offer a port to domain " + std::to_string(remote));
  }

  void unbind(port p) noexcept {
    detail::event_device& d = *device_;
    const bool was_ready = d.gate.has_ready();
    if (d.gate.remove(p)) {
      (void)xenevtchn_unbind(d.handle.get(), p);
      d.counters.system_calls.add();
      d.counters.hypercalls.add();
      if (was_ready && !d.gate.has_ready()) {
        d.quieten();
      }
    }
  }

  void notify(port p) noexcept {
    detail::event_device& d = *device_;
    if (!d.gate.contains(p)) {
      return;
    }
    d.counters.notifies.add();
    d.counters.hypercalls.add();
    do {
      d.counters.system_calls.add();
      // Other failures mean that the peer is gone, which is no error.
    } while (xenevtchn_notify(d.handle.get(), p) != 0 && errno == EINTR);
  }

  [[nodiscard]] std::optional<port> pending() noexcept {
    detail::event_device& d = *device_;
    std::optional<port> fired = d.gate.take_ready();
    if (!fired) {
      fired = d.read_fired();
    } else if (!d.gate.has_ready()) {
      d.quieten();
    }
    d.counters.kicks_received.add(fired ? 1 : 0);
    d.counters.empty_looks.add(fired ? 0 : 1);
    return fired;
  }

  void unmask(port p) noexcept {
    detail::event_device& d = *device_;
    if (!d.gate.contains(p)) {
      return;
    }
    d.counters.unmasks.add();
    const auto todo = d.gate.unmask(p);
    if (todo == detail::port_gate::next::fire) {
      d.counters.refires.add();
      d.ring();
    } else if (todo == detail::port_gate::next::ask_kernel) {
      do {
        d.counters.system_calls.add();
      } while (xenevtchn_unmask(d.handle.get(), p) != 0 && errno == EINTR);
    }
  }

 private:
  std::unique_ptr<detail::event_device> device_;
};

static_assert(event_channel<xen_events>);

}  // namespace pvring::platform
