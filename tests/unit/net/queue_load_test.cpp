// SPDX-License-Identifier: MIT
// A queue under random load in both directions at once: whatever the sizes, the cuts and the pages
// that are posted, everything arrives, once, in order and as it was sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "net_fixture.hpp"
#include "pvring/testing/net_load.hpp"
#include "pvring/testing/net_model.hpp"

namespace pvring::test {
namespace {

struct load_case {
  const char* name;
  net::delivery when;
  bool split;
  std::size_t most_posted;
};

// Both ends of the queue, and what has to come out of each.
class loaded_queue {
 public:
  explicit loaded_queue(const load_case& with)
      : rig_({.receive = {.receives = {.offloads = {true, true, true, true, true}, .hash = true},
                          .delivery = {.when = with.when}},
              .front = {.split_channels = with.split,
                        .tx_start = 0xffffff00U,
                        .rx_start = 0xfffffe10U}}),
        most_posted_(with.most_posted) {}

  /// Some packets each way, and a pass.
  void step() {
    (void)from_guest_.send(rig_.front, random_() % 12);
    for (std::size_t i = random_() % 8; i != 0 && to_guest_model_.pending() < 64; --i) {
      const testing::net_packet packet = to_guest_.next();
      rig_.uplink.lane(0).put({{packet.bytes.begin(), packet.bytes.end()}, packet.info, 0});
      to_guest_.sent();
    }
    rig_.front.post(1 + random_() % most_posted_);
    pass();
  }

  /// No more is sent, and the guest posts all that it can.
  void finish() {
    for (int i = 0; i < 200 && (from_guest_model_.pending() | to_guest_model_.pending()) != 0;
         ++i) {
      rig_.front.post();
      pass();
    }
  }

  void expect_all_arrived() const {
    EXPECT_EQ(from_guest_model_.pending(), 0U);
    EXPECT_EQ(to_guest_model_.pending(), 0U);
    EXPECT_EQ(rig_.front.tx_outstanding(), 0U);
    EXPECT_EQ(rig_.front.counters().refused.get(), 0U);
    EXPECT_EQ(rig_.front.counters().broken.get(), 0U);
  }
  [[nodiscard]] std::uint64_t arrived() const {
    return from_guest_model_.arrived() + to_guest_model_.arrived();
  }

 private:
  void pass() {
    rig_.front.publish();
    rig_.run();
    rig_.front.poll([this](const testing::received_packet& p) {
      const auto wrong = to_guest_model_.arrived(p.bytes, p.info);
      EXPECT_FALSE(wrong) << "to the guest: " << *wrong;
    });
    while (const auto frame = rig_.uplink.lane(0).take()) {
      const auto wrong = from_guest_model_.arrived(frame->bytes, frame->info);
      EXPECT_FALSE(wrong) << "from the guest: " << *wrong;
    }
  }

  net_rig<grant::batched_copy> rig_;
  std::size_t most_posted_;
  std::mt19937 random_{11};
  testing::net_model from_guest_model_{1};
  testing::net_model to_guest_model_{2};
  testing::net_load from_guest_{from_guest_model_, {.seed = 1}};
  testing::net_load to_guest_{to_guest_model_, {.seed = 2}};
};

class NetQueueLoad : public ::testing::TestWithParam<load_case> {};

TEST_P(NetQueueLoad, EverythingArrivesOnceInOrderAndAsItWasSent) {
  loaded_queue queue(GetParam());
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    queue.step();
  }
  queue.finish();
  queue.expect_all_arrived();
  EXPECT_GT(queue.arrived(), 1000U);
}

INSTANTIATE_TEST_SUITE_P(
    Deliveries, NetQueueLoad,
    ::testing::Values(load_case{"AtOnceWithFullRing", net::delivery::at_once, true, 256},
                      load_case{"AtOnceWithFewPages", net::delivery::at_once, true, 20},
                      load_case{"DeferredWithFullRing", net::delivery::deferred, false, 256},
                      load_case{"DeferredWithFewPages", net::delivery::deferred, true, 20}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace pvring::test
