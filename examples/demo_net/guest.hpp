// SPDX-License-Identifier: MIT
// An emulated guest with a network device: its frontend is served by a thread, and is joined to a
// TAP device in a namespace of its own, or to nothing.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <pvring/net/backend.hpp>
#include <pvring/net/pair_uplink.hpp>
#include <pvring/net/tap_uplink.hpp>
#include <pvring/platform/emulated.hpp>
#include <pvring/testing/strict_net_frontend.hpp>
#include <pvring/xenbus/toolstack.hpp>
#include <string>
#include <thread>
#include <vector>

#include "name_space.hpp"
#include "settings.hpp"

namespace demo_net {

struct config : pvring::net::default_config {
  using uplink = pvring::net::pair_uplink;
};
static_assert(pvring::net::backend_config<config>);

/// A guest's device and the backend that serves it.
class guest {
 public:
  guest(const pvring::platform::emulated_host& host, pvring::domain_id domain,
        pvring::net::pair_uplink& uplink, const combination& how, std::uint32_t queues);
  ~guest();
  guest(const guest&) = delete;
  guest& operator=(const guest&) = delete;

  /// Waits until frontend and backend are connected. \throws std::runtime_error
  void connect();

  /// Joins the device to `eth0` of the namespace, with that address, and serves it from now on.
  /// \throws no_kernel where there are no TAP devices
  void plug_into(const name_space& where, const std::string& address);

  /// Ends the thread and closes the device. \throws mismatch for anything that the frontend holds
  /// against its backend
  void end();

  [[nodiscard]] pvring::testing::strict_net_frontend& front() { return *front_; }
  [[nodiscard]] std::vector<pvring::net::queue_statistics> statistics() const {
    return backend_->statistics();
  }

 private:
  void serve();
  std::size_t turn(std::uint32_t queue, std::vector<std::byte>& frame);

  pvring::platform::emulated platform_;
  pvring::platform::emulated_guest domain_;
  pvring::platform::emulated_store toolstack_;
  pvring::xenbus::device_identity identity_;
  std::unique_ptr<pvring::net::backend<config>> backend_;
  std::thread backend_thread_;
  std::unique_ptr<pvring::testing::strict_net_frontend> front_;

  std::optional<pvring::net::tap_uplink> tap_;
  std::vector<pvring::net::tap_uplink::port> ports_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace demo_net
