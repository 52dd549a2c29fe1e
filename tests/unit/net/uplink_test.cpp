// SPDX-License-Identifier: MIT
// What is an uplink, and what is not.
#include "pvring/net/uplink.hpp"

#include <gtest/gtest.h>

namespace {

using namespace pvring;

struct good_port {
  int fd() noexcept { return -1; }
  bool arm() noexcept { return false; }
  void disarm() noexcept {}
  int transmit(std::span<const iovec> /*bytes*/, const net::packet_info& /*info*/) noexcept {
    return 0;
  }
  std::ptrdiff_t receive(std::span<std::byte> /*into*/, net::packet_info& /*info*/) noexcept {
    return 0;
  }
};
static_assert(net::uplink_port<good_port>);

struct port_that_throws : good_port {
  int transmit(std::span<const iovec> /*bytes*/, const net::packet_info& /*info*/) { return 0; }
};
static_assert(!net::uplink_port<port_that_throws>);

struct port_that_cannot_be_waited_for {
  int transmit(std::span<const iovec> /*bytes*/, const net::packet_info& /*info*/) noexcept {
    return 0;
  }
  std::ptrdiff_t receive(std::span<std::byte> /*into*/, net::packet_info& /*info*/) noexcept {
    return 0;
  }
};
static_assert(!net::uplink_port<port_that_cannot_be_waited_for>);

struct good_uplink {
  using port = good_port;
  static constexpr bool keeps_flows = true;
  std::uint32_t queues() { return 1; }
  good_port open(std::uint32_t /*queue*/) { return {}; }
  void set_offloads(net::offloads /*with*/) {}
  void set_carrier(bool /*up*/) noexcept {}
  std::uint32_t mtu() { return 1500; }
};
static_assert(net::uplink<good_uplink>);

struct uplink_that_does_not_say_who_chooses_queues : good_uplink {
 private:
  using good_uplink::keeps_flows;
};
static_assert(!net::uplink<uplink_that_does_not_say_who_chooses_queues>);

TEST(Offloads, AreWhatAFrontendHasThatSaysNothing) {
  const net::offloads silent;
  EXPECT_TRUE(silent.checksum_v4);
  EXPECT_FALSE(silent.checksum_v6 || silent.gso_tcpv4 || silent.gso_tcpv6 || silent.scatter_gather);
}

}  // namespace
