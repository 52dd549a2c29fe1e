// SPDX-License-Identifier: MIT
// What becomes of a packet that a guest sends, slot by slot: all counts of slots, all extra infos,
// all places where a size or an offset begins to be wrong.
#include "pvring/net/tx_chain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "tx_slots.hpp"

namespace {

using namespace pvring;
using namespace pvring::test;
using net::tx_chain;
using net::tx_drop;
using netif_extra = protocol::netif::extra_info;
namespace netif = protocol::netif;

// Adds slots until the chain asks for no more; how many it took.
std::size_t play(tx_chain& chain, std::span<const netif::tx_slot> slots) {
  chain.begin();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(chain.wants_more());
    if (!chain.add(slots[i])) {
      EXPECT_FALSE(chain.wants_more());
      return i + 1;
    }
  }
  return slots.size() + 1;  // it wants more than there are
}

std::vector<tx_part> parts_of(std::size_t count, std::uint16_t each) {
  std::vector<tx_part> parts;
  for (std::size_t i = 0; i < count; ++i) {
    parts.push_back({static_cast<std::uint32_t>(100 + i), 0, each});
  }
  return parts;
}

std::size_t bytes_of(std::span<const grant::piece> pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                         [](std::size_t sum, const grant::piece& p) { return sum + p.length; });
}

// Case 64, and its numbers at the edges.
TEST(TxChain, Takes19SlotsDrops21AndCallsMoreABreachOfProtocol) {
  for (std::size_t count = 1; count <= 40; ++count) {
    for (std::size_t extras = 0; extras <= 2; ++extras) {
      tx_chain chain;
      const std::vector<netif_extra> infos(
          extras, netif_extra::of_hash(netif::hash_algorithm::toeplitz, netif::hash_type::ipv4, 7));
      const auto slots = whole_packet(parts_of(count, 100), infos);
      const std::size_t taken = play(chain, slots);
      SCOPED_TRACE(count);
      if (count <= 19) {
        EXPECT_EQ(chain.error(), protocol_error::none);
        EXPECT_EQ(chain.drop(), tx_drop::none);
        EXPECT_EQ(taken, slots.size());
        ASSERT_EQ(chain.pieces().size(), count);
        EXPECT_EQ(bytes_of(chain.pieces()), count * 100);
        for (std::size_t i = 0; i < count; ++i) {
          EXPECT_EQ(chain.pieces()[i].reference, 100 + i);
        }
      } else if (count <= 21) {
        EXPECT_EQ(chain.error(), protocol_error::none);
        EXPECT_EQ(chain.drop(), tx_drop::too_many_slots);
        EXPECT_EQ(taken, slots.size()) << "all its slots are consumed";
        EXPECT_TRUE(chain.pieces().empty());
      } else {
        EXPECT_EQ(chain.error(), protocol_error::packet_too_many_slots);
        EXPECT_EQ(taken, extras + 22) << "nothing is looked at behind the breach";
      }
      if (count <= 21) {
        EXPECT_EQ(chain.slots(), slots.size());
        for (std::size_t i = 0; i < slots.size(); ++i) {
          EXPECT_EQ(chain.is_extra(i), i >= 1 && i <= extras);
        }
      }
    }
  }
}

// The first request says how long the packet is; what the others leave of it is its own.
TEST(TxChain, FirstPartIsWhatTheOthersLeave) {
  tx_chain chain;
  for (std::uint16_t first = 0; first <= 4096; ++first) {
    const auto slots = whole_packet({{1, 0, first}, {2, 10, 20}, {3, 4000, 96}});
    play(chain, slots);
    ASSERT_EQ(chain.error(), protocol_error::none);
    ASSERT_EQ(chain.drop(), tx_drop::none);
    ASSERT_EQ(chain.bytes(), first + 116U);
    ASSERT_EQ(bytes_of(chain.pieces()), chain.bytes());
    ASSERT_EQ(chain.pieces().size(), first == 0 ? 2U : 3U);
    ASSERT_EQ(chain.pieces().back().offset, 4000);
  }
  play(chain, whole_packet({{1, 0, 4097}, {2, 0, 20}}));
  EXPECT_EQ(chain.error(), protocol_error::packet_crosses_page);
}

