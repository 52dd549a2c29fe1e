// SPDX-License-Identifier: MIT
#include "pvring/net/frame.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pvring::net {
namespace {

using bytes = std::vector<std::byte>;

void put(bytes& to, std::initializer_list<unsigned> values) {
  for (const unsigned value : values) {
    to.push_back(static_cast<std::byte>(value));
  }
}
void put16(bytes& to, std::size_t value) {
  put(to, {static_cast<unsigned>(value >> 8U & 0xffU), static_cast<unsigned>(value & 0xffU)});
}

struct shape {
  int tags = 0;
  bool ipv6 = false;
  unsigned protocol = 6;
  std::size_t options = 0;     // bytes of IPv4 options
  std::size_t extensions = 0;  // IPv6 extension headers of 8 bytes
  std::size_t payload = 11;
  std::size_t padding = 0;
};

bytes build(const shape& s) {
  bytes out(12, std::byte{2});
  for (int i = 0; i < s.tags; ++i) {
    put(out, {i == 0 && s.tags == 2 ? 0x88U : 0x81U, i == 0 && s.tags == 2 ? 0xa8U : 0U, 0, 5});
  }
  const std::size_t transport = (s.protocol == 6 ? 20 : 8) + s.payload;
  if (s.ipv6) {
    put(out, {0x86, 0xdd, 0x60, 0, 0, 0});
    put16(out, s.extensions * 8 + transport);
    put(out, {s.extensions != 0 ? 0U : s.protocol, 64});
    for (unsigned i = 0; i < 32; ++i) {
      put(out, {i});
    }
    for (std::size_t i = 0; i < s.extensions; ++i) {
      put(out, {i + 1 == s.extensions ? s.protocol : 60U, 0, 1, 4, 0, 0, 0, 0});
    }
  } else {
    put(out, {0x08, 0x00, 0x45U + static_cast<unsigned>(s.options / 4), 0});
    put16(out, 20 + s.options + transport);
    put(out, {0, 1, 0x40, 0, 64, s.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2});
    out.resize(out.size() + s.options, std::byte{1});
  }
  put(out, {0x12, 0x34, 0x00, 0x50});
  if (s.protocol == 6) {
    put(out, {0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0xee, 0xee, 0, 0});
  } else {
    put16(out, transport);
    put(out, {0xee, 0xee});
  }
  for (std::size_t i = 0; i < s.payload; ++i) {
    put(out, {static_cast<unsigned>(i * 7 & 0xffU)});
  }
  out.resize(out.size() + s.padding);
  return out;
}

// A receiver's view: the sum over pseudo header and segment, with the checksum in it, is all ones.
bool adds_up(const bytes& frame, const transport_header& t) {
  const std::size_t addresses = t.network + (t.ipv6 ? 8U : 12U);
  const std::size_t length = std::size_t{t.end} - t.start;
  std::uint64_t sum = t.protocol + length;
  const auto add = [&](std::size_t from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      sum += std::to_integer<std::uint64_t>(frame[from + i]) << (i % 2 == 0 ? 8U : 0U);
    }
  };
  add(addresses, t.ipv6 ? 32 : 8);
  add(t.start, length);
  while (sum >> 16U != 0) {
    sum = (sum & 0xffffU) + (sum >> 16U);
  }
  return sum == 0xffff;
}

TEST(Frame, finds_and_fills_the_checksum_behind_every_kind_of_header) {
  for (const int tags : {0, 1, 2}) {
    for (const bool ipv6 : {false, true}) {
      for (const unsigned protocol : {6U, 17U}) {
        for (const std::size_t more : {0U, 1U, 3U}) {
          for (const std::size_t payload : {0U, 11U, 1000U}) {
            const shape s{.tags = tags,
                          .ipv6 = ipv6,
                          .protocol = protocol,
                          .options = ipv6 ? 0 : more * 4,
                          .extensions = ipv6 ? more : 0,
                          .payload = payload,
                          .padding = payload == 0 ? 9U : 0U};
            bytes frame = build(s);
            const auto where = find_transport(frame, frame.size());
            ASSERT_TRUE(where);
            EXPECT_EQ(where->protocol, protocol);
            EXPECT_EQ(where->ipv6, ipv6);
            EXPECT_EQ(where->end, frame.size() - s.padding);
            EXPECT_EQ(where->payload, frame.size() - s.padding - payload);
            EXPECT_EQ(frame[where->checksum], std::byte{0xee});
            ASSERT_TRUE(fill_checksum(frame));
            EXPECT_TRUE(adds_up(frame, *where));
          }
        }
      }
    }
  }
}

// By hand: UDP from 10.0.0.1:4660 to 10.0.0.2:80 with the bytes 0, 7, 14.
TEST(Frame, fills_in_a_checksum_that_was_computed_otherwise) {
  bytes frame = build({.protocol = 17, .payload = 3});
  ASSERT_TRUE(fill_checksum(frame));
  const auto where = find_transport(frame, frame.size());
  // 0a00+0001+0a00+0002+0011+000b + 1234+0050+000b+0000 + 0007+0e00 = 34b5
  EXPECT_EQ(frame[where->checksum], std::byte{0xff - 0x34});
  EXPECT_EQ(frame[where->checksum + 1U], std::byte{0xff - 0xb5});
}

TEST(Frame, of_a_frame_that_is_cut_off_anywhere_says_nothing_or_what_lies_within) {
  for (const shape& s : {shape{}, shape{.tags = 2, .ipv6 = true, .extensions = 2},
                         shape{.protocol = 17, .options = 40}}) {
    const bytes whole = build(s);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_FALSE(find_transport(part, part.size())) << length;
      // The head of a longer frame, as an uplink sees it.
      if (const auto where = find_transport(part, whole.size())) {
        EXPECT_LE(where->checksum + 2U, part.size());
      }
    }
  }
}

TEST(Frame, has_no_checksum_in_fragments_and_other_protocols) {
  bytes fragment = build({});
  fragment[14 + 6] = std::byte{0x20};
  EXPECT_FALSE(find_transport(fragment, fragment.size()));
  bytes icmp = build({});
  icmp[14 + 9] = std::byte{1};
  EXPECT_FALSE(find_transport(icmp, icmp.size()));
  bytes arp = build({});
  arp[13] = std::byte{6};
  EXPECT_FALSE(find_transport(arp, arp.size()));
}

TEST(Frame, takes_any_bytes) {
  std::mt19937 random(11);
  for (int i = 0; i < 200'000; ++i) {
    bytes frame = build({.tags = static_cast<int>(random() % 3),
                         .ipv6 = random() % 2 == 0,
                         .protocol = random() % 2 == 0 ? 6U : 17U,
                         .extensions = random() % 4});
    frame.resize(random() % (frame.size() + 1));
    for (auto n = random() % 6; n != 0 && !frame.empty(); --n) {
      frame[random() % frame.size()] = static_cast<std::byte>(random() & 0xffU);
    }
    (void)fill_checksum(frame);
  }
}

}  // namespace
}  // namespace pvring::net
