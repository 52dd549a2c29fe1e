// SPDX-License-Identifier: MIT
// The slots of every packet that there can be: each length, each kind of packet, each agreement.
#include "pvring/net/plan_slots.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace pvring;
using net::checksum;
using net::gso;
namespace netif = protocol::netif;
namespace flag = netif::rx_flag;

constexpr net::rx_agreement everything{
    .offloads = {true, true, true, true, true},
    .hash = true,
};

std::vector<net::packet_info> kinds() {
  std::vector<net::packet_info> all;
  for (const checksum c : {checksum::none, checksum::blank, checksum::validated}) {
    for (const gso g : {gso::none, gso::tcpv4, gso::tcpv6}) {
      for (const std::uint8_t algorithm :
           {netif::hash_algorithm::none, netif::hash_algorithm::toeplitz}) {
        all.push_back({c,
                       g,
                       static_cast<std::uint16_t>(g == gso::none ? 0 : 1448),
                       {algorithm, netif::hash_type::ipv4_tcp, 0x12345678}});
      }
    }
  }
  return all;
}

// What a frontend does with the slots: joins the parts, and believes nothing.
void expect_good(const net::slot_plan& plan, std::size_t length, const net::packet_info& info) {
  std::size_t joined = 0;
  std::size_t data = 0;
  bool extra_expected = false;
  bool has_gso = false;
  bool has_hash = false;
  for (std::size_t i = 0; i < plan.slots(); ++i) {
    const auto part = plan.at(i);
    ASSERT_EQ(part.is_extra, extra_expected) << "slot " << i << " of " << length;
    if (part.is_extra) {
      ASSERT_NE(part.extra, nullptr);
      extra_expected = (part.extra->flags & netif::extra_more) != 0;
      if (part.extra->type == netif::extra_type::gso) {
        has_gso = true;
        EXPECT_EQ(part.extra->gso_size(), info.gso_size);
        EXPECT_EQ(part.extra->gso_type(), static_cast<std::uint8_t>(info.gso));
      } else {
        ASSERT_EQ(part.extra->type, netif::extra_type::hash);
        has_hash = true;
        EXPECT_EQ(part.extra->hash_value(), info.hash.value);
      }
      continue;
    }
    ASSERT_EQ(part.offset, joined);
    ASSERT_GT(part.length, 0);
    ASSERT_LE(part.length, 4096);
    joined += part.length;
    ++data;
    ASSERT_EQ((part.flags & flag::more_data) != 0, joined < length);
    ASSERT_TRUE(part.length == 4096 || joined == length) << "a page is filled before the next";
    if (i == 0) {
      extra_expected = (part.flags & flag::extra_info) != 0;
      ASSERT_EQ((part.flags & flag::csum_blank) != 0, info.checksum == checksum::blank);
      ASSERT_EQ((part.flags & flag::data_validated) != 0, info.checksum != checksum::none);
    } else {
      ASSERT_EQ(part.flags & ~flag::more_data, 0) << "only the first slot speaks of the packet";
    }
  }
  ASSERT_FALSE(extra_expected);
  ASSERT_EQ(joined, length);
  ASSERT_EQ(data, plan.data_slots());
  ASSERT_EQ(plan.slots(), data + plan.extras());
  ASSERT_LE(data, netif::slots_min) << "more than netfront takes";
  EXPECT_EQ(has_gso, info.gso != gso::none);
  EXPECT_EQ(has_hash, info.hash.algorithm != 0);
}

TEST(PlanSlots, EveryLengthOfEveryKindOfPacketIsJoinedToWhatItWas) {
  for (const net::packet_info& info : kinds()) {
    for (std::size_t length = net::min_frame_bytes; length <= net::max_frame_bytes; ++length) {
      // All lengths around the pages' ends, and a good part of the others.
      if (length % 4096 > 20 && length % 4096 < 4076 && length % 97 != 0) {
        continue;
      }
      const net::slot_plan plan = net::plan_slots(length, info, everything);
      expect_good(plan, length, info);
      ASSERT_EQ(plan.slots(), (length + 4095) / 4096 + (info.gso != gso::none ? 1 : 0) +
                                  (info.hash.algorithm != 0 ? 1 : 0));
    }
  }
}

TEST(PlanSlots, NoFrontendGetsAFrameThatIsNone) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{13},
                                   std::size_t{65536}, std::size_t{1} << 20U, ~std::size_t{0}}) {
    EXPECT_EQ(net::plan_slots(length, {}, everything).slots(), 0U) << length;
  }
  EXPECT_EQ(net::plan_slots(1500, {.gso = gso::tcpv4, .gso_size = 0}, everything).slots(), 0U);
}

TEST(PlanSlots, OnlyWhatWasAgreedIsSent) {
  for (unsigned bits = 0; bits < 16; ++bits) {
    const net::rx_agreement with{.offloads = {.checksum_v4 = true,
                                              .checksum_v6 = false,
                                              .gso_tcpv4 = (bits & 1U) != 0,
                                              .gso_tcpv6 = (bits & 2U) != 0,
                                              .scatter_gather = (bits & 4U) != 0},
                                 .hash = (bits & 8U) != 0};
    for (const net::packet_info& info : kinds()) {
      for (const std::size_t length : {60UL, 4096UL, 4097UL, 65535UL}) {
        const net::slot_plan plan = net::plan_slots(length, info, with);
        const bool takes = (length <= 4096 || with.offloads.scatter_gather) &&
                           (info.gso != gso::tcpv4 || with.offloads.gso_tcpv4) &&
                           (info.gso != gso::tcpv6 || with.offloads.gso_tcpv6);
        ASSERT_EQ(plan.slots() != 0, takes) << bits << " " << length;
        if (takes) {
          net::packet_info said = info;
          said.hash.algorithm = with.hash ? info.hash.algorithm : 0;
          expect_good(plan, length, said);
        }
      }
    }
  }
}

}  // namespace
