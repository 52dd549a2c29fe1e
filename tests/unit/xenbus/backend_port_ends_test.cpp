// SPDX-License-Identifier: MIT
// What ends a backend's connections beside a frontend that closes: toolstacks, errors, and the end
// of the backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <system_error>
#include <thread>

#include "pvring/xenbus/backend_port.hpp"
#include "recording_device.hpp"

namespace pvring::xenbus {
namespace {

using test::readable;
using testing::ElementsAre;
using testing::HasSubstr;

struct BackendPortEnds : testing::Test {
  test::silence quiet;
  test::store_tree tree;
  test::backend_bench bench{tree};
};

// --- the toolstack ---

TEST_F(BackendPortEnds, UnplugWaitsForALiveFrontend) {
  bench.connect();
  request_unplug(bench.store, bench.path);
  EXPECT_TRUE(bench.process());
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.device.connected, 1);
  bench.frontend("5");
  EXPECT_TRUE(bench.process());
  EXPECT_EQ(bench.device.connected, 1);
  bench.frontend("6");
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
  EXPECT_EQ(bench.device.connected, 0);
}

TEST_F(BackendPortEnds, UnplugWithRequestsInFlightEndsWithTheLastOfThem) {
  bench.connect();
  bench.device.always_drained = false;
  request_unplug(bench.store, bench.path);
  bench.process();
  bench.frontend("6");
  EXPECT_TRUE(bench.process());
  EXPECT_EQ(bench.state(), "5");
  bench.device.always_drained = true;
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
}

TEST_F(BackendPortEnds, UnplugWithoutALiveFrontendEndsByItself) {
  for (const char* const state : {"1", "2", "3", "6"}) {
    test::store_tree other_tree;
    test::backend_bench other(other_tree);
    other.start();
    other.process();
    // Without rings: a frontend that is Initialised here had no nodes that could be used.
    other.frontend(state);
    other.process();
    request_unplug(other.store, other.path);
    EXPECT_FALSE(other.process()) << state;
    EXPECT_EQ(other.state(), "6") << state;
  }
}

TEST_F(BackendPortEnds, UnplugAfterClosedEndsToo) {
  bench.connect();
  bench.frontend("6");
  EXPECT_TRUE(bench.process());
  request_unplug(bench.store, bench.path);
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
}

TEST_F(BackendPortEnds, OfflineAloneEndsAClosedDeviceAndNoOther) {
  bench.connect();
  tree.put(bench.path.backend() + "/online", "0");
  EXPECT_TRUE(bench.process());
  EXPECT_EQ(bench.state(), "4");
  bench.frontend("6");
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
}

TEST_F(BackendPortEnds, ClosingFromTheToolstackIsNotUndoneByAFrontendThatStays) {
  bench.connect();
  tree.put(bench.path.backend() + "/state", "5");
  for (int i = 0; i < 3; ++i) {
    bench.frontend("4");
    bench.process();
  }
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.device.count("connect"), 1);
  EXPECT_EQ(bench.device.connected, 1) << "and it is served until it closes";
}

// The toolstack's change comes between the look and the commit.
TEST_F(BackendPortEnds, AnUnplugWhileConnectingIsNotOverwritten) {
  bench.start();
  bench.process();
  bench.publish_rings();
  bench.frontend("3");
  tree.meanwhile = [&] {
    tree.put(bench.path.backend() + "/online", "0");
    tree.put(bench.path.backend() + "/state", "5");
  };
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.node("sectors"), "(missing)");
  bench.frontend("6");
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.connected, 0);
}

TEST_F(BackendPortEnds, AnUnplugWhileOfferingIsNotOverwritten) {
  bench.start();
  tree.meanwhile = [&] {
    tree.put(bench.path.backend() + "/online", "0");
    tree.put(bench.path.backend() + "/state", "5");
  };
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
}

TEST_F(BackendPortEnds, ADirectoryThatWasRemovedIsNotMadeAnew) {
  bench.connect();
  force_remove(bench.store, bench.path);
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_FALSE(tree.has(bench.path.backend()));
  EXPECT_FALSE(tree.has(bench.path.frontend()));
}

TEST_F(BackendPortEnds, ADirectoryThatIsRemovedWhileConnectingIsNotMadeAnew) {
  bench.start();
  bench.process();
  bench.publish_rings();
  bench.frontend("3");
  tree.meanwhile = [&] {
    tree.drop(bench.path.backend());
    tree.drop(bench.path.frontend());
  };
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.count("connect"), 1);
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_FALSE(tree.has(bench.path.backend()));
}

