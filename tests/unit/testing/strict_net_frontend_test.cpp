// SPDX-License-Identifier: MIT
// The strict network frontend's side of the handshake, against nodes that a test writes: what it
// asks for, what it writes, and when it closes the device.
#include "pvring/testing/strict_net_frontend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pvring/platform/emulated.hpp"
#include "pvring/xenbus/toolstack.hpp"

namespace pvring::testing {
namespace {

using protocol::xenbus_state;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using nodes = std::map<std::string, std::string>;

class StrictNetFrontend : public ::testing::Test {
 protected:
  static constexpr domain_id guest_id = 3;

  void write(const nodes& what) {
    store_.transact([&](platform::emulated_store::transaction& t) {
      for (const auto& [name, value] : what) {
        t.write(path_.backend() + "/" + name, value);
        t.set_permissions(path_.backend() + "/" + name, {.owner = 0, .reader = guest_id});
      }
    });
  }
  void offer(nodes what) {
    what.insert({"feature-rx-copy", "1"});
    what["state"] = "2";
    write(what);
  }
  void backend(const std::string& state) { write({{"state", state}}); }
  std::string read(const std::string& name) {
    return store_.read(path_.frontend() + "/" + name).value_or("(missing)");
  }
  void expect_missing(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      EXPECT_EQ(read(name), "(missing)") << name;
    }
  }
  static void settle(strict_net_frontend& front) {
    for (int i = 0; i < 5; ++i) {
      front.process();
    }
  }

  platform::emulated_host host_ = platform::emulated_host::create();
  platform::emulated_guest guest_ = host_.create_domain(guest_id);
  platform::emulated dom0_{host_};
  platform::emulated_store store_ = dom0_.open_store();
  xenbus::device_path path_ = xenbus::create_device(
      store_, xenbus::describe_vif({.frontend_domain = guest_id, .type = "vif", .device = 0}, {}));
};

TEST_F(StrictNetFrontend, WaitsForTheBackendsOffer) {
  strict_net_frontend front(host_, path_.identity());
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::initialising);
  EXPECT_FALSE(front.connect(std::chrono::milliseconds(20)));
}

TEST_F(StrictNetFrontend, WritesFlatNodesForOneQueueAndIsConnectedAtOnce) {
  strict_net_frontend front(host_, path_.identity(), {.queues = 4});
  offer({});
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::connected) << "netfront leaves Initialised out";
  EXPECT_FALSE(front.connected());
  EXPECT_EQ(front.queue_count(), 1U);
  EXPECT_EQ(read("tx-ring-ref"), std::to_string(front.queue(0).tx_reference()));
  EXPECT_EQ(read("rx-ring-ref"), std::to_string(front.queue(0).rx_reference()));
  EXPECT_EQ(read("event-channel"), std::to_string(front.queue(0).tx_port()));
  expect_missing(
      {"event-channel-tx", "event-channel-rx", "multi-queue-num-queues", "queue-0/tx-ring-ref"});
  for (const char* const name :
       {"request-rx-copy", "feature-rx-notify", "feature-sg", "feature-gso-tcpv4",
        "feature-gso-tcpv6", "feature-ipv6-csum-offload"}) {
    EXPECT_EQ(read(name), "1") << name;
  }
  EXPECT_EQ(read("feature-no-csum-offload"), "0");
  EXPECT_EQ(read("request-multicast-control"), "0");
  backend("4");
  settle(front);
  EXPECT_TRUE(front.connected());
}

TEST_F(StrictNetFrontend, HasADirectoryForEachQueueAndAChannelForEachRingWhereOffered) {
  strict_net_frontend front(host_, path_.identity(), {.queues = 3});
  offer({{"multi-queue-max-queues", "8"}, {"feature-split-event-channels", "1"}});
  settle(front);
  EXPECT_EQ(front.queue_count(), 3U);
  EXPECT_EQ(read("multi-queue-num-queues"), "3");
  for (std::uint32_t i = 0; i < 3; ++i) {
    const std::string home = "queue-" + std::to_string(i) + "/";
    const strict_net_queue& queue = front.queue(i);
    EXPECT_EQ(read(home + "tx-ring-ref"), std::to_string(queue.tx_reference()));
    EXPECT_EQ(read(home + "rx-ring-ref"), std::to_string(queue.rx_reference()));
    EXPECT_EQ(read(home + "event-channel-tx"), std::to_string(queue.tx_port()));
    EXPECT_EQ(read(home + "event-channel-rx"), std::to_string(queue.rx_port()));
    EXPECT_NE(queue.tx_port(), queue.rx_port());
  }
  expect_missing({"tx-ring-ref", "event-channel", "event-channel-tx", "queue-0/event-channel",
                  "queue-3/tx-ring-ref"});
}