// Case 63 (c): every offset, with the sizes around the page's end.
TEST(TxChain, NoPartReachesPastItsPage) {
  tx_chain chain;
  for (unsigned offset = 0; offset <= 0xffff; ++offset) {
    const int room = 4096 - static_cast<int>(offset);
    for (const int size : {0, 1, 14, 60, room - 1, room, room + 1, 0xffff}) {
      if (size < 0 || size > 0xffff) {
        continue;
      }
      const auto o = static_cast<std::uint16_t>(offset);
      const auto s = static_cast<std::uint16_t>(size);
      play(chain, tx_packet(s, {{1, o, s}}));
      if (size < 14) {
        ASSERT_EQ(chain.drop(), tx_drop::too_short);
      } else {
        ASSERT_EQ(chain.error() == protocol_error::packet_crosses_page, size > room)
            << offset << "+" << size;
      }
      play(chain, tx_packet(static_cast<std::uint16_t>(std::min(size + 60, 0xffff)),
                            {{1, 0, 60}, {2, o, s}}));
      ASSERT_EQ(chain.error() == protocol_error::packet_crosses_page, size > room)
          << offset << "+" << size;
      if (chain.error() == protocol_error::none) {
        for (const grant::piece& p : chain.pieces()) {
          ASSERT_NE(p.length, 0);
          ASSERT_LE(p.offset + p.length, 4096);
        }
      }
    }
  }
}

// A packet of 64 KiB and more has lost the upper bits of its size: its slots are consumed, the
// guest lives on.
TEST(TxChain, DropsAPacketWhosePartsAreLongerThanItIs) {
  tx_chain chain;
  auto parts = parts_of(17, 4096);  // 69632 bytes
  const auto slots = whole_packet(parts);
  EXPECT_EQ(play(chain, slots), 17U);
  EXPECT_EQ(chain.error(), protocol_error::none);
  EXPECT_EQ(chain.drop(), tx_drop::parts_exceed_size);
  EXPECT_TRUE(chain.pieces().empty());
  EXPECT_EQ(play(chain, tx_packet(100, {{1, 0, 0}, {2, 0, 100}})), 2U);
  EXPECT_EQ(chain.drop(), tx_drop::none) << "as long as it is: the first part is empty";
  EXPECT_EQ(play(chain, tx_packet(100, {{1, 0, 0}, {2, 0, 101}, {3, 0, 1}})), 3U);
  EXPECT_EQ(chain.drop(), tx_drop::parts_exceed_size);
}

TEST(TxChain, DropsWhatIsShorterThanAnEthernetHeader) {
  tx_chain chain;
  for (std::uint16_t size = 0; size < 20; ++size) {
    play(chain, tx_packet(size, {{1, 0, size}}));
    EXPECT_EQ(chain.drop(), size < 14 ? tx_drop::too_short : tx_drop::none) << size;
    EXPECT_EQ(chain.error(), protocol_error::none);
  }
}

// Case 76, XSA-423: where the header is split is of no interest here.
TEST(TxChain, TakesAHeaderSplitAnywhere) {
  tx_chain chain;
  std::vector<tx_part> parts(19, {5, 7, 1});
  parts.back().size = 60;
  play(chain, whole_packet(parts));
  EXPECT_EQ(chain.drop(), tx_drop::none);
  EXPECT_EQ(chain.pieces().size(), 19U);
  EXPECT_EQ(bytes_of(chain.pieces()), 78U);
}

// XSA-448: parts without bytes are legal, and their pages are left alone.
TEST(TxChain, LeavesEmptyPartsOut) {
  for (unsigned empty = 0; empty < 1U << 5U; ++empty) {
    std::vector<tx_part> parts;
    std::size_t full = 0;
    for (std::uint32_t i = 0; i < 5; ++i) {
      const bool is_empty = (empty >> i & 1U) != 0;
      parts.push_back({i, 4096, 0});
      if (!is_empty) {
        parts.back() = {i, 0, 500};
        ++full;
      }
    }
    tx_chain chain;
    play(chain, whole_packet(parts));
    ASSERT_EQ(chain.error(), protocol_error::none);
    ASSERT_EQ(chain.drop(), full == 0 ? tx_drop::too_short : tx_drop::none);
    ASSERT_EQ(chain.slots(), 5U);
    ASSERT_EQ(chain.pieces().size(), full);
    for (const grant::piece& p : chain.pieces()) {
      EXPECT_EQ(empty >> p.reference & 1U, 0U);
    }
  }
}