TEST_F(BackendPortEnds, ADirectoryThatIsRemovedWhileDrainingIsNotMadeAnew) {
  bench.connect();
  bench.device.always_drained = false;
  bench.frontend("6");
  bench.process();
  force_remove(bench.store, bench.path);
  bench.process();
  bench.device.always_drained = true;
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_FALSE(tree.has(bench.path.backend()));
}

TEST_F(BackendPortEnds, ADeviceThatWasMadeAnewIsAnotherDevice) {
  bench.connect();
  (void)create_device(bench.store, describe_vbd({0, 3, "vbd", 51712}, {.parameters = "other.img"}));
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_EQ(bench.state(), "1") << "left for the next port";
  test::recording_device next(bench.store, bench.path);
  backend_port<test::scripted_store, test::recording_device> port(bench.store, next, bench.path);
  EXPECT_TRUE(port.process());
  EXPECT_EQ(bench.state(), "2");
}

TEST_F(BackendPortEnds, ADirectoryThatIsNotThereIsNotMade) {
  force_remove(bench.store, bench.path);
  bench.start();
  EXPECT_FALSE(bench.process());
  EXPECT_FALSE(tree.has(bench.path.backend()));
  EXPECT_TRUE(bench.device.calls.empty());
}

// --- a backend that was there before ---

TEST_F(BackendPortEnds, WhatABackendLeftThatDiedConnectedIsNotTouchedUntilTheFrontendReconnects) {
  bench.publish_rings();
  bench.frontend("4");
  tree.put(bench.path.backend() + "/state", "4");
  bench.start();
  bench.process();
  EXPECT_TRUE(bench.device.calls.empty());
  EXPECT_EQ(bench.state(), "5");
  EXPECT_THAT(tree.get(bench.path.backend_error()), HasSubstr("an earlier backend ended"));
  bench.frontend("6");
  bench.process();
  EXPECT_EQ(bench.state(), "6");
  bench.frontend("1");
  bench.process();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.device.count("connect"), 1);
  EXPECT_EQ(bench.state(), "4");
}

// The same, of a device that may be able to continue.
struct BackendPortTakesOver : testing::Test {
  BackendPortTakesOver() {
    bench.publish_rings();
    bench.frontend("4");
    tree.put(bench.path.backend() + "/state", "4");
  }
  test::silence quiet;
  test::store_tree tree;
  test::backend_bench_of<test::inheriting_device> bench{tree};
};

TEST_F(BackendPortTakesOver, AndTheStoreDoesNotChange) {
  bench.start();
  const int commits = tree.commits;
  EXPECT_TRUE(bench.process());
  EXPECT_TRUE(bench.port->connected());
  EXPECT_EQ(bench.port->state(), xenbus_state::connected);
  EXPECT_THAT(bench.device.calls, ElementsAre("take_over", "reread"));
  EXPECT_EQ(tree.commits, commits);
  EXPECT_EQ(bench.state(), "4");
}

// Its predecessor died before the frontend had seen Connected.
TEST_F(BackendPortTakesOver, AFrontendThatIsNotThereYet) {
  bench.frontend("3");
  bench.start();
  bench.process();
  EXPECT_TRUE(bench.port->connected());
  bench.frontend("4");
  bench.process();
  EXPECT_EQ(bench.device.count("connect"), 0);
  EXPECT_EQ(bench.device.count("take_over"), 1);
}

TEST_F(BackendPortTakesOver, AndEndsLikeAnyConnection) {
  bench.start();
  bench.process();
  EXPECT_TRUE(bench.port->announce_resize());
  bench.frontend("5");
  bench.process();
  bench.frontend("6");
  bench.process();
  EXPECT_EQ(bench.state(), "6");
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_EQ(bench.device.count("finish_disconnect"), 1);
  bench.frontend("1");
  bench.process();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.device.count("connect"), 1) << "the next connection is an ordinary one";
  EXPECT_EQ(bench.device.count("take_over"), 1);
}

