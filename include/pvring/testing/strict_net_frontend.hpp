// SPDX-License-Identifier: MIT
// A network frontend on the emulated platform that behaves as Linux's netfront does and forgives as
// little. Tests, demos and benchmarks of network backends are built on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../net/negotiation.hpp"
#include "../net/uplink.hpp"
#include "../platform/emulated/host.hpp"
#include "../xenbus/device_path.hpp"
#include "../xenbus/frontend_port.hpp"
#include "../xenbus/node.hpp"
#include "../xenbus/ring_nodes.hpp"
#include "frontend_loop.hpp"
#include "strict_net_queue.hpp"
#include "violation_log.hpp"

namespace pvring::testing {

/// What the frontend wants; it gets what the backend offers of it. The defaults are Linux's.
struct strict_net_options {
  std::uint32_t queues = 1;
  net::offloads takes{true, true, true, true, true};
  bool notifies = true;          ///< feature-rx-notify
  bool reads_multicast = false;  ///< request-multicast-control
  bool copies = true;            ///< request-rx-copy: no backend does without
  /// A control ring that the caller has set up and serves, where the backend offers one.
  std::optional<net::control_nodes> control{};
  strict_net_setup queue{};  ///< split channels only where they are offered
};

/// One thread, the frontend's own, uses this object and its queues.
///
/// What it holds against its backend is written down at strict_net_queue; the device is disabled
/// then.
class strict_net_frontend : public frontend_loop<strict_net_frontend> {
 public:
  /// The toolstack has made the device. The guest exists; host and guest outlive this.
  /// \throws std::system_error, node_error
  strict_net_frontend(const platform::emulated_host& host, const xenbus::device_identity& device,
                      strict_net_options wanted = {})
      : guest_(host.domain(device.frontend_domain)),
        wanted_(wanted),
        store_(guest_.open_store()),
        device_(*this),
        port_(store_, device_, xenbus::resolve_from_frontend(store_, device)) {
    for (std::uint32_t i = 0; i < std::max(1U, wanted_.queues); ++i) {
      queues_.push_back(std::make_unique<strict_net_queue>(guest_, device.backend_domain, i, log_));
    }
  }
  strict_net_frontend(const strict_net_frontend&) = delete;
  strict_net_frontend& operator=(const strict_net_frontend&) = delete;
  /// Ends without ceremony, as a guest that is destroyed does.
  ~strict_net_frontend() = default;

  /// Readable when `process()` has something to do.
  [[nodiscard]] int fd() const noexcept { return port_.fd(); }
  /// Does what follows from the store's state; never waits.
  void process() { port_.process(); }
  /// Begins to close. Whatever is in the rings is lost, as it is on a network.
  void begin_close() { port_.close(); }
  /// Connects anew once closed. \pre the toolstack keeps the device online
  void reopen() { port_.reopen(); }

  [[nodiscard]] bool connected() const noexcept { return port_.connected(); }
  [[nodiscard]] bool released() const noexcept { return port_.released(); }
  [[nodiscard]] protocol::xenbus_state state() const noexcept { return port_.state(); }
  [[nodiscard]] protocol::xenbus_state backend_state() const noexcept {
    return port_.backend_state();
  }
  /// Why this end closed the device; empty when it did not.
  [[nodiscard]] const std::string& error() const noexcept { return port_.error(); }
  [[nodiscard]] const xenbus::device_path& path() const noexcept { return port_.path(); }

  /// Queues that were agreed.
  [[nodiscard]] std::uint32_t queue_count() const noexcept { return active_; }
  /// \pre `i < queue_count()`. The object is valid as long as the frontend.
  [[nodiscard]] strict_net_queue& queue(std::uint32_t i) noexcept { return *queues_[i]; }
  /// What the backend takes of what this frontend sends.
  [[nodiscard]] const net::offloads& sends() const noexcept { return sends_; }

  /// Any thread.
  [[nodiscard]] std::vector<std::string> violations() const { return log_.all(); }
  [[nodiscard]] bool disabled() const noexcept { return log_.disabled(); }
  [[nodiscard]] std::string violations_text() const { return log_.text(); }

 private:
  using transaction = platform::emulated_store::transaction;

  // The hooks of the handshake; see xenbus::frontend_handler.
  class handler {
   public:
    static constexpr bool connects_at_once = true;