// Case 73.
TEST(TxChain, DropsASuperFrameThatNobodyCouldCut) {
  for (unsigned type = 0; type <= 0xff; ++type) {
    for (const unsigned size : {0U, 1U, 1448U, 4096U, 4097U, 65535U}) {
      tx_chain chain;
      const auto slots = whole_packet(
          {{1, 0, 4096}},
          {netif_extra::of_gso(static_cast<std::uint8_t>(type), static_cast<std::uint16_t>(size))});
      EXPECT_EQ(play(chain, slots), 2U);
      ASSERT_EQ(chain.error(), protocol_error::none);
      const bool good = (type == 1 || type == 2) && size != 0 && size <= 4096;
      ASSERT_EQ(chain.drop(), good ? tx_drop::none : tx_drop::bad_gso) << type << " " << size;
      ASSERT_EQ(chain.slots(), 2U);
      ASSERT_TRUE(chain.is_extra(1));
      if (good) {
        ASSERT_EQ(static_cast<unsigned>(chain.info().gso), type);
        ASSERT_EQ(chain.info().gso_size, size);
      } else {
        ASSERT_EQ(chain.info().gso, net::gso::none);
      }
    }
  }
}

TEST(TxChain, CallsExtraInfoOfNoTypeABreachOfProtocol) {
  for (unsigned type = 0; type <= 0xff; ++type) {
    tx_chain chain;
    netif_extra extra = netif_extra::of_gso(netif::gso_type::tcpv4, 1000);
    extra.type = static_cast<std::uint8_t>(type);
    play(chain, whole_packet({{1, 0, 4000}, {2, 0, 90}}, {extra}));
    EXPECT_EQ(chain.error() == protocol_error::packet_bad_extra, type == 0 || type > 4) << type;
  }
}

// Case 74: several extra infos, and a chain of them that does not end.
TEST(TxChain, TakesSeveralExtraInfosAndNotAnyNumberOfThem) {
  tx_chain chain;
  const auto gso = netif_extra::of_gso(netif::gso_type::tcpv6, 1000);
  const auto hash =
      netif_extra::of_hash(netif::hash_algorithm::toeplitz, netif::hash_type::ipv6_tcp, 0x89abcdef);
  EXPECT_EQ(play(chain, whole_packet({{1, 0, 4000}, {2, 0, 90}, {3, 0, 9}}, {gso, hash})), 5U);
  EXPECT_EQ(chain.drop(), tx_drop::none);
  EXPECT_EQ(chain.info().gso, net::gso::tcpv6);
  EXPECT_EQ(chain.info().hash.value, 0x89abcdefU);
  EXPECT_EQ(chain.info().hash.type, netif::hash_type::ipv6_tcp);
  EXPECT_EQ(chain.pieces().size(), 3U);
  for (std::size_t count = 1; count <= 20; ++count) {
    const auto slots = whole_packet({{1, 0, 4000}}, std::vector<netif_extra>(count, hash));
    const std::size_t taken = play(chain, slots);
    EXPECT_EQ(chain.error(), count <= 8 ? protocol_error::none : protocol_error::packet_bad_extra);
    EXPECT_EQ(taken, count <= 8 ? count + 1 : 10U);
  }
  auto endless = whole_packet({{1, 0, 4000}}, {hash, hash, hash});
  endless.pop_back();
  EXPECT_EQ(play(chain, endless), 4U) << "it wants the one that was announced";
  EXPECT_TRUE(chain.wants_more());
  EXPECT_TRUE(chain.wants_extra());
}

TEST(TxChain, TakesNoHashOfAKindThatIsNotKnown) {
  tx_chain chain;
  for (unsigned algorithm = 0; algorithm < 4; ++algorithm) {
    for (unsigned type = 0; type < 8; ++type) {
      play(chain,
           whole_packet({{1, 0, 100}}, {netif_extra::of_hash(static_cast<std::uint8_t>(algorithm),
                                                             static_cast<std::uint8_t>(type), 5)}));
      EXPECT_EQ(chain.drop(), tx_drop::none);
      EXPECT_EQ(chain.info().hash.algorithm, algorithm == 1 && type < 4 ? 1 : 0);
    }
  }
}