TEST_F(BackendPortTakesOver, OrSaysWhyNotAndHasTheFrontendConnectAnew) {
  bench.device.taking_over = []() -> bool { throw configuration_error("the journal is torn"); };
  bench.start();
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_THAT(bench.error(), HasSubstr("an earlier backend ended"));
  EXPECT_THAT(bench.error(), HasSubstr("(the journal is torn)"));
  bench.frontend("6");
  bench.process();
  bench.frontend("1");
  bench.process();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.connected, 1);
  EXPECT_EQ(bench.error(), "(missing)") << "the device works";
}

TEST_F(BackendPortTakesOver, OnlyWhereItKeepsARecord) {
  bench.device.taking_over = [] { return false; };
  bench.start();
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.device.connected, 0);
}

TEST_F(BackendPortTakesOver, NothingOfAFrontendThatHasBegunToClose) {
  bench.frontend("5");
  bench.start();
  bench.process();
  bench.frontend("6");
  bench.process();
  EXPECT_EQ(bench.device.count("take_over"), 0);
  EXPECT_EQ(bench.state(), "6");
}

TEST_F(BackendPortTakesOver, NothingOfAGuestThatIsGone) {
  force_remove(bench.store, bench.path);
  bench.start();
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.device.count("take_over"), 0);
}

TEST_F(BackendPortEnds, AnUnplugThatAnEarlierBackendDidNotLiveToSeeIsFinished) {
  request_unplug(bench.store, bench.path);
  bench.start();
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
  EXPECT_EQ(bench.device.count("advertise"), 0);
}

TEST_F(BackendPortEnds, StopEndsAConnectionWhateverTheFrontendWants) {
  bench.connect();
  bench.device.always_drained = false;
  bench.port->stop();
  EXPECT_TRUE(readable(bench.port->fd()));
  EXPECT_TRUE(bench.process());
  EXPECT_EQ(bench.device.count("begin_disconnect"), 1);
  bench.device.always_drained = true;
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
  EXPECT_EQ(bench.device.state_at_finish, "4");
  EXPECT_EQ(bench.store.watches(), 0U);
  EXPECT_FALSE(bench.process());
}

// --- errors of the device ---

// Case 106: a frontend that jumps to Connected without nodes.
TEST_F(BackendPortEnds, ARefusedFrontendFindsTheReasonInTheStoreAndIsNotTriedAgain) {
  bench.start();
  bench.process();
  bench.frontend("4");
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_THAT(bench.error(),
              HasSubstr(bench.path.frontend() + "/ring-ref (written by domain 3) is missing"));
  EXPECT_EQ(bench.node("hotplug-error"), "(missing)");
  bench.publish_rings();
  for (const char* const state : {"3", "4", "3"}) {
    bench.frontend(state);
    bench.process();
  }
  EXPECT_EQ(bench.device.count("connect"), 1);
  EXPECT_EQ(bench.state(), "5");
}

TEST_F(BackendPortEnds, ARefusedFrontendComesBackThroughClosedAndInitialising) {
  bench.start();
  bench.process();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  bench.frontend("6");
  bench.process();
  EXPECT_EQ(bench.state(), "6");
  bench.frontend("1");
  bench.process();
  EXPECT_EQ(bench.state(), "2");
  bench.publish_rings();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.error(), "(missing)") << "it works: the reason is gone";
}

TEST_F(BackendPortEnds, ADeviceThatWorksHasNoErrorOfAnEarlierProcess) {
  tree.put(bench.path.backend_error(), "the last one died of this");
  bench.connect();
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.error(), "(missing)");
}

TEST_F(BackendPortEnds, AnErrorAfterSetupUndoesTheSetup) {
  bench.device.publishing = [] { throw configuration_error("the image is gone"); };
  bench.start();
  bench.process();
  bench.publish_rings();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.error(), "the image is gone");
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_THAT(bench.device.calls, ElementsAre("advertise", "connect", "publish", "begin_disconnect",
                                              "finish_disconnect"));
}

TEST_F(BackendPortEnds, AnErrorBeforeInitWaitIsShownToTheToolstackToo) {
  bench.device.advertising = [] { throw configuration_error("no image"); };
  bench.start();
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.error(), "no image");
  EXPECT_EQ(bench.node("hotplug-error"), "no image");
  const long tries = bench.device.count("advertise");
  bench.frontend("1");
  bench.process();
  EXPECT_EQ(bench.device.count("advertise"), tries)
      << "not tried again before the frontend does something";
  request_unplug(bench.store, bench.path);
  EXPECT_FALSE(bench.process());
  EXPECT_EQ(bench.state(), "6");
}

