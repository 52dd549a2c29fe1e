// SPDX-License-Identifier: MIT
// See fake_xen.hpp. The device is a pipe of port numbers; a port that fired is masked until it is
// written back, as by the kernel's driver.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "fake_xen.hpp"

struct xenevtchn_handle {
  xentoollog_logger* logger;
};

namespace fake {

void event_driver::enqueue(std::uint32_t port) const {
  if (::write(pipe[1], &port, sizeof port) != sizeof port) {
    std::abort();
  }
}

void event_driver::kick(std::uint32_t port) {
  if (!bound.contains(port)) {
    return;
  }
  if (masked.contains(port)) {
    kicked.insert(port);
  } else {
    masked.insert(port);
    enqueue(port);
  }
}

}  // namespace fake

extern "C" {

xenevtchn_handle* xenevtchn_open(xentoollog_logger* logger, unsigned) {
  fake::event_driver& e = fake::current->events;
  if (fake::fails(e.open)) {
    return nullptr;
  }
  if (::pipe2(e.pipe, O_CLOEXEC) != 0) {
    std::abort();
  }
  fake::current->order.emplace_back("open evtchn");
  return new xenevtchn_handle{logger};
}

int xenevtchn_close(xenevtchn_handle* handle) {
  fake::event_driver& e = fake::current->events;
  for (int& fd : e.pipe) {
    ::close(fd);
    fd = -1;
  }
  // The logger must still be there.
  fake::say(handle->logger, XTL_DEBUG, -1, "evtchn", "closed");
  fake::current->order.emplace_back("close evtchn");
  delete handle;
  return 0;
}

int xenevtchn_fd(xenevtchn_handle*) { return fake::current->events.pipe[0]; }

int xenevtchn_notify(xenevtchn_handle*, evtchn_port_t port) {
  fake::event_driver& e = fake::current->events;
  e.notified.push_back(port);
  return fake::fails(e.notify) ? -1 : 0;
}

xenevtchn_port_or_error_t xenevtchn_bind_interdomain(xenevtchn_handle*, std::uint32_t domain,
                                                     evtchn_port_t remote) {
  fake::event_driver& e = fake::current->events;
  e.binds.emplace_back(domain, remote);
  if (fake::fails(e.bind)) {
    return -1;
  }
  const std::uint32_t port = e.next_port++;
  e.bound.insert(port);
  if (e.raises_on_bind) {
    e.kick(port);
  }
  return static_cast<int>(port);
}

xenevtchn_port_or_error_t xenevtchn_bind_unbound_port(xenevtchn_handle*, std::uint32_t) {
  fake::event_driver& e = fake::current->events;
  if (fake::fails(e.bind)) {
    return -1;
  }
  e.bound.insert(e.next_port);
  return static_cast<int>(e.next_port++);
}

int xenevtchn_unbind(xenevtchn_handle*, evtchn_port_t port) {
  fake::event_driver& e = fake::current->events;
  e.unbound.push_back(port);
  e.bound.erase(port);
  e.masked.erase(port);
  e.kicked.erase(port);
  return 0;
}

xenevtchn_port_or_error_t xenevtchn_pending(xenevtchn_handle*) {
  fake::event_driver& e = fake::current->events;
  ++e.reads;
  if (fake::fails(e.pending)) {
    return -1;
  }
  std::uint32_t port = 0;
  return ::read(e.pipe[0], &port, sizeof port) == sizeof port ? static_cast<int>(port) : -1;
}

int xenevtchn_unmask(xenevtchn_handle*, evtchn_port_t port) {
  fake::event_driver& e = fake::current->events;
  if (fake::fails(e.unmask)) {
    return -1;
  }
  e.unmasked.push_back(port);
  e.masked.erase(port);
  if (e.kicked.erase(port) != 0) {
    e.kick(port);
  }
  return 0;
}

}  // extern "C"
