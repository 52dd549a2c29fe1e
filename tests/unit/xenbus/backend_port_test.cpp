// SPDX-License-Identifier: MIT
#include "pvring/xenbus/backend_port.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <system_error>
#include <thread>

#include "recording_device.hpp"

namespace pvring::xenbus {
namespace {

using test::readable;
using testing::ElementsAre;

// --- what is no handler ---

using transaction = test::scripted_store::transaction;
static_assert(device_handler<test::recording_device, transaction>);
static_assert(rereading<test::recording_device>);
static_assert(resizable<test::recording_device, transaction>);

struct plain_device {
  void advertise(transaction&) {}
  void connect() {}
  void publish(transaction&) {}
  void begin_disconnect() noexcept {}
  bool drained() const noexcept { return true; }
  void finish_disconnect() noexcept {}
};
static_assert(device_handler<plain_device, transaction>);
static_assert(!rereading<plain_device>);
static_assert(!resizable<plain_device, transaction>);
static_assert(!taking_over<plain_device>);
static_assert(taking_over<test::inheriting_device>);
struct takes_over_without_saying_so : plain_device {
  void take_over() {}
};
static_assert(!taking_over<takes_over_without_saying_so>);
static_assert(!device_handler<plain_device, int>, "a transaction gives access to nodes");

struct throwing_teardown : plain_device {
  void begin_disconnect() {}
};
struct throwing_finish : plain_device {
  void finish_disconnect() {}
};
struct drained_that_changes : plain_device {
  bool drained() noexcept { return true; }
};
struct connect_with_a_result : plain_device {
  int connect() { return 0; }
};
struct silent_device : plain_device {
  void publish(transaction&) = delete;
};
static_assert(!device_handler<throwing_teardown, transaction>);
static_assert(!device_handler<throwing_finish, transaction>);
static_assert(!device_handler<drained_that_changes, transaction>);
static_assert(!device_handler<connect_with_a_result, transaction>);
static_assert(!device_handler<silent_device, transaction>);

template <class Port>
concept announces_sizes = requires(Port& port) { port.announce_resize(); };
static_assert(announces_sizes<backend_port<test::scripted_store, test::recording_device>>);
static_assert(!announces_sizes<backend_port<test::scripted_store, plain_device>>);

// --- the handshake ---

struct BackendPort : testing::Test {
  test::silence quiet;
  test::store_tree tree;
  test::backend_bench bench{tree};
};

TEST_F(BackendPort, OffersBeforeInitWaitInOneTransaction) {
  bench.start();
  const int commits = tree.commits;
  bench.process();
  EXPECT_EQ(bench.state(), "2");
  EXPECT_EQ(bench.node("feature-persistent"), "1");
  EXPECT_EQ(tree.commits, commits + 1);
  EXPECT_THAT(bench.device.calls, ElementsAre("advertise"));
}

TEST_F(BackendPort, PublishesTogetherWithConnectedInOneTransaction) {
  bench.start();
  bench.process();
  bench.publish_rings();
  bench.frontend("3");
  const int commits = tree.commits;
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.node("sectors"), "2048");
  EXPECT_EQ(tree.commits, commits + 1);
  EXPECT_TRUE(bench.port->connected());
  EXPECT_THAT(bench.device.calls, ElementsAre("advertise", "connect", "publish"));
}

TEST_F(BackendPort, AMissedInitialisedIsNoObstacle) {
  bench.start();
  bench.process();
  bench.publish_rings();
  bench.frontend("3");
  bench.frontend("4");
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.count("connect"), 1);
}

// Case 128: a frontend that was suspended while Initialised, or came first.
TEST_F(BackendPort, AFrontendThatIsReadyFirstIsOfferedAndConnectedAtOnce) {
  bench.publish_rings();
  bench.frontend("3");
  bench.start();
  bench.process();
  EXPECT_THAT(bench.device.calls, ElementsAre("advertise", "connect", "publish"));
  EXPECT_EQ(bench.state(), "4");
}

// Case 106.
TEST_F(BackendPort, TheSameStateFiredThreeTimesSetsUpOneRing) {
  bench.start();
  bench.process();
  bench.publish_rings();
  for (int i = 0; i < 3; ++i) {
    bench.frontend("3");
    bench.process();
  }
  for (int i = 0; i < 3; ++i) {
    bench.frontend("4");
    bench.process();
  }
  EXPECT_EQ(bench.device.count("connect"), 1);
  EXPECT_EQ(bench.device.count("publish"), 1);
  EXPECT_EQ(bench.device.count("begin_disconnect"), 0);
}

