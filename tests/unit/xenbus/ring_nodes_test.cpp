// SPDX-License-Identifier: MIT
#include "pvring/xenbus/ring_nodes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scripted_store.hpp"

namespace pvring::xenbus {
namespace {

const std::string front = "/local/domain/3/device/vbd/51712";
constexpr domain_id guest = 3;
using references = std::vector<platform::grant_reference>;

struct RingNodes : testing::Test {
  test::store_tree tree;
  test::scripted_store store{tree};
  ring_limits offered{4, 4};

  void put(const std::string& node, const std::string& value) {
    tree.put(front + "/" + node, value);
  }
  void drop(const std::string& node) { tree.drop(front + "/" + node); }
  std::vector<queue_nodes> read() { return read_queues(store, front, guest, offered); }
  references refs() { return read().at(0).ring_references; }
  std::string complaint() {
    try {
      (void)read();
    } catch (const node_error& e) {
      return e.what();
    }
    return "accepted";
  }
  void publish_one(const std::string& directory, unsigned reference, unsigned port) {
    put(directory + "ring-ref", std::to_string(reference));
    put(directory + "event-channel", std::to_string(port));
  }
};

TEST_F(RingNodes, WithoutAnOrderThePlainNodeCounts) {
  publish_one("", 8, 5);
  const auto queues = read();
  ASSERT_EQ(queues.size(), 1U);
  EXPECT_EQ(queues[0].directory, front);
  EXPECT_EQ(queues[0].ring_references, references{8});
  EXPECT_EQ(queues[0].event_channel, 5U);
}

// Case 102.
TEST_F(RingNodes, NumberedNodesOfAnEarlierDriverAreNotUsed) {
  put("ring-ref0", "100");
  put("ring-ref1", "101");
  publish_one("", 8, 5);
  EXPECT_EQ(refs(), references{8});
}

// Case 102, the other way round.
TEST_F(RingNodes, APlainNodeOfAnEarlierDriverIsNotUsed) {
  publish_one("", 8, 5);
  put("ring-page-order", "1");
  put("ring-ref0", "100");
  put("ring-ref1", "101");
  EXPECT_EQ(refs(), (references{100, 101}));
}

// Case 102: no form is tried after the other one failed.
TEST_F(RingNodes, AMissingFormIsNotReplacedByTheOther) {
  put("event-channel", "5");
  put("ring-ref0", "100");
  EXPECT_EQ(complaint(),
            "node " + front +
                "/ring-ref (written by domain 3) is missing: write the grant reference of a "
                "ring page, or ring-page-order: without it " +
                front + "/ring-ref0 (now '100') does not count");
  drop("ring-ref0");
  put("ring-ref", "8");
  put("ring-page-order", "2");
  EXPECT_EQ(complaint(),
            "node " + front +
                "/ring-ref0 (written by domain 3) is missing: write the grant reference of a "
                "ring page, since ring-page-order is 2; " +
                front + "/ring-ref (now '8') does not count then");
}

TEST_F(RingNodes, NodesAreReadAnewForEachConnect) {
  publish_one("", 8, 5);
  EXPECT_EQ(refs(), references{8});
  put("ring-page-order", "0");
  put("ring-ref0", "9");
  EXPECT_EQ(refs(), references{9});
  drop("ring-page-order");
  EXPECT_EQ(refs(), references{8});
}

// Case 129.
TEST_F(RingNodes, OnePageIsUnderstoodByEitherConvention) {
  publish_one("", 8, 5);
  put("num-ring-pages", "1");
  EXPECT_EQ(refs(), references{8}) << "a page count and the plain node";
  drop("num-ring-pages");
  put("ring-page-order", "0");
  EXPECT_EQ(refs(), references{8}) << "order 0 and the plain node";
  drop("ring-ref");
  put("ring-ref0", "9");
  EXPECT_EQ(refs(), references{9}) << "order 0 and the numbered node";
  put("ring-ref", "8");
  EXPECT_EQ(refs(), references{9}) << "order 0 and both";
}

// Case 129.
TEST_F(RingNodes, APageCountAloneIsIgnored) {
  publish_one("", 8, 5);
  for (const char* const count : {"4", "0", "many", ""}) {
    put("num-ring-pages", count);
    EXPECT_EQ(refs(), references{8}) << count;
  }
}

// Case 129.
TEST_F(RingNodes, APairThatContradictsItselfIsRefusedWithItsValues) {
  publish_one("", 8, 5);
  put("num-ring-pages", "4");
  put("ring-page-order", "1");
  EXPECT_EQ(complaint(),
            "node " + front +
                "/ring-page-order (written by domain 3) is '1': num-ring-pages is 4, which is "
                "not 2 to that power; remove num-ring-pages");
  put("num-ring-pages", "2");
  put("ring-ref0", "1");
  put("ring-ref1", "2");
  EXPECT_EQ(refs(), (references{1, 2}));
}

TEST_F(RingNodes, AnOrderAboveTheOfferIsRefused) {
  publish_one("", 8, 5);
  for (const char* const order :
       {"5", "31", "32", "64", "4294967295", "4294967296", "-1", "", "one"}) {
    put("ring-page-order", order);
    EXPECT_NE(complaint().find("ring-page-order"), std::string::npos) << order;
  }
  offered.max_page_order = 0;
  put("ring-page-order", "1");
  EXPECT_NE(complaint().find("from 0 to 0"), std::string::npos);
  put("ring-page-order", "0");
  EXPECT_EQ(refs(), references{8});
}

TEST_F(RingNodes, AnOfferThatNoStoreCouldHoldDoesNotMakeTheOrderOverflow) {
  offered.max_page_order = 4294967295U;
  publish_one("", 8, 5);
  put("ring-page-order", "33");
  EXPECT_NE(complaint().find("from 0 to 10"), std::string::npos);
}

TEST_F(RingNodes, EveryPageOfTheLargestRingIsRead) {
  put("event-channel", "5");
  put("ring-page-order", "4");
  references expected;
  for (unsigned i = 0; i < 16; ++i) {
    put("ring-ref" + std::to_string(i), std::to_string(1000 + i));
    expected.push_back(1000 + i);
  }
  EXPECT_EQ(refs(), expected);
  drop("ring-ref15");
  EXPECT_NE(complaint().find("ring-ref15"), std::string::npos);
}

TEST_F(RingNodes, AReferenceOrPortThatIsNoNumberIsRefused) {
  for (const char* const odd : {"", "-1", "4294967296", "8 ", "0x8", "fd:", "a"}) {
    publish_one("", 8, 5);
    put("ring-ref", odd);
    EXPECT_NE(complaint().find("ring-ref"), std::string::npos) << odd;
    publish_one("", 8, 5);
    put("event-channel", odd);
    EXPECT_NE(complaint().find("event-channel"), std::string::npos) << odd;
  }
  publish_one("", 8, 5);
  drop("event-channel");
  EXPECT_NE(complaint().find("is missing"), std::string::npos);
}

// Case 123.
TEST_F(RingNodes, AQueueCountOutsideTheOfferIsRefused) {
  publish_one("", 8, 5);
  for (const char* const count : {"0", "5", "65", "4294967297", "-1", "", "two"}) {
    put("multi-queue-num-queues", count);
    EXPECT_NE(complaint().find("multi-queue-num-queues"), std::string::npos) << count;
  }
  EXPECT_NE(complaint().find("from 1 to 4"), std::string::npos);
}

// Case 123.
TEST_F(RingNodes, AQueueWithoutItsDirectoryIsRefusedByName) {
  put("multi-queue-num-queues", "2");
  publish_one("queue-0/", 8, 5);
  EXPECT_NE(complaint().find("/queue-1/ring-ref (written by domain 3) is missing"),
            std::string::npos);
}

TEST_F(RingNodes, OneQueueHasItsKeysAtTheTop) {
  put("multi-queue-num-queues", "1");
  publish_one("queue-0/", 100, 50);
  EXPECT_NE(complaint(), "accepted");
  publish_one("", 8, 5);
  EXPECT_EQ(refs(), references{8});
}

// Case 123: reconnect with 4, then 1.
TEST_F(RingNodes, QueuesOfAnEarlierConnectionAreNotUsed) {
  put("multi-queue-num-queues", "4");
  put("ring-page-order", "1");
  for (unsigned i = 0; i < 4; ++i) {
    const std::string queue = "queue-" + std::to_string(i) + "/";
    put(queue + "ring-ref0", std::to_string(10 * i));
    put(queue + "ring-ref1", std::to_string(10 * i + 1));
    put(queue + "event-channel", std::to_string(20 + i));
  }
  const auto queues = read();
  ASSERT_EQ(queues.size(), 4U);
  EXPECT_EQ(queues[3].directory, front + "/queue-3");
  EXPECT_EQ(queues[3].ring_references, (references{30, 31}));
  EXPECT_EQ(queues[3].event_channel, 23U);

  drop("multi-queue-num-queues");
  drop("ring-page-order");
  publish_one("", 8, 5);
  ASSERT_EQ(read().size(), 1U);
  EXPECT_EQ(refs(), references{8});
}

TEST_F(RingNodes, AProtocolMayHaveItsOwnKeys) {
  put("tx-ring-ref", "8");
  put("event-channel-tx", "5");
  EXPECT_EQ(read_ring_references(store, front, guest, std::nullopt, "tx-ring-ref"), references{8});
  EXPECT_EQ(read_event_channel(store, front, guest, "event-channel-tx"), 5U);
  const auto queues =
      read_queues(store, front, guest, offered, {"tx-ring-ref", "event-channel-tx"});
  EXPECT_EQ(queues.at(0).ring_references, references{8});
}

// Case 104: what a peer wrote reaches a message bounded and without control characters.
TEST_F(RingNodes, ForeignTextIsTamedInMessages) {
  put("event-channel", "5");
  put("ring-ref0", "1\n\x1b[2J" + std::string(5000, 'x'));
  const std::string text = complaint();
  EXPECT_LT(text.size(), 500U);
  EXPECT_NE(text.find("xxx...'"), std::string::npos) << "and says that there was more";
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace pvring::xenbus
