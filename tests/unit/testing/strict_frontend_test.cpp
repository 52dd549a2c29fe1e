// SPDX-License-Identifier: MIT
// The strict frontend's side of the handshake, against nodes that a test writes: what it asks for,
// what it writes, and when it closes the device.
#include "pvring/testing/strict_frontend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "pvring/platform/emulated.hpp"
#include "pvring/xenbus/toolstack.hpp"

namespace pvring::testing {
namespace {

using protocol::xenbus_state;
using ::testing::HasSubstr;

using nodes = std::map<std::string, std::string>;

class StrictFrontend : public ::testing::Test {
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
    what["state"] = "2";
    write(what);
  }
  void connect(nodes what = {}) {
    nodes all{{"sectors", "2048"}, {"sector-size", "512"}, {"info", "0"}, {"state", "4"}};
    what.merge(all);
    write(what);
  }
  std::string read(const std::string& name) {
    return store_.read(path_.frontend() + "/" + name).value_or("(missing)");
  }
  static void settle(strict_frontend& front) {
    for (int i = 0; i < 5; ++i) {
      front.process();
    }
  }

  platform::emulated_host host_ = platform::emulated_host::create();
  platform::emulated_guest guest_ = host_.create_domain(guest_id);
  platform::emulated dom0_{host_};
  platform::emulated_store store_ = dom0_.open_store();
  xenbus::device_path path_ = xenbus::create_device(
      store_,
      xenbus::describe_vbd({.frontend_domain = guest_id, .type = "vbd", .device = 51712}, {}));
};

TEST_F(StrictFrontend, WaitsForTheBackendsOffer) {
  strict_frontend front(host_, path_.identity());
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::initialising);
  EXPECT_FALSE(front.connect(std::chrono::milliseconds(20)));
}

TEST_F(StrictFrontend, WritesTheOldNodesForOneQueueOfOnePage) {
  strict_frontend front(host_, path_.identity(), {.queues = 4, .ring_page_order = 3});
  offer({});
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::initialised);
  EXPECT_EQ(front.queue_count(), 1U);
  EXPECT_EQ(read("protocol"), "x86_64-abi");
  EXPECT_EQ(read("feature-persistent"), "1");
  EXPECT_NE(read("ring-ref"), "(missing)");
  EXPECT_NE(read("event-channel"), "(missing)");
  for (const char* absent :
       {"ring-ref0", "ring-page-order", "multi-queue-num-queues", "queue-0/ring-ref"}) {
    EXPECT_EQ(read(absent), "(missing)") << absent;
  }
}

TEST_F(StrictFrontend, TakesTheLesserOfWhatIsWantedAndOffered) {
  strict_frontend front(host_, path_.identity(),
                        {.abi = protocol::blkif::abi::x86_32,
                         .queues = 3,
                         .ring_page_order = 4,
                         .persistent = false,
                         .max_indirect_segments = 64});
  offer({{"multi-queue-max-queues", "8"},
         {"max-ring-page-order", "1"},
         {"feature-max-indirect-segments", "256"}});
  settle(front);
  EXPECT_EQ(read("multi-queue-num-queues"), "3");
  EXPECT_EQ(read("ring-page-order"), "1");
  EXPECT_EQ(read("protocol"), "x86_32-abi");
  EXPECT_EQ(read("feature-persistent"), "0");
  for (const std::string queue : {"queue-0/", "queue-1/", "queue-2/"}) {
    EXPECT_NE(read(queue + "ring-ref0"), "(missing)");
    EXPECT_NE(read(queue + "ring-ref1"), "(missing)");
    EXPECT_EQ(read(queue + "ring-ref2"), "(missing)");
    EXPECT_NE(read(queue + "event-channel"), "(missing)");
  }
  connect({{"feature-persistent", "1"},
           {"feature-flush-cache", "1"},
           {"feature-discard", "1"},
           {"discard-granularity", "4096"},
           {"physical-sector-size", "4096"},
           {"info", "6"}});
  settle(front);
  ASSERT_TRUE(front.connected()) << front.error();
  const strict_device& device = front.device();
  EXPECT_EQ(device.sectors, 2048U);
  EXPECT_EQ(device.physical_sector_size, 4096U);
  EXPECT_EQ(device.info, 6U);
  EXPECT_TRUE(device.flush);
  EXPECT_TRUE(device.discard);
  EXPECT_EQ(device.discard_granularity, 4096U);
  EXPECT_FALSE(device.barrier);
  EXPECT_FALSE(device.persistent);
  EXPECT_EQ(device.max_indirect_segments, 64U);
  EXPECT_EQ(front.queue(2).max_segments(), 64U);
  EXPECT_EQ(front.queue(0).ring_size(), 64U);
}