// Case 97: a node rewritten with the same value.
TEST_F(BackendPort, ANodeRewrittenWithItsValueCausesNoWrite) {
  bench.connect();
  const int before = tree.written(bench.path.backend() + "/state");
  const int commits = tree.commits;
  bench.frontend("4");
  tree.put(bench.path.backend() + "/online", "1");
  bench.process();
  EXPECT_EQ(tree.written(bench.path.backend() + "/state"), before);
  EXPECT_EQ(tree.commits, commits);
  EXPECT_FALSE(readable(bench.port->fd())) << "and no watch of its own keeps it busy";
}

// Case 106: a node rewritten 10^5 times.
TEST_F(BackendPort, AStormOfWatchEventsIsOneLook) {
  bench.connect();
  for (int i = 0; i < 100000; ++i) {
    bench.frontend("4");
  }
  EXPECT_LE(bench.store.waiting(), 4U);
  const long before = bench.device.count("reread");
  bench.process();
  EXPECT_EQ(bench.device.count("reread"), before + 1);
  EXPECT_EQ(bench.device.count("connect"), 1);
}

// Case 106: a frontend that never stops does not keep the thread.
TEST_F(BackendPort, OnePassTakesABoundedNumberOfEvents) {
  bench.connect();
  for (int i = 0; i < 1000; ++i) {
    bench.store.queue(bench.path.frontend() + "/state/" + std::to_string(i), bench.path.backend());
  }
  bench.process();
  EXPECT_GT(bench.store.waiting(), 0U);
  EXPECT_TRUE(readable(bench.port->fd()));
  while (readable(bench.port->fd())) {
    bench.process();
  }
  EXPECT_EQ(bench.store.waiting(), 0U);
}

// Case 106: commits that fail with EAGAIN.
TEST_F(BackendPort, AConflictRepeatsTheNodesAndNothingElse) {
  bench.start();
  tree.conflicts = 2;
  bench.process();
  EXPECT_EQ(bench.state(), "2");
  EXPECT_EQ(bench.device.count("advertise"), 3);
  bench.publish_rings();
  bench.frontend("3");
  tree.conflicts = 2;
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.count("publish"), 3);
  EXPECT_EQ(bench.device.count("connect"), 1);
  EXPECT_EQ(tree.written(bench.path.backend() + "/sectors"), 1);
}

TEST_F(BackendPort, AStoreThatStaysBusyIsAskedAgainWithoutConnectingTwice) {
  bench.start();
  bench.process();
  bench.publish_rings();
  bench.frontend("3");
  tree.conflicts = 1000;
  const int bodies = tree.bodies;
  bench.process();
  EXPECT_EQ(tree.bodies, bodies + test::scripted_store::most_attempts) << "one try for each pass";
  EXPECT_EQ(bench.state(), "2");
  EXPECT_TRUE(readable(bench.port->fd()));
  EXPECT_EQ(bench.error(), "(missing)");
  tree.conflicts = 0;
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.count("connect"), 1);
}

// --- frontends that go ---

// Case 97: 4 -> 5 -> 6.
TEST_F(BackendPort, ClosingKeepsTheRingsAndClosedEndsThem) {
  bench.connect();
  bench.frontend("5");
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.device.count("begin_disconnect"), 0);
  EXPECT_EQ(bench.device.connected, 1);
  bench.frontend("6");
  bench.process();
  EXPECT_EQ(bench.state(), "6");
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_FALSE(bench.port->finished()) << "online: the frontend may come back";
}

TEST_F(BackendPort, EverythingIsUnmappedBeforeClosedIsWritten) {
  bench.connect();
  bench.frontend("6");
  bench.process();
  EXPECT_EQ(bench.device.state_at_finish, "4");
  EXPECT_EQ(bench.state(), "6");
}

// Case 97: 4 -> 6.
TEST_F(BackendPort, AFrontendThatGoesDirectlyToClosedIsDisconnected) {
  bench.connect();
  bench.frontend("6");
  bench.process();
  EXPECT_EQ(bench.state(), "6");
  EXPECT_EQ(bench.device.count("begin_disconnect"), 1);
  EXPECT_EQ(bench.device.count("finish_disconnect"), 1);
}