TEST_F(StrictNetFrontend, TakesOfferedQueuesOnlyAndOneChannelWhereItWantsNoMore) {
  strict_net_frontend front(host_, path_.identity(),
                            {.queues = 8, .queue = {.split_channels = false}});
  offer({{"multi-queue-max-queues", "2"}, {"feature-split-event-channels", "1"}});
  settle(front);
  EXPECT_EQ(front.queue_count(), 2U);
  EXPECT_EQ(read("queue-1/event-channel"), std::to_string(front.queue(1).rx_port()));
  expect_missing({"queue-1/event-channel-tx", "queue-2/tx-ring-ref"});
}

TEST_F(StrictNetFrontend, SaysWhatItTakes) {
  strict_net_frontend front(host_, path_.identity(),
                            {.takes = {.checksum_v4 = false},
                             .notifies = false,
                             .reads_multicast = true,
                             .copies = false});
  offer({});
  settle(front);
  EXPECT_EQ(read("feature-no-csum-offload"), "1");
  EXPECT_EQ(read("request-multicast-control"), "1");
  for (const char* const name :
       {"request-rx-copy", "feature-rx-notify", "feature-sg", "feature-gso-tcpv4",
        "feature-gso-tcpv6", "feature-ipv6-csum-offload"}) {
    EXPECT_EQ(read(name), "0") << name;
  }
}

TEST_F(StrictNetFrontend, KnowsWhatTheBackendTakes) {
  strict_net_frontend plain(host_, path_.identity());
  offer({});
  settle(plain);
  EXPECT_TRUE(plain.sends().checksum_v4) << "what is there without being said";
  EXPECT_FALSE(plain.sends().checksum_v6 || plain.sends().gso_tcpv4 || plain.sends().gso_tcpv6 ||
               plain.sends().scatter_gather);
}

TEST_F(StrictNetFrontend, RefusesABackendThatDoesNotCopy) {
  strict_net_frontend front(host_, path_.identity());
  offer({{"feature-rx-copy", "0"}});
  settle(front);
  EXPECT_THAT(front.error(), HasSubstr("feature-rx-copy (written by domain 0) is '0': write 1"));
  EXPECT_EQ(front.state(), xenbus_state::closed);
  expect_missing({"tx-ring-ref"});
}

TEST_F(StrictNetFrontend, ClosesAndConnectsAgainWithoutTheOldNodes) {
  strict_net_frontend front(host_, path_.identity(), {.queues = 2});
  offer({{"multi-queue-max-queues", "2"}, {"feature-split-event-channels", "1"}});
  settle(front);
  backend("4");
  settle(front);
  ASSERT_TRUE(front.connected());
  const std::vector<std::byte> bytes(60);
  EXPECT_TRUE(front.queue(1).send(bytes));
  front.begin_close();
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::closed);
  EXPECT_FALSE(front.released()) << "the backend may have the rings mapped";
  backend("6");
  settle(front);
  EXPECT_TRUE(front.released());
  EXPECT_FALSE(front.queue(1).send(bytes));
  front.reopen();
  offer({{"multi-queue-max-queues", "1"}, {"feature-split-event-channels", "0"}});
  settle(front);
  backend("4");
  settle(front);
  EXPECT_TRUE(front.connected());
  EXPECT_EQ(front.queue_count(), 1U);
  EXPECT_EQ(front.queue(0).tx_outstanding(), 0U);
  EXPECT_NE(read("tx-ring-ref"), "(missing)");
  expect_missing(
      {"queue-0/tx-ring-ref", "queue-1/tx-ring-ref", "multi-queue-num-queues", "event-channel-tx"});
  EXPECT_EQ(front.violations_text(), "");
}

TEST_F(StrictNetFrontend, HoldsAgainstItsBackendWhatIsMappedWhenItHasClosed) {
  strict_net_frontend front(host_, path_.identity());
  offer({});
  settle(front);
  auto grants = dom0_.open_grants(10);
  const platform::grant_reference reference = front.queue(0).rx_reference();
  platform::mapping ring =
      grants.map(guest_id, {&reference, 1}, platform::access::read_write).pages;
  ASSERT_TRUE(ring);
  backend("4");
  settle(front);
  backend("6");
  settle(front);
  EXPECT_TRUE(front.released());
  EXPECT_THAT(front.violations(), SizeIs(1));
  EXPECT_THAT(front.violations_text(), HasSubstr("1 pages are still mapped"));
  EXPECT_TRUE(front.disabled());
  ASSERT_EQ(grants.unmap(ring), 0);
}

}  // namespace
}  // namespace pvring::testing
