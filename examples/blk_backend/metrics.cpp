// SPDX-License-Identifier: MIT
#include "metrics.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <pvring/base/log.hpp>

#include "device_name.hpp"

namespace tool {
namespace {

constexpr std::string_view socket_prefix = "unix:";

struct family {
  std::string_view name;
  std::string_view unit;  ///< empty: none
  std::string_view help;
  std::uint64_t device_numbers::*value;
};

constexpr family counters[] = {
    {"requests", "", "Requests taken from the ring", &device_numbers::requests},
    {"reads", "", "Reads", &device_numbers::reads},
    {"writes", "", "Writes", &device_numbers::writes},
    {"flushes", "", "Flushes", &device_numbers::flushes},
    {"discards", "", "Discards", &device_numbers::discards},
    {"refused", "", "Requests refused as malformed", &device_numbers::refused},
    {"failed", "", "Requests that the storage failed", &device_numbers::failed},
    {"redone", "", "Requests of a daemon that was killed, done again", &device_numbers::redone},
    {"read_bytes", "bytes", "Bytes read", &device_numbers::bytes_read},
    {"written_bytes", "bytes", "Bytes written", &device_numbers::bytes_written},
    {"publications", "", "Times that answers were made visible", &device_numbers::publications},
    {"notifications", "", "Interrupts of the guest", &device_numbers::notifications},
    {"events", "", "Kicks by the guest", &device_numbers::events},
    {"grant_calls", "", "Calls to map, unmap or copy", &device_numbers::grant_calls},
    {"grant_operations", "", "Pages of those calls", &device_numbers::grant_operations},
    {"hypercalls", "", "Hypercalls of grants and events", &device_numbers::hypercalls}};

std::string labels(const server::report& device) {
  return fmt::format(R"({{type="{}",domain="{}",device="{}"}})", device.identity.type,
                     device.identity.frontend_domain, device_name(device.identity.device));
}

}  // namespace

std::string open_metrics(const std::vector<server::report>& devices) {
  using pvring::protocol::xenbus_state;
  std::string text;
  const auto gauge = [&](std::string_view name, std::string_view help, auto&& value) {
    text += fmt::format("# TYPE pvring_blk_{0} gauge\n# HELP pvring_blk_{0} {1}\n", name, help);
    for (const server::report& device : devices) {
      text += fmt::format("pvring_blk_{}{} {}\n", name, labels(device), value(device));
    }
  };
  gauge("served", "1: served, 0: refused or over",
        [](const server::report& device) { return device.served ? 1 : 0; });
  gauge("connected", "1: the guest is connected", [](const server::report& device) {
    return device.state == xenbus_state::connected ? 1 : 0;
  });
  gauge("queues", "Connected queues",
        [](const server::report& device) { return device.numbers.queues; });
  for (const family& one : counters) {
    text += fmt::format("# TYPE pvring_blk_{} counter\n", one.name);
    if (!one.unit.empty()) {
      text += fmt::format("# UNIT pvring_blk_{} {}\n", one.name, one.unit);
    }
    text += fmt::format("# HELP pvring_blk_{} {}\n", one.name, one.help);
    for (const server::report& device : devices) {
      text += fmt::format("pvring_blk_{}_total{} {}\n", one.name, labels(device),
                          device.numbers.*one.value);
    }
  }
  return text + "# EOF\n";
}

metrics_output::metrics_output(const std::string& target, server& of, event_loop& loop)
    : of_(of), loop_(loop) {
  if (target.starts_with(socket_prefix)) {
    door_.emplace("--metrics", target.substr(socket_prefix.size()));
    loop_.add(door_->fd(), [this] { answer(); });
    return;
  }
  path_ = target;
  write_file();
  of_.set_tick([this] {
    try {
      write_file();
    } catch (const std::exception& e) {
      pvring::log::write(pvring::log::level::warning, e.what());
    }
  });
}

metrics_output::~metrics_output() {
  if (door_) {
    loop_.remove(door_->fd());
  }
  of_.set_tick({});
}

// Whoever reads it sees the old text or the new one, and no half.
void metrics_output::write_file() {
  const std::string fresh = path_ + ".new";
  {
    std::ofstream out(fresh, std::ios::trunc);
    out << open_metrics(of_.reports());
    if (!out.flush()) {
      throw pvring::configuration_error("option --metrics is '" + path_ + "': " + fresh +
                                        " cannot be written; name a file in a directory that "
                                        "this process may write, or unix:PATH");
    }
  }
  if (std::rename(fresh.c_str(), path_.c_str()) != 0) {
    throw pvring::configuration_error("option --metrics is '" + path_ +
                                      "': it cannot be replaced: " + std::strerror(errno));
  }
}

void metrics_output::answer() {
  const pvring::unique_fd peer = door_->accept();
  if (!peer) {
    return;
  }
  // Short: this thread also follows the store. Only this user can connect.
  const timeval limit{.tv_sec = 0, .tv_usec = 100'000};
  (void)::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  (void)::setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  char request[4096];
  const ssize_t got = ::recv(peer.get(), request, sizeof request, 0);
  std::string text = open_metrics(of_.reports());
  if (got > 0 && std::string_view(request, static_cast<std::size_t>(got)).starts_with("GET ")) {
    text = fmt::format(
               "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; "
               "charset=utf-8\r\nContent-Length: {}\r\n\r\n",
               text.size()) +
           text;
  }
  for (std::string_view left = text; !left.empty();) {
    const ssize_t sent = ::send(peer.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    left.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace tool
