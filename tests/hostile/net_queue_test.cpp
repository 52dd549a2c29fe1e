// SPDX-License-Identifier: MIT
// What guests have done to network backends, and what must hold. The frontend's rings are written
// by hand where an honest one would not write so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "pvring/testing/scripted_net_queue.hpp"
#include "unit/net/net_fixture.hpp"

namespace pvring::test {
namespace {

namespace netif = protocol::netif;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class raw_ring {
 public:
  raw_ring(std::span<std::byte> page, std::size_t slot_bytes) : page_(page), slot_(slot_bytes) {}
  [[nodiscard]] std::uint32_t produced() const { return load(0); }
  void produce(std::uint32_t index) { store(0, index); }
  [[nodiscard]] std::uint32_t answered() const { return load(8); }
  template <class Request>
  void write(std::uint32_t index, const Request& request) {
    std::memcpy(page_.data() + 64 + index % 256 * slot_, &request, sizeof request);
  }
  template <class Response>
  [[nodiscard]] Response read(std::uint32_t index) const {
    Response out;
    std::memcpy(&out, page_.data() + 64 + index % 256 * slot_, sizeof out);
    return out;
  }

 private:
  [[nodiscard]] std::uint32_t load(std::size_t at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, page_.data() + at, sizeof value);
    return value;
  }
  void store(std::size_t at, std::uint32_t value) {
    std::memcpy(page_.data() + at, &value, sizeof value);
  }
  std::span<std::byte> page_;
  std::size_t slot_;
};

template <class Strategy>
class HostileNetQueue : public ::testing::Test {
 protected:
  using rig_type = net_rig<Strategy>;

  // A page that the guest granted for reading.
  struct granted {
    std::byte* page;
    platform::grant_reference reference;
  };
  granted grant_page() {
    std::byte* const memory = rig.guest.allocate_pages();
    std::fill_n(memory, platform::page_size, std::byte{2});
    return {memory, rig.guest.grant(0, memory, platform::access::read_only)};
  }
  void put(std::vector<netif::tx_request_layout> slots) {
    std::uint32_t at = tx.produced();
    for (const auto& slot : slots) {
      tx.write(at++, slot);
    }
    tx.produce(at);
    rig.run();
  }
  void put_extra(std::uint32_t index, const netif::extra_info_layout& extra) {
    netif::tx_request_layout slot{};
    std::memcpy(&slot, &extra, sizeof extra);
    tx.write(index, slot);
  }
  // `count` slots of 100 bytes each; the first says how long they all are.
  std::vector<netif::tx_request_layout> chain(std::size_t count, std::uint16_t each = 100) {
    std::vector<netif::tx_request_layout> out;
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back({page.reference, 0,
                     static_cast<std::uint16_t>(i + 1 < count ? netif::tx_flag::more_data : 0),
                     static_cast<std::uint16_t>(i),
                     static_cast<std::uint16_t>(i == 0 ? count * each : each)});
    }
    return out;
  }
  [[nodiscard]] std::vector<int> statuses(std::uint32_t from) const {
    std::vector<int> out;
    for (std::uint32_t i = from; i != tx.answered(); ++i) {
      out.push_back(tx.template read<netif::tx_response_layout>(i).status);
    }
    return out;
  }
  void expect_end(protocol_error why) {
    EXPECT_EQ(rig.queue->broken(), why);
    EXPECT_TRUE(rig.queue->idle());
    ASSERT_THAT(rig.told, SizeIs(2));  // what is wrong, once; and that it is idle
    EXPECT_EQ(rig.told[0], why);
    EXPECT_EQ(rig.told[1], protocol_error::none);
    // Nothing more is done for this interface, whatever comes.
    const auto answered = tx.answered();
    put(chain(1));
    rig.uplink.lane(0).put({frame_of(100), {}, 0});
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(rig.queue->service(256), 0U);
    }
    EXPECT_THAT(rig.told, SizeIs(2));
    EXPECT_EQ(tx.answered(), answered);
    EXPECT_EQ(rig.queue->leases(), 0U);
  }

  void TearDown() override {
    rig.end();
    EXPECT_TRUE(rig.guest.end_grant(page.reference)) << "a page of the guest is mapped still";
  }

  rig_type rig;
  raw_ring tx{rig.front.tx_page(), sizeof(netif::tx_request_layout)};
  raw_ring rx{rig.front.rx_page(), sizeof(netif::rx_request_layout)};
  granted page = grant_page();
};
using strategies = ::testing::Types<grant::batched_copy, grant::map_each>;
TYPED_TEST_SUITE(HostileNetQueue, strategies);