    explicit handler(strict_net_frontend& self) noexcept : self_(self) {}
    void prepare() { self_.prepare(); }
    void publish(transaction& t) { self_.publish(t); }
    void connect() {}
    void begin_close() noexcept {}
    [[nodiscard]] bool idle() const noexcept { return true; }
    // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
    void release() noexcept {
      for (const auto& queue : self_.queues_) {
        queue->release();
      }
    }

   private:
    strict_net_frontend& self_;
  };

  [[nodiscard]] std::uint32_t offered(std::string_view name, std::uint32_t otherwise) {
    return xenbus::read_unsigned_or<std::uint32_t>(
        store_, xenbus::join(port_.path().backend(), name), port_.path().identity().backend_domain,
        otherwise);
  }

  void prepare() {
    if (offered("feature-rx-copy", 0) != 1) {
      const std::string node = xenbus::join(port_.path().backend(), "feature-rx-copy");
      throw node_error(node, store_.read(node).value_or(""), port_.path().identity().backend_domain,
                       "write 1: a backend that does not copy is of no use");
    }
    active_ =
        std::min(std::max(1U, wanted_.queues), std::max(1U, offered("multi-queue-max-queues", 1)));
    sends_ = {.checksum_v4 = offered("feature-no-csum-offload", 0) == 0,
              .checksum_v6 = offered("feature-ipv6-csum-offload", 0) != 0,
              .gso_tcpv4 = offered("feature-gso-tcpv4", 0) != 0,
              .gso_tcpv6 = offered("feature-gso-tcpv6", 0) != 0,
              .scatter_gather = offered("feature-sg", 0) != 0};
    strict_net_setup setup = wanted_.queue;
    setup.split_channels = setup.split_channels && offered("feature-split-event-channels", 0) != 0;
    log_.enable();
    try {
      for (std::uint32_t i = 0; i < active_; ++i) {
        queues_[i]->prepare(setup);
      }
    } catch (...) {
      device_.release();
      throw;
    }
  }

  void publish(transaction& t) {
    const std::string& home = port_.path().frontend();
    // Nodes of an earlier connection would be read as if they were of this one.
    for (const std::string& name : t.list(home)) {
      if (name.starts_with("queue-") || name.starts_with("event-channel") ||
          name.ends_with("-ring-ref") || name == "multi-queue-num-queues") {
        t.remove(xenbus::join(home, name));
      }
    }
    const auto write = [&t](const std::string& directory, std::string_view name,
                            std::uint64_t value) {
      t.write(xenbus::join(directory, name), std::to_string(value));
    };
    if (active_ > 1) {
      write(home, "multi-queue-num-queues", active_);
    }
    for (std::uint32_t i = 0; i < active_; ++i) {
      const std::string directory = xenbus::queue_directory(home, active_, i);
      const strict_net_queue& queue = *queues_[i];
      write(directory, "tx-ring-ref", queue.tx_reference());
      write(directory, "rx-ring-ref", queue.rx_reference());
      if (queue.tx_port() != queue.rx_port()) {
        write(directory, "event-channel-tx", queue.tx_port());
        write(directory, "event-channel-rx", queue.rx_port());
      } else {
        write(directory, "event-channel", queue.tx_port());
      }
    }
    if (wanted_.control && offered("feature-ctrl-ring", 0) != 0) {
      write(home, "ctrl-ring-ref", wanted_.control->reference);
      write(home, "event-channel-ctrl", wanted_.control->channel);
    }
    write(home, "request-rx-copy", wanted_.copies ? 1 : 0);
    write(home, "feature-rx-notify", wanted_.notifies ? 1 : 0);
    write(home, "feature-sg", wanted_.takes.scatter_gather ? 1 : 0);
    write(home, "feature-gso-tcpv4", wanted_.takes.gso_tcpv4 ? 1 : 0);
    write(home, "feature-gso-tcpv6", wanted_.takes.gso_tcpv6 ? 1 : 0);
    write(home, "feature-no-csum-offload", wanted_.takes.checksum_v4 ? 0 : 1);
    write(home, "feature-ipv6-csum-offload", wanted_.takes.checksum_v6 ? 1 : 0);
    write(home, "request-multicast-control", wanted_.reads_multicast ? 1 : 0);
  }

  platform::emulated_guest guest_;
  strict_net_options wanted_;
  violation_log log_;
  platform::emulated_store store_;
  std::uint32_t active_ = 0;
  net::offloads sends_;
  handler device_;
  xenbus::frontend_port<platform::emulated_store, handler> port_;
  std::vector<std::unique_ptr<strict_net_queue>> queues_;
};

}  // namespace pvring::testing