// Case 97: 4 -> (node deleted).
TEST_F(BackendPort, AFrontendWhoseStateVanishesIsOver) {
  bench.connect();
  tree.drop(bench.path.frontend());
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_EQ(bench.state(), "6");
  EXPECT_TRUE(bench.port->finished());
}

// A domain that was destroyed takes the permission to look for it along.
TEST_F(BackendPort, AFrontendThatMayNoLongerBeReadIsOver) {
  bench.connect();
  tree.drop(bench.path.frontend());
  tree.broken_path = bench.path.frontend();
  tree.error = EACCES;
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_EQ(bench.state(), "6");
}

TEST_F(BackendPort, AStateThatIsNoneCountsAsVanished) {
  bench.connect();
  bench.frontend("garbage");
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
}

// Case 97: 6 -> 1 -> 3 -> 4.
TEST_F(BackendPort, AFrontendThatComesBackIsOfferedAndConnectedAnew) {
  bench.connect();
  bench.frontend("6");
  bench.process();
  bench.frontend("1");
  bench.process();
  EXPECT_EQ(bench.state(), "2");
  bench.publish_rings("9", "6");
  bench.frontend("3");
  bench.process();
  bench.frontend("4");
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.count("connect"), 2);
  EXPECT_EQ(bench.device.count("advertise"), 2);
}

// Case 97: 4 -> 5 -> 4.
TEST_F(BackendPort, AFrontendThatThinksBetterOfClosingIsConnectedToItsNodesAgain) {
  bench.connect();
  bench.frontend("5");
  bench.process();
  bench.frontend("4");
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.count("finish_disconnect"), 1);
  EXPECT_EQ(bench.device.count("connect"), 2);
}

TEST_F(BackendPort, AClosingThatWasMissedChangesNothing) {
  bench.connect();
  bench.frontend("5");
  bench.frontend("4");
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.count("connect"), 1);
}

// Case 97 with every state between missed: 4 -> 6 -> 1.
TEST_F(BackendPort, AFrontendThatStartedAnewLosesItsOldRingsAndNeverSeesClosed) {
  bench.connect();
  test::scripted_store other{tree};
  const int before = tree.written(bench.path.backend() + "/state");
  bench.frontend("6");
  bench.frontend("1");
  bench.process();
  EXPECT_EQ(bench.state(), "2");
  EXPECT_EQ(tree.written(bench.path.backend() + "/state"), before + 1);
  EXPECT_EQ(bench.device.connected, 0);
}

// Case 97: a teardown that blocks the thread.
TEST_F(BackendPort, DrainingNeverWaits) {
  bench.connect();
  bench.device.always_drained = false;
  bench.frontend("6");
  bench.process();
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.count("begin_disconnect"), 1);
  EXPECT_EQ(bench.device.connected, 1);
  bench.device.always_drained = true;
  bench.port->wake();
  EXPECT_TRUE(readable(bench.port->fd()));
  bench.process();
  EXPECT_EQ(bench.state(), "6");
  EXPECT_EQ(bench.device.connected, 0);
}

TEST_F(BackendPort, WhateverTheFrontendDoesWhileDrainingWaitsForItsEnd) {
  bench.connect();
  bench.device.always_drained = false;
  bench.frontend("6");
  bench.process();
  for (const char* const state : {"1", "3", "4", "5", "6", "1"}) {
    bench.frontend(state);
    bench.process();
    EXPECT_EQ(bench.state(), "4") << state;
  }
  bench.device.always_drained = true;
  bench.process();
  EXPECT_EQ(bench.state(), "2");
  EXPECT_EQ(bench.device.count("begin_disconnect"), 1);
}

TEST_F(BackendPort, TheLastCompletionWakesThePortFromItsThread) {
  bench.connect();
  bench.device.always_drained = false;
  bench.frontend("6");
  bench.process();
  while (readable(bench.port->fd())) {
    bench.process();
  }
  std::thread queue([&] { bench.port->wake(); });
  pollfd waiting{bench.port->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 10000), 1);
  queue.join();
}