TYPED_TEST(HostileNetQueue, case_63a_a_producer_beyond_the_ring_ends_the_interface) {
  this->tx.produce(257);
  this->rig.run();
  this->expect_end(protocol_error::request_producer_overrun);
}

TYPED_TEST(HostileNetQueue, case_63a_so_does_one_of_the_receive_ring) {
  this->rx.produce(0x80000000U);
  this->rig.uplink.lane(0).put({frame_of(100), {}, 0});
  this->rig.run();
  this->expect_end(protocol_error::request_producer_overrun);
}

TYPED_TEST(HostileNetQueue, case_63b_a_packet_that_goes_on_past_the_producer_ends_the_interface) {
  auto slots = this->chain(3);
  slots.pop_back();
  this->put(slots);
  this->expect_end(protocol_error::packet_unfinished);
}

TYPED_TEST(HostileNetQueue, case_63c_a_slot_past_its_page_ends_the_interface) {
  this->put({{this->page.reference, 4000, 0, 1, 200}});
  this->expect_end(protocol_error::packet_crosses_page);
}

TYPED_TEST(HostileNetQueue, case_63c_so_does_a_later_slot_of_a_packet) {
  auto slots = this->chain(2);
  slots[1].offset = 0xffff;
  this->put(slots);
  this->expect_end(protocol_error::packet_crosses_page);
}

TYPED_TEST(HostileNetQueue, case_63d_and_64_a_packet_of_more_slots_than_anybody_sends_ends_it) {
  this->put(this->chain(22));
  this->expect_end(protocol_error::packet_too_many_slots);
}

TYPED_TEST(HostileNetQueue, case_64_up_to_19_slots_are_sent_and_up_to_21_are_answered) {
  for (std::size_t count = 17; count <= 21; ++count) {
    const std::uint32_t from = this->tx.answered();
    this->put(this->chain(count));
    const bool fits = count <= 19;
    EXPECT_THAT(this->statuses(from), SizeIs(count));
    EXPECT_THAT(this->statuses(from), ::testing::Each(fits ? 0 : -1)) << count;
    EXPECT_EQ(this->rig.uplink.lane(0).take().has_value(), fits) << count;
  }
  EXPECT_EQ(this->rig.queue->broken(), protocol_error::none);
}

TYPED_TEST(HostileNetQueue, case_66_headers_over_many_slots_are_one_piece_for_the_uplink) {
  const auto expect_head = [&](std::vector<std::uint16_t> sizes) {
    std::vector<netif::tx_request_layout> slots;
    std::uint16_t sum = 0;
    for (const std::uint16_t size : sizes) {
      slots.push_back({this->page.reference, 7, netif::tx_flag::more_data, 0, size});
      sum = static_cast<std::uint16_t>(sum + size);
    }
    slots.front().size = sum;
    slots.back().flags = 0;
    this->put(slots);
    const auto frame = this->rig.uplink.lane(0).take();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->bytes.size(), sum);
    EXPECT_GE(frame->head, std::min<std::size_t>(sum, 128));
  };
  expect_head({14, 20, 20, 1000});
  std::vector<std::uint16_t> small(18, 17);
  small[0] = 1;
  expect_head(small);
  expect_head({1, 4000, 4000});
  expect_head(std::vector<std::uint16_t>(19, 1));
}

TYPED_TEST(HostileNetQueue, case_69_without_posted_pages_memory_stays_and_the_oldest_come_first) {
  net_rig_options wanted;
  wanted.receive.delivery.when = net::delivery::deferred;
  net_rig<TypeParam> rig2(wanted);
  const auto numbered = [](std::uint32_t number) {
    auto frame = frame_of(1500);
    std::memcpy(frame.data() + 14, &number, sizeof number);
    return frame;
  };
  // A million packets; what the queue leaves in the uplink, that one drops at its own limit.
  std::uint32_t put = 0;
  for (std::uint32_t i = 0; i < 1'000'000; ++i) {
    if (rig2.uplink.lane(0).waiting() < 100) {
      rig2.uplink.lane(0).put({numbered(put++), {}, 0});
    }
    if (i % 50 == 0) {
      rig2.run();
    }
  }
  EXPECT_LE(rig2.queue->store_bytes(), 700U * 1024);
  EXPECT_LE(put, 1000U);
  rig2.front.post(256);
  std::uint32_t expected = 0;
  for (const auto& packet : rig2.received()) {
    ASSERT_TRUE(packet.bytes == numbered(expected)) << expected;
    ++expected;
  }
  EXPECT_EQ(expected, 256U);
}