TEST(TxChain, MulticastRequestsAreNoPackets) {
  tx_chain chain;
  const std::array<std::uint8_t, 6> group{0x01, 0, 0x5e, 1, 2, 3};
  for (const bool add : {true, false}) {
    play(chain, tx_packet(0, {{1, 0, 0}}, {netif_extra::of_multicast(add, group)}));
    ASSERT_TRUE(chain.multicast().has_value());
    EXPECT_EQ(chain.multicast()->add, add);
    EXPECT_EQ(chain.multicast()->address, group);
    EXPECT_EQ(chain.drop(), tx_drop::none);
    EXPECT_TRUE(chain.pieces().empty());
    EXPECT_EQ(chain.slots(), 2U);
  }
}

TEST(TxChain, ReadsTheChecksumFlagsOfTheFirstRequestOnly) {
  tx_chain chain;
  for (std::uint16_t flags = 0; flags < 4; ++flags) {
    auto slots = whole_packet({{1, 0, 100}, {2, 0, 100}}, {}, flags);
    play(chain, slots);
    EXPECT_EQ(chain.info().checksum, (flags & 1U) != 0   ? net::checksum::blank
                                     : (flags & 2U) != 0 ? net::checksum::validated
                                                         : net::checksum::none);
  }
  auto slots = whole_packet({{1, 0, 100}, {2, 0, 100}});
  auto second = slots[1].as_request();
  second.flags = static_cast<std::uint16_t>(0xffffU & ~unsigned{netif::tx_flag::more_data});
  slots[1] = netif::tx_slot(second);
  EXPECT_EQ(play(chain, slots), 2U) << "a later request's extra_info flag means nothing";
  EXPECT_EQ(chain.info().checksum, net::checksum::none);
}

// Whatever is in the slots: the chain ends, and what it lets through can be granted, copied and
// sent.
TEST(TxChain, LetsNothingThroughThatIsNotWhole) {
  std::mt19937 random(1);
  const auto word = [&] { return static_cast<std::uint16_t>(random()); };
  for (int round = 0; round < 200'000; ++round) {
    tx_chain chain;
    chain.begin();
    std::size_t slots = 0;
    bool more = true;
    while (more) {
      ASSERT_LE(++slots, net::most_packet_slots + 1);
      const bool small = random() % 8 != 0;
      const netif::tx_request r{
          .gref = static_cast<std::uint32_t>(random() % 4),
          .offset = untrusted(static_cast<std::uint16_t>(small ? random() % 100 : word())),
          .flags = static_cast<std::uint16_t>(random() % 16),
          .id = word(),
          .size = untrusted(static_cast<std::uint16_t>(small ? random() % 2000 : word()))};
      netif::tx_slot slot(r);
      if (chain.wants_extra() && random() % 2 != 0) {
        netif_extra e = netif_extra::of_gso(static_cast<std::uint8_t>(random() % 4), word());
        e.type = static_cast<std::uint8_t>(random() % 6);
        e.flags = static_cast<std::uint8_t>(random() % 2);
        slot = netif::tx_slot(e);
      }
      more = chain.add(slot);
    }
    if (chain.error() != protocol_error::none) {
      continue;
    }
    ASSERT_EQ(chain.slots(), slots);
    if (chain.drop() != tx_drop::none || chain.multicast()) {
      ASSERT_TRUE(chain.pieces().empty());
      continue;
    }
    ASSERT_EQ(bytes_of(chain.pieces()), chain.bytes());
    ASSERT_GE(chain.bytes(), net::min_frame_bytes);
    ASSERT_LE(chain.bytes(), net::max_frame_bytes);
    ASSERT_LE(chain.pieces().size(), net::max_data_slots);
    for (const grant::piece& p : chain.pieces()) {
      ASSERT_GT(p.length, 0);
      ASSERT_LE(p.offset + p.length, 4096);
    }
  }
}

}  // namespace
