// SPDX-License-Identifier: MIT
// Every node that the two ends of a network device write for each other: what the backend offers,
// and what it makes of the answers, the wrong ones among them.
#include "pvring/net/negotiation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "unit/xenbus/scripted_store.hpp"

namespace pvring::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string front = "/local/domain/3/device/vif/0";
const std::string back = "/local/domain/0/backend/vif/3/0";
constexpr domain_id guest = 3;

struct Negotiation : ::testing::Test {
  test::store_tree tree;
  test::scripted_store store{tree};
  options offered;
  std::uint32_t uplink_queues = 4;

  void put(const std::string& node, const std::string& value) {
    tree.put(front + "/" + node, value);
  }
  void drop(const std::string& node) { tree.drop(front + "/" + node); }
  void publish_queue(const std::string& directory, unsigned first, bool split) {
    put(directory + "tx-ring-ref", std::to_string(first));
    put(directory + "rx-ring-ref", std::to_string(first + 1));
    if (split) {
      put(directory + "event-channel-tx", std::to_string(first + 2));
      put(directory + "event-channel-rx", std::to_string(first + 3));
    } else {
      put(directory + "event-channel", std::to_string(first + 2));
    }
  }
  void publish_least() {
    publish_queue("", 8, false);
    put("request-rx-copy", "1");
  }
  agreement read() { return read_agreement(store, front, guest, offered, uplink_queues); }
  // What it says of the answer, or "accepted".
  std::string complaint() {
    try {
      (void)read();
    } catch (const node_error& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string offer(const std::string& node) {
    write_offer(store, back, offered, uplink_queues);
    return tree.get(back + "/" + node);
  }
};

TEST_F(Negotiation, OffersWhatTheOptionsAllow) {
  for (const char* const node :
       {"feature-rx-copy", "feature-sg", "feature-gso-tcpv4", "feature-gso-tcpv6",
        "feature-ipv6-csum-offload", "feature-multicast-control", "feature-split-event-channels"}) {
    EXPECT_EQ(offer(node), "1") << node;
  }
  EXPECT_EQ(offer("feature-rx-flip"), "0");
  EXPECT_EQ(offer("feature-no-csum-offload"), "0");
  EXPECT_EQ(offer("multi-queue-max-queues"), std::to_string(std::min(offered.max_queues, 4U)));
  offered.max_queues = 16;
  EXPECT_EQ(offer("multi-queue-max-queues"), "4") << "the uplink has no more";
  uplink_queues = 32;
  EXPECT_EQ(offer("multi-queue-max-queues"), "16");
}

TEST_F(Negotiation, SuperFramesNeedSlotsAndBlankChecksums) {
  const auto no_super_frames = [&] {
    EXPECT_EQ(offer("feature-gso-tcpv4"), "0");
    EXPECT_EQ(offer("feature-gso-tcpv6"), "0");
  };
  offered.scatter_gather = false;
  no_super_frames();
  EXPECT_EQ(offer("feature-sg"), "0");
  offered = {};
  offered.checksum = false;
  no_super_frames();
  EXPECT_EQ(offer("feature-no-csum-offload"), "1");
  EXPECT_EQ(offer("feature-ipv6-csum-offload"), "0");
  offered = {};
  offered.gso = false;
  no_super_frames();
}

TEST_F(Negotiation, WhatAFrontendDoesNotSayHasTheProtocolsDefaults) {
  publish_least();
  const agreement with = read();
  EXPECT_TRUE(with.receives.offloads.checksum_v4);
  EXPECT_FALSE(with.receives.offloads.checksum_v6);
  EXPECT_FALSE(with.receives.offloads.scatter_gather);
  EXPECT_FALSE(with.receives.offloads.gso_tcpv4);
  EXPECT_FALSE(with.receives.offloads.gso_tcpv6);
  EXPECT_FALSE(with.receives.hash);
  EXPECT_FALSE(with.notifies);
  EXPECT_FALSE(with.reads_multicast);
  ASSERT_THAT(with.queues, SizeIs(1));
  EXPECT_EQ(with.queues[0].directory, front);
  EXPECT_EQ(with.queues[0].tx_reference, 8U);
  EXPECT_EQ(with.queues[0].rx_reference, 9U);
  EXPECT_EQ(with.queues[0].tx_channel, 10U);
  EXPECT_FALSE(with.queues[0].split());
}

TEST_F(Negotiation, TakesWhatAFrontendSaysItReceives) {
  publish_least();
  for (const char* const node :
       {"feature-sg", "feature-gso-tcpv4", "feature-gso-tcpv6", "feature-ipv6-csum-offload",
        "feature-no-csum-offload", "feature-rx-notify", "request-multicast-control"}) {
    put(node, "1");
  }
  agreement with = read();
  EXPECT_FALSE(with.receives.offloads.checksum_v4);
  EXPECT_TRUE(with.receives.offloads.checksum_v6);
  EXPECT_TRUE(with.receives.offloads.scatter_gather);
  EXPECT_TRUE(with.receives.offloads.gso_tcpv4);
  EXPECT_TRUE(with.receives.offloads.gso_tcpv6);
  EXPECT_TRUE(with.notifies);
  EXPECT_TRUE(with.reads_multicast);

  put("feature-sg", "0");
  with = read();
  EXPECT_FALSE(with.receives.offloads.gso_tcpv4) << "a super-frame does not fit one page";
  EXPECT_FALSE(with.receives.offloads.gso_tcpv6);
  offered.multicast_control = false;
  EXPECT_FALSE(read().reads_multicast) << "it was not offered";
}

TEST_F(Negotiation, AFrontendThatDoesNotTakeCopiesIsRefused) {
  publish_least();
  for (const bool missing : {true, false}) {
    if (missing) {
      drop("request-rx-copy");
    } else {
      put("request-rx-copy", "0");
    }
    EXPECT_THAT(complaint(), AllOf(HasSubstr(front + "/request-rx-copy"), HasSubstr("domain 3"),
                                   HasSubstr("write 1")));
  }
}

TEST_F(Negotiation, SeveralQueuesHaveDirectoriesAndOneHasNone) {
  put("request-rx-copy", "1");
  put("multi-queue-num-queues", "3");
  publish_queue("", 500, false);  // of an earlier driver
  for (unsigned i = 0; i < 3; ++i) {
    publish_queue("queue-" + std::to_string(i) + "/", 100 * (i + 1), true);
  }
  const agreement with = read();
  ASSERT_THAT(with.queues, SizeIs(3));
  EXPECT_EQ(with.queues[2].directory, front + "/queue-2");
  EXPECT_EQ(with.queues[2].tx_reference, 300U);
  EXPECT_EQ(with.queues[2].rx_reference, 301U);
  EXPECT_EQ(with.queues[2].tx_channel, 302U);
  EXPECT_EQ(with.queues[2].rx_channel, 303U);
  EXPECT_TRUE(with.queues[2].split());
  put("multi-queue-num-queues", "1");
  EXPECT_EQ(read().queues.at(0).tx_reference, 500U);
  for (const char* const wrong : {"0", "5", "-1", "", "two"}) {
    put("multi-queue-num-queues", wrong);
    EXPECT_THAT(complaint(),
                AllOf(HasSubstr(front + "/multi-queue-num-queues"), HasSubstr("from 1 to 4")))
        << wrong;
  }
}

TEST_F(Negotiation, TwoChannelsCountBeforeOne) {
  publish_least();
  put("event-channel-tx", "21");
  put("event-channel-rx", "22");
  EXPECT_EQ(read().queues.at(0).tx_channel, 21U);
  EXPECT_EQ(read().queues.at(0).rx_channel, 22U);
  drop("event-channel-rx");
  EXPECT_THAT(complaint(), HasSubstr(front + "/event-channel-rx"));
  put("event-channel-rx", "21");
  EXPECT_THAT(complaint(), AllOf(HasSubstr("event-channel-rx"), HasSubstr("another channel")));
  offered.split_channels = false;
  EXPECT_FALSE(read().queues.at(0).split()) << "what was not offered does not count";
}

TEST_F(Negotiation, ANodeThatIsMissingOrWrongIsNamed) {
  for (const std::string node : {"tx-ring-ref", "rx-ring-ref", "event-channel"}) {
    publish_least();
    drop(node);
    EXPECT_THAT(complaint(), AllOf(HasSubstr(front + "/" + node), HasSubstr("is missing"),
                                   HasSubstr("domain 3")));
    put(node, "4294967296");
    EXPECT_THAT(complaint(), AllOf(HasSubstr(front + "/" + node), HasSubstr("'4294967296'")));
  }
  publish_least();
  for (const std::string node :
       {"feature-sg", "feature-gso-tcpv4", "feature-gso-tcpv6", "feature-no-csum-offload",
        "feature-ipv6-csum-offload", "feature-rx-notify", "request-rx-copy"}) {
    const std::string before = tree.get(front + "/" + node);
    put(node, "yes");
    EXPECT_THAT(complaint(),
                AllOf(HasSubstr(front + "/" + node), HasSubstr("'yes'"), HasSubstr("from 0 to 1")));
    before == "(missing)" ? drop(node) : put(node, before);
  }
}

TEST_F(Negotiation, RateIsTheToolstacks) {
  EXPECT_EQ(read_rate(store, back, 0), credit_rate());
  tree.put(back + "/rate", "20000,50000");
  EXPECT_EQ(read_rate(store, back, 0), (credit_rate{20000, 50000}));
  for (const char* const wrong : {"20000", "20000,", ",1", "0,1", "1,0", "1,1,1", "1, 1", "-1,1"}) {
    tree.put(back + "/rate", wrong);
    try {
      (void)read_rate(store, back, 0);
      ADD_FAILURE() << wrong;
    } catch (const node_error& e) {
      EXPECT_EQ(e.node(), back + "/rate");
      EXPECT_EQ(e.value(), wrong);
    }
  }
}

TEST_F(Negotiation, UplinkIsReadyUnlessAScriptIsStillAtIt) {
  EXPECT_TRUE(uplink_is_ready(store, back));
  for (const char* const status : {"", "error"}) {
    tree.put(back + "/hotplug-status", status);
    EXPECT_FALSE(uplink_is_ready(store, back)) << status;
  }
  tree.put(back + "/hotplug-status", "connected");
  EXPECT_TRUE(uplink_is_ready(store, back));
}

TEST_F(Negotiation, ControlRingIsWholeOrNotThere) {
  write_control_offer(store, back, true);
  EXPECT_EQ(tree.get(back + "/feature-ctrl-ring"), "1");
  write_control_offer(store, back, false);
  EXPECT_EQ(tree.get(back + "/feature-ctrl-ring"), "0");
  const auto found = [&] { return find_control_ring(store, front, guest); };
  EXPECT_FALSE(found());
  put("ctrl-ring-ref", "17");
  EXPECT_THROW((void)found(), node_error);
  put("event-channel-ctrl", "18");
  ASSERT_TRUE(found());
  EXPECT_EQ(found()->reference, 17U);
  EXPECT_EQ(found()->channel, 18U);
  put("ctrl-ring-ref", "x");
  EXPECT_THROW((void)found(), node_error);
  drop("ctrl-ring-ref");
  EXPECT_THROW((void)found(), node_error);
}

TEST(NetOptions, WhatCannotBeIsRefusedByName) {
  const auto refuses = [](const char* name, auto&& change) {
    options wanted;
    validate(wanted);
    change(wanted);
    try {
      validate(wanted);
      ADD_FAILURE() << name;
    } catch (const configuration_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(std::string("option ") + name));
    }
  };
  refuses("max_queues", [](options& o) { o.max_queues = 0; });
  refuses("max_queues", [](options& o) { o.max_queues = most_queues + 1; });
  refuses("pass_budget", [](options& o) { o.pass_budget = 0; });
  refuses("delivery.burst", [](options& o) { o.delivery.burst = 0; });
  refuses("delivery.most_bytes",
          [](options& o) { o.delivery.most_bytes = (std::size_t{1} << 30U) + 1; });
  refuses("delivery.expiry_milliseconds", [](options& o) { o.delivery.expiry_milliseconds = 0; });
  refuses("buffer_bytes", [](options& o) { o.buffer_bytes = 4096; });
  refuses("mapped_pages", [](options& o) { o.mapped_pages = 1; });
}

}  // namespace
}  // namespace pvring::net