TEST_F(BackendPortEnds, AResourceThatIsShortForNowRefusesInsteadOfSpinning) {
  bench.device.connecting = [] { throw std::system_error(EAGAIN, std::generic_category(), "map"); };
  bench.start();
  bench.process();
  bench.publish_rings();
  bench.frontend("3");
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.device.count("connect"), 1);
  bench.process();
  EXPECT_FALSE(readable(bench.port->fd()));
  EXPECT_EQ(bench.device.count("connect"), 1);
}

TEST_F(BackendPortEnds, AnErrorWhileRereadingEndsTheConnection) {
  bench.connect();
  bench.device.rereading = [] { throw configuration_error("nonsense"); };
  bench.frontend("4");
  bench.process();
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.error(), "nonsense");
  EXPECT_EQ(bench.device.connected, 0);
}

TEST_F(BackendPortEnds, AProtocolErrorDrainsUnmapsAndGoesToClosing) {
  bench.connect();
  bench.device.always_drained = false;
  bench.port->fail(protocol_error::request_producer_overrun);
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.error(), "request producer overran the ring");
  EXPECT_EQ(bench.device.count("begin_disconnect"), 1);
  bench.device.always_drained = true;
  bench.process();
  EXPECT_EQ(bench.device.connected, 0);
  EXPECT_EQ(bench.state(), "5") << "Closed is the frontend's to say first";
  for (const char* const state : {"5", "6", "1", "3", "4"}) {
    bench.frontend(state);
    bench.process();
  }
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.device.connected, 1);
}

TEST_F(BackendPortEnds, TheFirstReportFromAQueueClosesTheDevice) {
  bench.connect();
  std::thread queue([&] {
    bench.port->report(protocol_error::request_producer_overrun);
    bench.port->report(protocol_error::unknown_response);
  });
  queue.join();
  EXPECT_TRUE(readable(bench.port->fd()));
  bench.process();
  EXPECT_EQ(bench.state(), "5");
  EXPECT_EQ(bench.error(), "request producer overran the ring");
}

TEST_F(BackendPortEnds, AReportOfRingsThatAreGoneHarmsNoLaterConnection) {
  bench.connect();
  bench.frontend("6");
  bench.process();
  bench.port->report(protocol_error::request_producer_overrun);
  for (const char* const state : {"1", "3", "4"}) {
    bench.frontend(state);
    bench.process();
  }
  EXPECT_EQ(bench.state(), "4");
  EXPECT_EQ(bench.error(), "(missing)");
}

TEST_F(BackendPortEnds, FailWithoutAConnectionOnlySaysWhy) {
  bench.start();
  bench.process();
  bench.port->fail("nothing works");
  bench.process();
  EXPECT_EQ(bench.error(), "nothing works");
  EXPECT_EQ(bench.state(), "2");
}

TEST_F(BackendPortEnds, AnErrorTextFitsIntoANode) {
  bench.start();
  bench.process();
  bench.port->fail(std::string(100000, 'x'));
  EXPECT_EQ(bench.error(), std::string(1024, 'x'));
}

TEST_F(BackendPortEnds, AnErrorNodeThatCannotBeWrittenIsNoFurtherError) {
  bench.start();
  bench.process();
  tree.broken_path = "/local/domain/0/error";
  tree.error = EACCES;
  bench.frontend("4");
  EXPECT_NO_THROW(bench.process());
  EXPECT_EQ(bench.state(), "5");
}

TEST_F(BackendPortEnds, OnlyAFailingStoreIsThrown) {
  bench.connect();
  bench.frontend("6");
  tree.broken_path = bench.path.backend();
  EXPECT_THROW(bench.process(), std::system_error);
  tree.broken_path.clear();
  bench.process();
  EXPECT_EQ(bench.state(), "6") << "nothing was lost";
}

TEST_F(BackendPortEnds, OneDevicesErrorIsNotAnothers) {
  test::backend_bench other(tree, {0, 4, "vbd", 51712});
  bench.connect();
  other.start();
  other.process();
  other.publish_rings("fd:", "5");
  other.frontend("3");
  other.process();
  bench.process();
  EXPECT_EQ(other.state(), "5");
  EXPECT_EQ(bench.state(), "4");
  EXPECT_TRUE(bench.port->connected());
}

}  // namespace
}  // namespace pvring::xenbus
