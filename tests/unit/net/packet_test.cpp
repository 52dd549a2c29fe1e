// SPDX-License-Identifier: MIT
// A packet's description must agree with the wire's numbers.
#include "pvring/net/packet.hpp"

#include <gtest/gtest.h>

#include "pvring/protocol/netif.hpp"

namespace {

namespace net = pvring::net;
namespace netif = pvring::protocol::netif;

static_assert(static_cast<std::uint8_t>(net::gso::none) == netif::gso_type::none);
static_assert(static_cast<std::uint8_t>(net::gso::tcpv4) == netif::gso_type::tcpv4);
static_assert(static_cast<std::uint8_t>(net::gso::tcpv6) == netif::gso_type::tcpv6);
static_assert(net::flow_hash{}.algorithm == netif::hash_algorithm::none);
static_assert(net::max_frame_bytes == netif::max_packet_bytes);

TEST(PacketInfo, SaysNothingUnlessTold) {
  const net::packet_info info;
  EXPECT_EQ(info.checksum, net::checksum::none);
  EXPECT_EQ(info.gso, net::gso::none);
  EXPECT_EQ(info.gso_size, 0);
}

}  // namespace