TEST_F(StrictFrontend, DoesNotUseIndirectRequestsThatAreNoLargerThanDirectOnes) {
  strict_frontend front(host_, path_.identity());
  offer({{"feature-max-indirect-segments", "11"}});
  settle(front);
  connect();
  settle(front);
  ASSERT_TRUE(front.connected());
  EXPECT_EQ(front.device().max_indirect_segments, 0U);
  EXPECT_EQ(front.queue(0).max_segments(), 11U);
}

TEST_F(StrictFrontend, ClosesADeviceThatDoesNotSayHowLargeItIs) {
  strict_frontend front(host_, path_.identity());
  offer({});
  settle(front);
  write({{"sector-size", "512"}, {"info", "0"}, {"state", "4"}});
  EXPECT_FALSE(front.connect());
  EXPECT_THAT(front.error(), HasSubstr("sectors"));
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::closed);
}

TEST_F(StrictFrontend, ReadsTheSizeAgainWhenTheBackendSaysConnectedAgain) {
  strict_frontend front(host_, path_.identity());
  offer({});
  settle(front);
  connect();
  settle(front);
  ASSERT_EQ(front.device().sectors, 2048U);
  write({{"sectors", "4096"}, {"state", "4"}});
  settle(front);
  EXPECT_EQ(front.device().sectors, 4096U);
}

TEST_F(StrictFrontend, ClosesWhenTheBackendDoesAndFreesEverythingWhenItIsClosed) {
  strict_frontend front(host_, path_.identity());
  offer({});
  settle(front);
  connect();
  settle(front);
  ASSERT_TRUE(front.queue(0).submit({.segments = segments_for(8)}));
  write({{"state", "5"}});
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::closing) << "a request is in flight";
  EXPECT_FALSE(front.queue(0).submit({.segments = segments_for(8)}));
  write({{"state", "6"}});
  settle(front);
  EXPECT_TRUE(front.released());
  std::size_t lost = 0;
  front.queue(0).poll([&](const block_completion& end) { lost += end.answered ? 0 : 1; });
  EXPECT_EQ(lost, 1U);
  EXPECT_EQ(front.violations_text(), "");
}

TEST_F(StrictFrontend, LeavesNoNodeOfAnEarlierConnectionBehind) {
  strict_frontend front(host_, path_.identity(), {.queues = 2, .ring_page_order = 1});
  offer({{"multi-queue-max-queues", "2"}, {"max-ring-page-order", "1"}});
  settle(front);
  connect();
  settle(front);
  write({{"state", "6"}});
  settle(front);
  ASSERT_TRUE(front.released());
  front.reopen();
  settle(front);
  offer({{"multi-queue-max-queues", "1"}, {"max-ring-page-order", "0"}});
  settle(front);
  EXPECT_EQ(front.state(), xenbus_state::initialised);
  EXPECT_NE(read("ring-ref"), "(missing)");
  for (const char* absent :
       {"ring-ref0", "ring-page-order", "multi-queue-num-queues", "queue-0", "queue-1"}) {
    EXPECT_EQ(read(absent), "(missing)") << absent;
  }
}

TEST_F(StrictFrontend, UndoesWhatItPreparedWhereTheGuestHasNotEnoughPages) {
  auto small = platform::emulated_host::create({.pages_per_domain = 24});
  auto guest = small.create_domain(guest_id);
  platform::emulated dom0(small);
  auto store = dom0.open_store();
  const auto path = xenbus::create_device(
      store,
      xenbus::describe_vbd({.frontend_domain = guest_id, .type = "vbd", .device = 51712}, {}));
  strict_frontend front(small, path.identity(), {.queues = 2, .ring_page_order = 4});
  store.write(path.backend() + "/multi-queue-max-queues", "2");
  store.write(path.backend() + "/max-ring-page-order", "4");
  store.write(path.backend() + "/state", "2");
  settle(front);
  EXPECT_THAT(front.error(), HasSubstr("pages"));
  EXPECT_TRUE(guest.allocate_pages(24)) << "none is left allocated";
}

}  // namespace
}  // namespace pvring::testing
