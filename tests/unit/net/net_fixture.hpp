// SPDX-License-Identifier: MIT
// A network queue between a strict frontend and an uplink in memory, served by the test itself.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/mapped_first.hpp"
#include "pvring/net/memory_uplink.hpp"
#include "pvring/net/queue.hpp"
#include "pvring/observe/none.hpp"
#include "pvring/platform/emulated.hpp"
#include "pvring/testing/strict_net_queue.hpp"

namespace pvring::test {

inline std::vector<std::byte> frame_of(std::size_t length, std::uint8_t seed = 1) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<std::byte>((i * 31 + i / 256 + seed) & 0xffU);
  }
  if (!bytes.empty()) {
    bytes[0] &= std::byte{0xfe};  // for one station
  }
  return bytes;
}

/// A clock that the test moves.
struct net_clock {
  static inline std::uint64_t milliseconds = 1;
  static wait::time_point now() noexcept {
    return wait::time_point(std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds)));
  }
};

struct net_rig_options {
  net::rx_setup receive{.receives = {.offloads = {true, true, true, true, true}, .hash = true},
                        .delivery = {.when = net::delivery::at_once}};
  testing::strict_net_setup front{};
};

template <class Strategy = grant::batched_copy>
class net_rig {
 public:
  using queue_type = net::queue<platform::emulated_grants, platform::emulated_events, Strategy,
                                net::memory_uplink::port, observe::none::recorder>;

  explicit net_rig(const net_rig_options& wanted = {})
      : guest(host.create_domain(3)),
        front(guest, 0, 0, log),
        platform_(host),
        grants(platform_.open_grants(4096)),
        tx_events(platform_.open_events()),
        rx_events(platform_.open_events()),
        port(uplink.open(0)) {
    net_clock::milliseconds = 1;
    front.prepare(wanted.front);
    platform_.set_faults(&faults);
    const platform::grant_reference tx = front.tx_reference();
    const platform::grant_reference rx = front.rx_reference();
    tx_page_ = grants.map(3, {&tx, 1}, platform::access::read_write).pages;
    rx_page_ = grants.map(3, {&rx, 1}, platform::access::read_write).pages;
    tx_port_ = tx_events.bind(3, front.tx_port());
    rx_port_ = wanted.front.split_channels ? rx_events.bind(3, front.rx_port()) : tx_port_;
    net::queue_setup setup{.domain = 3,
                           .tx_ring = {tx_page_.address, platform::page_size},
                           .rx_ring = {rx_page_.address, platform::page_size},
                           .tx_port = tx_port_,
                           .rx_port = rx_port_,
                           .tx_start = wanted.front.tx_start,
                           .rx_start = wanted.front.rx_start,
                           .receive = wanted.receive,
                           .clock = &net_clock::now,
                           .attention =
                               [](void* who, protocol_error why) noexcept {
                                 static_cast<net_rig*>(who)->told.push_back(why);
                               },
                           .who = this};
    queue.emplace(setup, net::packet_grants(3), device, grants, tx_events,
                  wanted.front.split_channels ? rx_events : tx_events, port);
  }
  net_rig(const net_rig&) = delete;
  net_rig& operator=(const net_rig&) = delete;
  ~net_rig() {
    end();
    front.release();
    EXPECT_THAT(log.all(), ::testing::IsEmpty());
    EXPECT_EQ(host.leaked_pages(), 0U);
  }

  /// The backend lets go of everything.
  void end() {
    if (!queue) {
      return;
    }
    queue->stop();
    run();
    EXPECT_TRUE(queue->idle());
    EXPECT_EQ(queue->leases(), 0U);
    queue->clear();
    queue.reset();
    EXPECT_EQ(grants.unmap(tx_page_), 0);
    EXPECT_EQ(grants.unmap(rx_page_), 0);
    tx_events.unbind(tx_port_);
    if (rx_port_ != tx_port_) {
      rx_events.unbind(rx_port_);
    }
  }

  /// Passes until there is nothing to do.
  void run() {
    for (int i = 0; i < 10'000 && queue->service(256) != 0; ++i) {
    }
  }

  /// What the guest sent arrived at the uplink.
  std::vector<net::memory_frame> sent() {
    front.publish();
    run();
    front.poll();
    std::vector<net::memory_frame> out;
    while (auto frame = uplink.lane(0).take()) {
      out.push_back(std::move(*frame));
    }
    return out;
  }

  struct arrived {
    std::vector<std::byte> bytes;
    net::packet_info info;
    std::size_t slots;
  };
  /// What came to the guest.
  std::vector<arrived> received() {
    front.publish();
    run();
    std::vector<arrived> out;
    front.poll([&](const testing::received_packet& p) {
      out.push_back({{p.bytes.begin(), p.bytes.end()}, p.info, p.slots});
    });
    return out;
  }

  platform::emulated_host host = platform::emulated_host::create();
  platform::emulated_guest guest;
  testing::violation_log log;
  testing::strict_net_queue front;
  platform::emulated platform_;
  platform::emulated_grants grants;
  platform::emulated_events tx_events;
  platform::emulated_events rx_events;
  platform::fault_plan faults;
  net::memory_uplink uplink;
  net::memory_uplink::port port;
  net::shared_state device;
  std::vector<protocol_error> told;
  std::optional<queue_type> queue;

 private:
  platform::mapping tx_page_;
  platform::mapping rx_page_;
  platform::port tx_port_ = 0;
  platform::port rx_port_ = 0;
};

}  // namespace pvring::test
