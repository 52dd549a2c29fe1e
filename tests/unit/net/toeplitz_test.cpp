// SPDX-License-Identifier: MIT
// The Toeplitz hash against the values that Microsoft publishes for receive-side scaling, over IPv4
// and IPv6, with and without ports, from the definition, from the table, and from whole frames.
#include "pvring/net/toeplitz.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "pvring/net/flow_hash.hpp"

namespace pvring::net {
namespace {

namespace type = protocol::netif::hash_type;

constexpr hash_key published_key{0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

struct published {
  const char* destination;
  std::uint16_t destination_port;
  const char* source;
  std::uint16_t source_port;
  std::uint32_t addresses_only;
  std::uint32_t with_tcp;
  [[nodiscard]] bool ipv6() const { return std::string(source).find(':') != std::string::npos; }
};

constexpr published vectors[] = {
    {"161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e8fc2, 0x51ccc178},
    {"65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718262a, 0xc626b0ea},
    {"12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0a5de, 0x5c2b394a},
    {"209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xafc7327f},
    {"202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d1809c5, 0x10e828a2},
    {"3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc18cd5, 0x40207d3d},
    {"ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c461c, 0xdde51bbf},
    {"fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61e985,
     0x02d1feef},
};

using octets = std::vector<std::uint8_t>;

void append(octets& to, const octets& more) { to.insert(to.end(), more.begin(), more.end()); }
octets address(const char* text, bool ipv6) {
  octets out(ipv6 ? 16 : 4);
  EXPECT_EQ(inet_pton(ipv6 ? AF_INET6 : AF_INET, text, out.data()), 1) << text;
  return out;
}
octets port(std::uint16_t number) {
  return {static_cast<std::uint8_t>(number >> 8U), static_cast<std::uint8_t>(number & 0xffU)};
}

octets addresses_of(const published& v) {
  octets out = address(v.source, v.ipv6());
  append(out, address(v.destination, v.ipv6()));
  return out;
}
octets ports_of(const published& v) {
  octets out = port(v.source_port);
  append(out, port(v.destination_port));
  return out;
}

// An Ethernet frame of it. \param protocol 6: TCP, 17: UDP
std::vector<std::byte> frame_of(const published& v, std::uint8_t protocol, bool tagged = false,
                                bool fragment = false) {
  octets f(12, 2);
  if (tagged) {
    append(f, {0x81, 0, 0, 5});
  }
  if (v.ipv6()) {
    append(f, {0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64});
  } else {
    append(f, {8, 0, 0x45, 0, 0, 40, 0, 1, fragment ? std::uint8_t{0x20} : std::uint8_t{0x40}, 0,
               64, protocol, 0, 0});
  }
  append(f, addresses_of(v));
  append(f, ports_of(v));
  append(f, {0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0});
  std::vector<std::byte> out(f.size());
  std::memcpy(out.data(), f.data(), f.size());
  return out;
}

TEST(Toeplitz, GivesThePublishedValues) {
  const toeplitz_table table(published_key);
  for (const published& v : vectors) {
    octets input = addresses_of(v);
    EXPECT_EQ(toeplitz(published_key, input), v.addresses_only) << v.source;
    EXPECT_EQ(table(input), v.addresses_only) << v.source;
    append(input, ports_of(v));
    EXPECT_EQ(toeplitz(published_key, input), v.with_tcp) << v.source;
    EXPECT_EQ(table(input), v.with_tcp) << v.source;
  }
}

TEST(Toeplitz, TableAgreesWithTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    hash_key key;
    for (auto& k : key) {
      k = static_cast<std::uint8_t>(random());
    }
    const toeplitz_table table(key);
    octets input(random() % (longest_hash_input + 1));
    for (auto& i : input) {
      i = static_cast<std::uint8_t>(random());
    }
    EXPECT_EQ(table(input), toeplitz(key, input)) << input.size() << " bytes";
  }
}

TEST(Toeplitz, WithoutAKeyEveryHashIsZero) {
  const toeplitz_table table;
  EXPECT_EQ(table(octets(36, 0xff)), 0U);
  EXPECT_EQ(toeplitz({}, octets(36, 0xff)), 0U);
}

TEST(FlowHash, OfAFrameIsThePublishedValueOfItsRichestKind) {
  const toeplitz_table table(published_key);
  const std::uint32_t all = protocol::netif::all_hash_flags;
  for (const published& v : vectors) {
    for (const bool tagged : {false, true}) {
      const auto tcp = frame_of(v, 6, tagged);
      flow_hash hash = hash_of(tcp, tcp.size(), all, table);
      EXPECT_EQ(hash.algorithm, protocol::netif::hash_algorithm::toeplitz);
      EXPECT_EQ(hash.type, v.ipv6() ? type::ipv6_tcp : type::ipv4_tcp);
      EXPECT_EQ(hash.value, v.with_tcp) << v.source;
      const auto other = frame_of(v, 17, tagged);
      hash = hash_of(other, other.size(), all, table);
      EXPECT_EQ(hash.type, v.ipv6() ? type::ipv6 : type::ipv4);
      EXPECT_EQ(hash.value, v.addresses_only) << v.source;
    }
  }
}

TEST(FlowHash, OnlyTheKindsThatWereAskedForAreCalculated) {
  const toeplitz_table table(published_key);
  using protocol::netif::hash_flag;
  const auto four = frame_of(vectors[0], 6);
  const auto six = frame_of(vectors[5], 6);
  EXPECT_EQ(hash_of(four, four.size(), hash_flag(type::ipv4), table).value, 0x323e8fc2U);
  EXPECT_EQ(hash_of(six, six.size(), hash_flag(type::ipv4), table).algorithm, 0);
  EXPECT_EQ(hash_of(six, six.size(), hash_flag(type::ipv6_tcp), table).value, 0x40207d3dU);
  EXPECT_EQ(hash_of(four, four.size(), 0, table).algorithm, 0);
  const auto udp = frame_of(vectors[0], 17);
  EXPECT_EQ(hash_of(udp, udp.size(), hash_flag(type::ipv4_tcp), table).algorithm, 0);
}

TEST(FlowHash, AFragmentIsHashedByItsAddresses) {
  const toeplitz_table table(published_key);
  const auto fragment = frame_of(vectors[0], 6, false, true);
  const flow_hash hash = hash_of(fragment, fragment.size(), protocol::netif::all_hash_flags, table);
  EXPECT_EQ(hash.type, type::ipv4);
  EXPECT_EQ(hash.value, 0x323e8fc2U);
}

TEST(FlowHash, WhatIsCutOffOrNoIpHasNone) {
  const toeplitz_table table(published_key);
  const auto whole = frame_of(vectors[5], 6);
  for (std::size_t length = 0; length < 14 + 40; ++length) {
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(hash_of(cut, length, protocol::netif::all_hash_flags, table).algorithm, 0) << length;
  }
  const std::vector<std::byte> arp(60, std::byte{8});
  EXPECT_EQ(hash_of(arp, arp.size(), protocol::netif::all_hash_flags, table).algorithm, 0);
}

}  // namespace
}  // namespace pvring::net
