// SPDX-License-Identifier: MIT
#include "pvring/net/queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "net_fixture.hpp"

namespace pvring::test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

template <class Strategy>
class NetQueue : public ::testing::Test {};
using strategies = ::testing::Types<grant::batched_copy, grant::map_each, grant::mapped_first<>,
                                    grant::mapped_first<grant::map_each>>;
TYPED_TEST_SUITE(NetQueue, strategies);

TYPED_TEST(NetQueue, brings_what_the_guest_transmits_to_the_uplink) {
  net_rig<TypeParam> rig;
  for (const std::size_t length : {14U, 60U, 128U, 1514U, 4096U, 9000U, 65'000U, 65'535U}) {
    const auto bytes = frame_of(length);
    ASSERT_TRUE(rig.front.send(bytes));
    const auto sent = rig.sent();
    ASSERT_THAT(sent, SizeIs(1)) << length;
    EXPECT_EQ(sent[0].bytes, bytes) << length;
    EXPECT_EQ(rig.front.last_status(), 0);
  }
}

TYPED_TEST(NetQueue, takes_a_packet_however_it_is_cut) {
  net_rig<TypeParam> rig;
  const auto expect_whole = [&](std::vector<std::uint16_t> cut) {
    std::size_t length = 0;
    for (const std::uint16_t part : cut) {
      length += part;
    }
    const auto bytes = frame_of(length);
    ASSERT_TRUE(rig.front.send(bytes, {}, cut));
    const auto sent = rig.sent();
    ASSERT_THAT(sent, SizeIs(1));
    EXPECT_EQ(sent[0].bytes, bytes);
  };
  expect_whole({14, 20, 20, 1000});
  expect_whole({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 43});
  expect_whole({60, 0, 0, 100});
  expect_whole({0, 60});
  expect_whole({4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096,
                4096, 4095});
  expect_whole(std::vector<std::uint16_t>(19, 100));
}