// Case 96: a hundred connections.
TEST_F(BackendPort, ConnectionsLeaveNothingBehind) {
  bench.connect();
  const std::size_t watches = bench.store.watches();
  for (int i = 0; i < 100; ++i) {
    for (const char* const state : {"5", "6", "1", "3", "4"}) {
      bench.frontend(state);
      bench.process();
    }
    ASSERT_EQ(bench.state(), "4");
  }
  EXPECT_EQ(bench.device.connected, 1);
  EXPECT_EQ(bench.device.count("connect"), 101);
  EXPECT_EQ(bench.store.watches(), watches);
}

// --- a device that is not ready yet ---

struct hesitant_device : test::recording_device {
  using recording_device::recording_device;
  bool is_ready = false;
  int asked = 0;
  bool ready() {
    ++asked;
    return is_ready;
  }
};
static_assert(keeps_waiting<hesitant_device>);
static_assert(!keeps_waiting<plain_device>);

TEST_F(BackendPort, AFrontendWaitsForADeviceThatIsNotReady) {
  test::backend_bench_of<hesitant_device> slow{tree, {0, 4, "vbd", 51712}};
  slow.start();
  slow.port->watch("hotplug-status");
  slow.process();
  EXPECT_EQ(slow.state(), "2") << "the offer needs no uplink";
  slow.publish_rings();
  slow.frontend("3");
  slow.process();
  slow.frontend("4");
  slow.process();
  EXPECT_EQ(slow.state(), "2");
  EXPECT_FALSE(readable(slow.port->fd())) << "it would turn in a circle";
  EXPECT_EQ(slow.device.count("connect"), 0);
  const int asked = slow.device.asked;
  slow.process();
  EXPECT_EQ(slow.device.asked, asked);

  // The other one is not held up.
  bench.connect();

  slow.device.is_ready = true;
  tree.put(slow.path.backend() + "/hotplug-status", "connected");
  EXPECT_TRUE(readable(slow.port->fd()));
  slow.process();
  EXPECT_EQ(slow.state(), "4");
  EXPECT_EQ(slow.device.count("connect"), 1);
}

TEST_F(BackendPort, ADeviceThatNeverGetsReadyCanBeUnplugged) {
  test::backend_bench_of<hesitant_device> slow{tree, {0, 4, "vbd", 51712}};
  slow.start();
  slow.process();
  slow.publish_rings();
  slow.frontend("4");
  slow.process();
  tree.put(slow.path.backend() + "/online", "0");
  tree.put(slow.path.backend() + "/state", "5");
  slow.process();
  slow.frontend("6");
  slow.process();
  EXPECT_TRUE(slow.port->finished());
  EXPECT_EQ(slow.device.count("connect"), 0);
}

// --- negotiation ---

// Case 55: without the feature, then with it.
TEST_F(BackendPort, EachConnectStartsFromWhatIsConfigured) {
  bench.start();
  bench.process();
  bench.frontend_node("feature-persistent", "0");
  bench.publish_rings();
  bench.frontend("3");
  bench.process();
  EXPECT_FALSE(bench.device.persistent_negotiated);
  bench.frontend("6");
  bench.process();
  bench.frontend("1");
  bench.process();
  EXPECT_EQ(bench.node("feature-persistent"), "1");
  bench.frontend_node("feature-persistent", "1");
  bench.frontend("3");
  bench.process();
  EXPECT_TRUE(bench.device.persistent_negotiated);
}

// Cases 123 and 128: back with fewer queues.
TEST_F(BackendPort, AFrontendMayComeBackWithAnotherNumberOfQueues) {
  bench.start();
  bench.process();
  bench.frontend_node("multi-queue-num-queues", "4");
  for (int i = 0; i < 4; ++i) {
    bench.frontend_node("queue-" + std::to_string(i) + "/ring-ref", std::to_string(i));
    bench.frontend_node("queue-" + std::to_string(i) + "/event-channel", std::to_string(i));
  }
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.device.queues, 4U);
  bench.frontend("6");
  bench.process();
  tree.drop(bench.path.frontend() + "/multi-queue-num-queues");
  bench.publish_rings();
  bench.frontend("1");
  bench.process();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.device.queues, 1U);
  EXPECT_EQ(bench.state(), "4");
}

// --- live resize ---

