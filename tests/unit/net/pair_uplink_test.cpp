// SPDX-License-Identifier: MIT
#include "pvring/net/pair_uplink.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace pvring::net {
namespace {

iovec piece(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

class PairUplink : public ::testing::Test {
 protected:
  PairUplink() : ends_(pair_uplink::make(1, 64 * 1024)) {
    ends_.first.set_offloads({true, true, true, true, true});
    ends_.second.set_offloads({true, true, true, true, true});
  }
  std::pair<pair_uplink, pair_uplink> ends_;
  std::vector<std::byte> into_{max_frame_bytes};
};

TEST_F(PairUplink, hands_over_pieces_and_what_is_known_of_them) {
  auto a = ends_.first.open(0);
  auto b = ends_.second.open(0);
  std::vector<std::byte> head(100, std::byte{1});
  std::vector<std::byte> rest(50'000, std::byte{2});
  const std::array<iovec, 2> parts{piece(head), piece(rest)};
  ASSERT_EQ(a.transmit(parts, {.checksum = checksum::blank, .gso = gso::tcpv6, .gso_size = 9}), 0);
  packet_info info;
  ASSERT_EQ(b.receive(into_, info), 50'100);
  EXPECT_EQ(into_[99], std::byte{1});
  EXPECT_EQ(into_[100], std::byte{2});
  EXPECT_EQ(info.gso, gso::tcpv6);
  EXPECT_EQ(info.gso_size, 9);
  EXPECT_EQ(info.checksum, checksum::blank);
  EXPECT_EQ(b.receive(into_, info), 0);
}

TEST_F(PairUplink, has_a_limit_and_goes_on_behind_it) {
  auto a = ends_.first.open(0);
  auto b = ends_.second.open(0);
  std::vector<std::byte> frame(1000, std::byte{3});
  const std::array<iovec, 1> parts{piece(frame)};
  int taken = 0;
  while (a.transmit(parts, {}) == 0) {
    ASSERT_LT(++taken, 200);
  }
  EXPECT_EQ(a.transmit(parts, {}), -EAGAIN);
  packet_info info;
  for (int i = 0; i < taken; ++i) {
    ASSERT_EQ(b.receive(into_, info), 1000);
  }
  EXPECT_EQ(b.receive(into_, info), 0);
  EXPECT_EQ(a.transmit(parts, {}), 0);
}

TEST_F(PairUplink, takes_nothing_for_a_guest_that_is_not_there) {
  auto a = ends_.first.open(0);
  std::vector<std::byte> frame(100);
  const std::array<iovec, 1> parts{piece(frame)};
  EXPECT_EQ(a.transmit(parts, {}), -ENOTCONN);
  {
    auto b = ends_.second.open(0);
    EXPECT_EQ(a.transmit(parts, {}), 0);
  }
  EXPECT_EQ(a.transmit(parts, {}), -ENOTCONN);
}

TEST_F(PairUplink, fills_checksums_in_for_a_guest_that_wants_them_and_keeps_super_frames_from_it) {
  ends_.second.set_offloads({false, false, false, false, true});
  auto a = ends_.first.open(0);
  auto b = ends_.second.open(0);
  // An IPv4 packet with an empty UDP datagram from 10.0.0.1 to 10.0.0.2.
  std::vector<std::byte> frame;
  for (const unsigned byte : {2U,    2U, 2U,  2U,  2U, 2U, 4U, 4U, 4U, 4U,  4U, 4U, 8U,  0U,
                              0x45U, 0U, 0U,  28U, 0U, 0U, 0U, 0U, 9U, 17U, 0U, 0U, 10U, 0U,
                              0U,    1U, 10U, 0U,  0U, 2U, 0U, 1U, 0U, 2U,  0U, 8U, 0U,  0U}) {
    frame.push_back(static_cast<std::byte>(byte));
  }
  const std::array<iovec, 1> parts{piece(frame)};
  ASSERT_EQ(a.transmit(parts, {.checksum = checksum::blank}), 0);
  packet_info info;
  ASSERT_EQ(b.receive(into_, info), static_cast<std::ptrdiff_t>(frame.size()));
  EXPECT_EQ(info.checksum, checksum::validated);
  // 0a00+0001+0a00+0002+0011+0008+0001+0002+0008 = 1427
  EXPECT_EQ(into_[40], std::byte{0xff - 0x14});
  EXPECT_EQ(into_[41], std::byte{0xff - 0x27});

  ASSERT_EQ(a.transmit(parts, {.gso = gso::tcpv4, .gso_size = 5}), 0);
  EXPECT_EQ(b.receive(into_, info), -EMSGSIZE);
  EXPECT_EQ(b.receive(into_, info), 0);
}

TEST_F(PairUplink, names_a_queue_that_it_has_not) {
  EXPECT_EQ(ends_.first.queues(), 1U);
  EXPECT_THROW((void)ends_.first.open(1), std::system_error);
}

// A sleeper that armed and found nothing is woken, whenever the frame comes: a lost wake-up would
// end this in the poll's time-out.
TEST_F(PairUplink, wakes_whoever_armed_and_sleeps) {
  constexpr int rounds = 20'000;
  auto a = ends_.first.open(0);
  auto b = ends_.second.open(0);
  std::thread answering([&] {
    std::vector<std::byte> into(max_frame_bytes);
    packet_info info;
    for (int got = 0; got < rounds;) {
      const std::ptrdiff_t length = b.receive(into, info);
      if (length > 0) {
        ++got;
        const std::array<iovec, 1> back{iovec{into.data(), static_cast<std::size_t>(length)}};
        while (b.transmit(back, {}) == -EAGAIN) {
        }
      } else if (!b.arm()) {
        pollfd ready{.fd = b.fd(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(::poll(&ready, 1, 20'000), 1) << "after " << got;
      }
    }
  });
  packet_info info;
  std::vector<std::byte> frame(64);
  for (int i = 0; i < rounds; ++i) {
    std::memcpy(frame.data(), &i, sizeof i);
    const std::array<iovec, 1> parts{piece(frame)};
    ASSERT_EQ(a.transmit(parts, {}), 0);
    std::ptrdiff_t length = 0;
    while ((length = a.receive(into_, info)) == 0) {
      if (!a.arm()) {
        pollfd ready{.fd = a.fd(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(::poll(&ready, 1, 20'000), 1) << "after " << i;
      }
    }
    ASSERT_EQ(length, 64);
    ASSERT_EQ(std::memcmp(into_.data(), &i, sizeof i), 0);
  }
  answering.join();
}

}  // namespace
}  // namespace pvring::net