TYPED_TEST(HostileNetQueue, case_71_a_guest_that_keeps_a_slot_for_ever_is_stalled_all_the_same) {
  net_rig<TypeParam> rig2;
  rig2.front.post(1);
  rig2.uplink.lane(0).put({frame_of(60'000), {}, 0});
  for (int second = 0; second < 70; ++second) {
    rig2.run();
    net_clock::milliseconds += 1000;
    rig2.uplink.lane(0).put({frame_of(60'000), {}, 0});
  }
  rig2.run();
  EXPECT_EQ(rig2.device.stalled_queues.load(), 1U);
  // One that posts only four at a time gets what fits into four.
  net_rig<TypeParam> small;
  for (int i = 0; i < 100; ++i) {
    small.front.post(4);
    small.uplink.lane(0).put({frame_of(1500), {}, 0});
    EXPECT_THAT(small.received(), SizeIs(1));
  }
  EXPECT_EQ(small.device.stalled_queues.load(), 0U);
}

TYPED_TEST(HostileNetQueue, case_72_nothing_behind_a_fatal_packet_is_looked_at) {
  auto slots = this->chain(1);
  slots.push_back({this->page.reference, 4000, 0, 1, 200});
  for (int i = 0; i < 10; ++i) {
    slots.push_back(this->chain(1).front());
  }
  this->put(slots);
  EXPECT_TRUE(this->rig.uplink.lane(0).take());
  EXPECT_FALSE(this->rig.uplink.lane(0).take());
  this->expect_end(protocol_error::packet_crosses_page);
}

TYPED_TEST(HostileNetQueue,
           case_73_a_super_frame_that_cannot_be_cut_is_dropped_and_the_next_is_sent) {
  struct kind {
    std::uint16_t size;
    std::uint8_t type;
  };
  for (const kind k : {kind{0, 1}, kind{1448, 0}, kind{1448, 7}, kind{60'000, 1}}) {
    const std::uint32_t from = this->tx.answered();
    const std::uint32_t at = this->tx.produced();
    this->tx.write(
        at, netif::tx_request_layout{this->page.reference, 0, netif::tx_flag::extra_info, 5, 4000});
    netif::extra_info_layout extra{netif::extra_type::gso, 0, {}};
    const netif::gso_layout gso{k.size, k.type, 0, 0};
    std::memcpy(extra.data, &gso, sizeof extra.data);
    this->put_extra(at + 1, extra);
    this->tx.write(at + 2, this->chain(1).front());
    this->tx.produce(at + 3);
    this->rig.run();
    EXPECT_EQ(this->statuses(from), (std::vector<int>{-1, 1, 0})) << k.size << " " << int{k.type};
    EXPECT_TRUE(this->rig.uplink.lane(0).take());
    EXPECT_FALSE(this->rig.uplink.lane(0).take());
  }
}

TYPED_TEST(HostileNetQueue, case_74_every_slot_is_answered_once_extra_infos_included) {
  const std::uint32_t at = this->tx.produced();
  this->tx.write(at, netif::tx_request_layout{
                         this->page.reference, 0,
                         netif::tx_flag::extra_info | netif::tx_flag::more_data, 5, 3000});
  this->put_extra(at + 1, {netif::extra_type::gso, netif::extra_more, {0xe8, 0x03, 1, 0, 0, 0}});
  this->put_extra(at + 2, {netif::extra_type::hash, 0, {3, 1, 1, 2, 3, 4}});
  this->tx.write(at + 3, netif::tx_request_layout{this->page.reference, 0,
                                                  netif::tx_flag::more_data, 6, 1000});
  this->tx.write(at + 4, netif::tx_request_layout{99'999, 0, 0, 7, 1000});  // no such grant
  this->tx.produce(at + 5);
  this->rig.run();
  EXPECT_EQ(this->statuses(0), (std::vector<int>{-1, 1, 1, -1, -1}));
  EXPECT_EQ(this->rig.queue->transmitted().failed.get(), 1U);
  EXPECT_FALSE(this->rig.uplink.lane(0).take());
}

TYPED_TEST(HostileNetQueue, case_74_extra_infos_that_go_on_past_the_producer_end_the_interface) {
  this->tx.write(
      0, netif::tx_request_layout{this->page.reference, 0, netif::tx_flag::extra_info, 5, 3000});
  this->put_extra(1, {netif::extra_type::gso, netif::extra_more, {0xe8, 0x03, 1, 0, 0, 0}});
  this->tx.produce(2);
  this->rig.run();
  this->expect_end(protocol_error::packet_unfinished);
}

TYPED_TEST(HostileNetQueue, an_extra_info_of_no_known_type_ends_the_interface) {
  this->tx.write(
      0, netif::tx_request_layout{this->page.reference, 0, netif::tx_flag::extra_info, 5, 3000});
  this->put_extra(1, {9, 0, {}});
  this->tx.produce(2);
  this->rig.run();
  this->expect_end(protocol_error::packet_bad_extra);
}

TYPED_TEST(HostileNetQueue, case_76_a_hash_reaches_only_a_guest_that_takes_it) {
  net_rig_options wanted;
  wanted.receive.receives.hash = false;
  net_rig<TypeParam> rig2(wanted);
  rig2.front.post();
  rig2.uplink.lane(0).put({frame_of(100), {.hash = {1, 2, 3}}, 0});
  const auto got = rig2.received();
  ASSERT_THAT(got, SizeIs(1));
  EXPECT_EQ(got[0].slots, 1U);
  // And an Ethernet header may be cut anywhere.
  for (std::uint16_t first = 1; first < 14; ++first) {
    ASSERT_TRUE(
        rig2.front.send(frame_of(60), {},
                        std::vector<std::uint16_t>{first, static_cast<std::uint16_t>(60 - first)}));
    EXPECT_THAT(rig2.sent(), SizeIs(1));
  }
}

TYPED_TEST(HostileNetQueue, a_packet_whose_grant_is_bad_hurts_no_other_of_its_pass) {
  std::vector<netif::tx_request_layout> slots;
  for (int i = 0; i < 20; ++i) {
    slots.push_back(this->chain(1).front());
    slots.back().gref = i % 3 == 0 ? 77'777 : this->page.reference;
  }
  this->put(slots);
  const auto got = this->statuses(0);
  ASSERT_THAT(got, SizeIs(20));
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(got[i], i % 3 == 0 ? -1 : 0) << i;
  }
}

TYPED_TEST(HostileNetQueue, a_posted_page_that_is_none_fails_its_packet_and_no_other) {
  net_rig<TypeParam> rig2;
  rig2.front.post(8);
  raw_ring ring(rig2.front.rx_page(), sizeof(netif::rx_request_layout));
  ring.write(1, netif::rx_request_layout{1, 0, 55'555});
  for (int i = 0; i < 4; ++i) {
    rig2.uplink.lane(0).put({frame_of(1000, static_cast<std::uint8_t>(i)), {}, 0});
  }
  const auto got = rig2.received();
  ASSERT_THAT(got, SizeIs(3));
  EXPECT_EQ(got[0].bytes, frame_of(1000, 0));
  EXPECT_EQ(got[1].bytes, frame_of(1000, 2));
  EXPECT_EQ(rig2.front.counters().broken.get(), 1U);
  EXPECT_EQ(rig2.queue->received().failed.get(), 1U);
}

TYPED_TEST(HostileNetQueue, whatever_a_packet_says_every_slot_is_answered_and_nothing_is_kept) {
  std::size_t sent = 0;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    testing::hostile_net_queue bad(this->rig.guest, 0, this->rig.front.tx_page(),
                                   this->rig.front.rx_page(), seed,
                                   testing::net_misdeeds::survivable);
    for (int i = 0; i < 300; ++i) {
      bad.step();
      if (i % 3 == 0) {
        this->rig.uplink.lane(0).put({frame_of(60 + static_cast<std::size_t>(i) * 70), {}, 0});
      }
      this->rig.run();
      ASSERT_EQ(this->tx.answered(), this->tx.produced()) << "seed " << seed << ", step " << i;
      ASSERT_EQ(this->rig.queue->leases(), 0U);
      ASSERT_EQ(this->rig.queue->broken(), protocol_error::none)
          << "seed " << seed << ", step " << i;
      while (this->rig.uplink.lane(0).take()) {
        ++sent;
      }
    }
  }
  EXPECT_GT(sent, 100U) << "some of it is as it has to be";
}

TYPED_TEST(HostileNetQueue, whatever_is_in_the_rings_nothing_but_the_interface_is_lost) {
  std::size_t ended = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    net_rig<TypeParam> victim;
    testing::hostile_net_queue bad(victim.guest, 0, victim.front.tx_page(), victim.front.rx_page(),
                                   seed);
    for (int i = 0; i < 200 && victim.queue->broken() == protocol_error::none; ++i) {
      bad.step();
      victim.uplink.lane(0).put({frame_of(60 + static_cast<std::size_t>(i) * 70), {}, 0});
      victim.run();
    }
    victim.run();
    ended += victim.queue->broken() != protocol_error::none ? 1 : 0;
    victim.end();
    EXPECT_EQ(victim.grants.counters().pages_mapped.get(),
              victim.grants.counters().pages_unmapped.get());
  }
  EXPECT_GT(ended, 10U);
}

}  // namespace
}  // namespace pvring::test