TEST_F(BackendPort, ANewSizeAndTheSameStateAreOneTransaction) {
  bench.connect();
  test::scripted_store guest(tree);
  guest.watch(bench.path.backend() + "/state", "guest");
  (void)guest.next_event();
  bench.device.sectors = 4096;
  tree.conflicts = 2;
  const int commits = tree.commits;
  EXPECT_TRUE(bench.port->announce_resize());
  EXPECT_EQ(tree.commits, commits + 1);
  EXPECT_EQ(bench.node("sectors"), "4096");
  EXPECT_EQ(bench.state(), "4");
  EXPECT_TRUE(guest.next_event().has_value()) << "the frontend's watch has to fire";
  bench.process();
  EXPECT_EQ(bench.device.count("connect"), 1);
}

TEST_F(BackendPort, WithoutAConnectionTheNextPublishTellsTheSize) {
  bench.start();
  bench.process();
  bench.device.sectors = 4096;
  EXPECT_FALSE(bench.port->announce_resize());
  EXPECT_EQ(bench.node("sectors"), "(missing)");
  bench.publish_rings();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.node("sectors"), "4096");
}

TEST_F(BackendPort, AResizeThatMeetsAnUnplugLosesToIt) {
  bench.connect();
  tree.meanwhile = [&] { tree.put(bench.path.backend() + "/state", "5"); };
  bench.device.sectors = 4096;
  EXPECT_FALSE(bench.port->announce_resize());
  EXPECT_EQ(bench.state(), "5");
}

// --- watches and connections ---

// Case 97: a watch callback that removes its own watch.
TEST_F(BackendPort, TheEventThatEndsTheDeviceAlsoEndsItsWatches) {
  bench.connect();
  request_unplug(bench.store, bench.path);
  bench.frontend("6");
  tree.drop(bench.path.frontend());
  EXPECT_GE(bench.store.waiting(), 2U);
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.store.watches(), 0U);
  EXPECT_FALSE(bench.port->accept({bench.path.backend() + "/state", bench.path.backend()}));
  EXPECT_FALSE(bench.process());
}

TEST_F(BackendPort, DevicesMayShareAConnection) {
  test::scripted_store store(tree);
  test::backend_bench second(tree, {0, 4, "vbd", 51712});
  test::recording_device a(store, bench.path);
  test::recording_device b(store, second.path);
  backend_port<test::scripted_store, test::recording_device> first_port(store, a, bench.path);
  backend_port<test::scripted_store, test::recording_device> second_port(store, b, second.path);
  const auto pump = [&] {
    while (const auto event = store.next_event()) {
      EXPECT_NE(first_port.accept(*event), second_port.accept(*event));
    }
    first_port.look();
    second_port.look();
  };
  pump();
  pump();
  second.publish_rings();
  second.frontend("3");
  pump();
  EXPECT_EQ(bench.state(), "2");
  EXPECT_EQ(second.state(), "4");
  EXPECT_EQ(a.count("connect"), 0);
  second.frontend("6");
  pump();
  EXPECT_EQ(second.state(), "6");
}

// Case 104: an event's path is never taken apart.
TEST_F(BackendPort, EventsWithOddPathsAreHarmless) {
  bench.connect();
  for (const char* const path :
       {"", "/", "fd", "/local", "@releaseDomain", "/local/domain/0/backend"}) {
    bench.store.queue(path, bench.path.backend());
    bench.store.queue(path, "somebody else");
    bench.store.queue(path, "");
  }
  EXPECT_TRUE(bench.process());
  EXPECT_EQ(bench.state(), "4");
}

TEST_F(BackendPort, AWatchThatIsRefusedLeavesNoOtherBehind) {
  tree.broken_path = bench.path.frontend();
  tree.error = ENOSPC;
  EXPECT_THROW(bench.start(), std::system_error);
  EXPECT_EQ(bench.store.watches(), 0U);
}

TEST_F(BackendPort, TheFrontendIsWhereTheLinkSays) {
  tree.put(bench.path.backend() + "/frontend", "/elsewhere/front");
  tree.put("/elsewhere/front/state", "1");
  bench.path = resolve_from_backend(bench.store, bench.path.identity());
  bench.start();
  bench.process();
  EXPECT_EQ(bench.state(), "2");
  tree.put("/elsewhere/front/state", "5");
  EXPECT_TRUE(readable(bench.port->fd()));
  bench.process();
  EXPECT_EQ(bench.state(), "5");
}

}  // namespace
}  // namespace pvring::xenbus