TYPED_TEST(NetQueue, hands_on_what_is_known_of_a_packet) {
  net_rig<TypeParam> rig;
  net::packet_info info{.checksum = net::checksum::blank,
                        .gso = net::gso::tcpv6,
                        .gso_size = 1448,
                        .hash = {1, 3, 0xdeadbeef}};
  ASSERT_TRUE(rig.front.send(frame_of(20'000), info));
  const auto sent = rig.sent();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].info.checksum, net::checksum::blank);
  EXPECT_EQ(sent[0].info.gso, net::gso::tcpv6);
  EXPECT_EQ(sent[0].info.gso_size, 1448);
  EXPECT_EQ(sent[0].info.hash.value, 0xdeadbeefU);

  rig.front.post();
  rig.uplink.lane(0).put({frame_of(30'000), info});
  const auto got = rig.received();
  ASSERT_THAT(got, SizeIs(1));
  EXPECT_EQ(got[0].bytes, frame_of(30'000));
  EXPECT_EQ(got[0].info.checksum, net::checksum::blank);
  EXPECT_EQ(got[0].info.gso, net::gso::tcpv6);
  EXPECT_EQ(got[0].info.gso_size, 1448);
  EXPECT_EQ(got[0].info.hash.value, 0xdeadbeefU);
  EXPECT_EQ(got[0].slots, 10U);  // 8 pages and two extra infos
}

TYPED_TEST(NetQueue, brings_what_the_uplink_has_to_the_guest_in_order_whichever_way) {
  for (const net::delivery when :
       {net::delivery::at_once, net::delivery::deferred, net::delivery::automatic}) {
    net_rig_options wanted;
    wanted.receive.delivery.when = when;
    net_rig<TypeParam> rig(wanted);
    std::mt19937 random(7);
    std::vector<std::vector<std::byte>> expected;
    std::vector<std::vector<std::byte>> got;
    for (int round = 0; round < 50; ++round) {
      for (auto i = random() % 12; i != 0; --i) {
        const std::size_t length = 14 + (random() % 4 == 0 ? random() % 65'000 : random() % 1500);
        expected.push_back(frame_of(length, static_cast<std::uint8_t>(expected.size())));
        rig.uplink.lane(0).put({expected.back(), {}});
      }
      rig.front.post(random() % 257);
      for (auto& packet : rig.received()) {
        got.push_back(std::move(packet.bytes));
      }
    }
    while (rig.front.post() != 0) {
      for (auto& packet : rig.received()) {
        got.push_back(std::move(packet.bytes));
      }
    }
    EXPECT_EQ(got.size(), expected.size());
    EXPECT_TRUE(got == expected);
  }
}

TYPED_TEST(NetQueue, works_behind_one_event_channel_and_at_indices_that_wrap) {
  net_rig_options wanted;
  wanted.front = {.split_channels = false, .tx_start = 0xfffffff0U, .rx_start = 0xffffff80U};
  net_rig<TypeParam> rig(wanted);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(rig.front.send(frame_of(1000)));
    ASSERT_THAT(rig.sent(), SizeIs(1));
    rig.front.post();
    rig.uplink.lane(0).put({frame_of(5000), {}, 0});
    ASSERT_THAT(rig.received(), SizeIs(1));
  }
  EXPECT_EQ(rig.queue->tx_position(), 0xfffffff0U + 100U);
}

TYPED_TEST(NetQueue, brings_in_and_takes_out_a_whole_pass_together) {
  net_rig<TypeParam> rig;
  if (!std::same_as<TypeParam, grant::batched_copy>) {
    return;  // the others have a call per packet
  }
  for (int i = 0; i < 32; ++i) {
    ASSERT_TRUE(rig.front.send(frame_of(64)));
  }
  rig.front.post();
  for (int i = 0; i < 32; ++i) {
    rig.uplink.lane(0).put({frame_of(64), {}, 0});
  }
  rig.front.publish();
  (void)rig.queue->service(256);
  EXPECT_EQ(rig.queue->grant_counters().calls.get(), 1U);
  EXPECT_EQ(rig.queue->mover_counters().calls.get(), 1U);
  EXPECT_EQ(rig.queue->mover_counters().operations.get(), 32U);
  EXPECT_EQ(rig.queue->transmitted().publications.get(), 1U);
  EXPECT_EQ(rig.queue->received().publications.get(), 1U);
  EXPECT_THAT(rig.received(), SizeIs(32));
}

TYPED_TEST(NetQueue, answers_every_slot_of_what_it_cannot_send) {
  net_rig<TypeParam> rig;
  ASSERT_TRUE(rig.front.send(frame_of(100)));
  ASSERT_TRUE(rig.front.send(frame_of(13)));  // too short
  ASSERT_TRUE(rig.front.send(frame_of(2000), {}, std::vector<std::uint16_t>(20, 100)));  // slots
  ASSERT_TRUE(rig.front.send(frame_of(100)));
  EXPECT_THAT(rig.sent(), SizeIs(2));
  EXPECT_EQ(rig.queue->transmitted().refused.get(), 2U);
  EXPECT_EQ(rig.front.counters().refused.get(), 2U);
  EXPECT_EQ(rig.front.tx_outstanding(), 0U);
}

TYPED_TEST(NetQueue, says_that_the_uplink_had_no_room) {
  net_rig<TypeParam> rig;
  rig.uplink.lane(0).fail(-EAGAIN, 0);
  ASSERT_TRUE(rig.front.send(frame_of(100)));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.front.last_status(), -2);
  EXPECT_EQ(rig.queue->transmitted().no_room.get(), 1U);
  rig.uplink.lane(0).fail(-EIO, 0);
  ASSERT_TRUE(rig.front.send(frame_of(100)));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.queue->transmitted().uplink_failed.get(), 1U);
}

TYPED_TEST(NetQueue, demands_of_the_guest_only_what_the_first_packet_needs) {
  net_rig<TypeParam> rig;
  rig.front.post(2);
  rig.uplink.lane(0).put({frame_of(12'000), {}, 0});  // three slots
  rig.uplink.lane(0).put({frame_of(100), {}, 0});
  EXPECT_THAT(rig.received(), IsEmpty());
  EXPECT_EQ(rig.front.rx_outstanding(), 2U);
  rig.front.post(3);
  EXPECT_THAT(rig.received(), SizeIs(1));
  rig.front.post(1);
  EXPECT_THAT(rig.received(), SizeIs(1));
}

TYPED_TEST(NetQueue, stands_an_hour_without_posted_pages_within_bounds) {
  net_rig_options wanted;
  wanted.receive.delivery.when = net::delivery::deferred;
  net_rig<TypeParam> rig(wanted);
  constexpr std::size_t bound = 512 * 1024 + 132 * 1024;
  EXPECT_LE(rig.queue->store_bytes(), bound);
  for (int second = 0; second < 3600; ++second) {
    net_clock::milliseconds += 1000;
    for (int i = 0; i < 3 && rig.uplink.lane(0).waiting() < 1000; ++i) {
      rig.uplink.lane(0).put({frame_of(1500), {}, 0});
    }
    rig.run();
  }
  EXPECT_TRUE(rig.queue->received().stalls.get() == 1);
  EXPECT_EQ(rig.device.stalled_queues.load(), 1U);
  EXPECT_GT(rig.queue->received().expired.get(), 10U);
  EXPECT_THAT(rig.told, SizeIs(1));
  // It comes back, and so does what is sent from then on.
  rig.front.post();
  (void)rig.received();
  EXPECT_EQ(rig.device.stalled_queues.load(), 0U);
  rig.uplink.lane(0).put({frame_of(700), {}, 0});
  EXPECT_THAT(rig.received(), SizeIs(1));
}

TYPED_TEST(NetQueue, of_a_flood_keeps_what_there_is_room_for_and_leaves_the_rest) {
  net_rig_options wanted;
  wanted.receive.delivery.when = net::delivery::deferred;
  wanted.receive.delivery.most_bytes = 64 * 1024;
  net_rig<TypeParam> rig(wanted);
  for (int i = 0; i < 2000; ++i) {
    rig.uplink.lane(0).put({frame_of(1500, static_cast<std::uint8_t>(i)), {}, 0});
  }
  rig.run();
  EXPECT_GT(rig.uplink.lane(0).waiting(), 1700U);
  std::size_t got = 0;
  for (int i = 0; i < 1000 && got < 2000; ++i) {
    rig.front.post();
    for (const auto& packet : rig.received()) {
      ASSERT_TRUE(packet.bytes == frame_of(1500, static_cast<std::uint8_t>(got)));
      ++got;
    }
  }
  EXPECT_EQ(got, 2000U);
}

TYPED_TEST(NetQueue, gives_only_joined_groups_to_a_guest_that_said_so) {
  net_rig_options wanted;
  wanted.receive.reads_multicast = true;
  net_rig<TypeParam> rig(wanted);
  const std::array<std::uint8_t, 6> group{0x01, 0x00, 0x5e, 0x00, 0x00, 0x01};
  auto to_group = frame_of(100);
  for (std::size_t i = 0; i < group.size(); ++i) {
    to_group[i] = std::byte{group[i]};
  }
  auto to_all = frame_of(100);
  std::fill_n(to_all.begin(), 6, std::byte{0xff});
  const auto put_all = [&] {
    for (const auto& frame : {frame_of(100), to_group, to_all}) {
      rig.uplink.lane(0).put({frame, {}});
    }
    rig.front.post();
    return rig.received().size();
  };
  EXPECT_EQ(put_all(), 2U);
  ASSERT_TRUE(rig.front.join(group));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.front.last_status(), 0);
  EXPECT_EQ(put_all(), 3U);
  ASSERT_TRUE(rig.front.join(group, false));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(put_all(), 2U);
  EXPECT_EQ(rig.queue->received().filtered.get(), 2U);
}

TYPED_TEST(NetQueue, holds_a_guest_to_its_rate_and_loses_nothing_of_it) {
  net_rig<TypeParam> rig;
  rig.device.credit.set({.bytes = 100'000, .microseconds = 100'000});  // 1 MB/s
  net_clock::milliseconds = 1'000'000;
  std::size_t got = 0;
  std::size_t put = 0;
  const std::uint64_t start = net_clock::milliseconds;
  for (int step = 0; step < 2000; ++step) {
    while (put - got < 16 && rig.front.send(frame_of(1000))) {
      ++put;
    }
    got += rig.sent().size();
    const auto at = rig.queue->deadline();
    if (got < put) {
      ASSERT_TRUE(at.has_value());
    }
    net_clock::milliseconds += 1;
  }
  const double bytes = static_cast<double>(got) * 1000;
  const double allowed = static_cast<double>(net_clock::milliseconds - start) * 1000 + 131'072;
  EXPECT_LE(bytes, allowed);
  EXPECT_GE(bytes, allowed * 0.95);
  EXPECT_GT(rig.queue->transmitted().limited.get(), 0U);
}

TYPED_TEST(NetQueue, asks_a_frontend_that_does_not_notify) {
  net_rig_options wanted;
  wanted.receive.notifies = false;
  net_rig<TypeParam> rig(wanted);
  rig.uplink.lane(0).put({frame_of(100), {}, 0});
  rig.run();
  const auto at = rig.queue->deadline();
  ASSERT_TRUE(at.has_value());
  EXPECT_LE(*at - net_clock::now(), std::chrono::milliseconds(5));
  net_clock::milliseconds += 5;
  rig.front.post();
  EXPECT_THAT(rig.received(), SizeIs(1));
  rig.front.poll();
  // What waits longer is old.
  while (rig.front.rx_outstanding() != 0) {
    rig.uplink.lane(0).put({frame_of(100), {}, 0});
    (void)rig.received();
  }
  rig.uplink.lane(0).put({frame_of(100), {}, 0});
  rig.run();
  net_clock::milliseconds += 100;
  rig.run();
  EXPECT_EQ(rig.queue->received().expired.get(), 1U);
}

TYPED_TEST(NetQueue, survives_an_uplink_that_goes_away_without_running_in_circles) {
  net_rig<TypeParam> rig;
  rig.front.post();
  rig.uplink.lane(0).put({frame_of(100), {}, 0});
  rig.uplink.lane(0).fail(0, -EIO);
  rig.front.publish();
  rig.run();
  EXPECT_EQ(rig.queue->received().uplink_failed.get(), 1U);
  rig.run();
  EXPECT_EQ(rig.queue->received().uplink_failed.get(), 1U);
  net_clock::milliseconds += 2000;
  rig.run();
  EXPECT_EQ(rig.queue->received().uplink_failed.get(), 2U);
  rig.uplink.lane(0).fail(0, 0);
  net_clock::milliseconds += 2000;
  EXPECT_THAT(rig.received(), SizeIs(1));
}

TYPED_TEST(NetQueue, throws_away_a_frame_that_the_frontend_does_not_take) {
  net_rig_options wanted;
  wanted.receive.receives = {};  // neither super-frames nor more than a page
  net_rig<TypeParam> rig(wanted);
  rig.front.post();
  rig.uplink.lane(0).put({frame_of(5000), {}, 0});
  rig.uplink.lane(0).put({frame_of(3000), {.gso = net::gso::tcpv4, .gso_size = 1000}});
  rig.uplink.lane(0).put({frame_of(4096), {}, 0});
  EXPECT_THAT(rig.received(), SizeIs(1));
  EXPECT_EQ(rig.queue->received().undeliverable.get(), 2U);
}

}  // namespace
}  // namespace pvring::test
