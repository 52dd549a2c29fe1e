// SPDX-License-Identifier: MIT
#include "pvring/xenbus/frontend_port.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "recording_device.hpp"
#include "recording_frontend.hpp"
#include "scripted_store.hpp"

namespace pvring::xenbus {
namespace {

using test::readable;
using testing::ElementsAre;

using transaction = test::scripted_store::transaction;
using device_type = test::recording_frontend<test::scripted_store>;
static_assert(frontend_handler<device_type, transaction>);
static_assert(!frontend_handler<test::recording_device, transaction>,
              "a backend's device is none of a frontend");
static_assert(!device_handler<device_type, transaction>);

struct throwing_release : device_type {
  void release() {}
};
static_assert(!frontend_handler<throwing_release, transaction>);

struct FrontendPort : testing::Test {
  test::silence quiet;
  test::store_tree tree;
  test::scripted_store store{tree};
  device_path path = create_device(store, describe_vbd({0, 3, "vbd", 51712}, {}));
  device_type device{store, path};
  std::optional<frontend_port<test::scripted_store, device_type>> port;

  void start() { port.emplace(store, device, path); }
  void backend(const std::string& state) { tree.put(path.backend() + "/state", state); }
  [[nodiscard]] std::string state() const { return tree.get(path.frontend() + "/state"); }
  void connect() {
    start();
    backend("2");
    port->process();
    tree.put(path.backend() + "/sectors", "2048");
    backend("4");
    port->process();
    ASSERT_EQ(state(), "4");
  }
};

TEST_F(FrontendPort, WaitsForInitWait) {
  start();
  port->process();
  EXPECT_EQ(state(), "1");
  EXPECT_TRUE(device.calls.empty());
}

TEST_F(FrontendPort, WritesItsNodesAndInitialisedInOneTransaction) {
  start();
  port->process();
  backend("2");
  tree.conflicts = 2;
  const int commits = tree.commits;
  port->process();
  EXPECT_EQ(state(), "3");
  EXPECT_EQ(tree.commits, commits + 1);
  EXPECT_EQ(tree.get(path.frontend() + "/event-channel"), "10");
  EXPECT_THAT(device.calls, ElementsAre("prepare", "publish", "publish", "publish"));
}

TEST_F(FrontendPort, GoesToConnectedWhenTheBackendIs) {
  connect();
  EXPECT_TRUE(port->connected());
  EXPECT_EQ(device.sectors, 2048U);
  EXPECT_EQ(port->backend_state(), xenbus_state::connected);
}

TEST_F(FrontendPort, ConnectedOnceMoreMeansLookAgain) {
  connect();
  tree.put(path.backend() + "/sectors", "4096");
  backend("4");
  port->process();
  EXPECT_EQ(device.sectors, 4096U);
  EXPECT_EQ(device.count("connect"), 1);
}

// As a network frontend's.
struct eager_device : device_type {
  static constexpr bool connects_at_once = true;
  using device_type::device_type;
};
static_assert(connecting_at_once<eager_device> && !connecting_at_once<device_type>);

TEST_F(FrontendPort, ADeviceThatDoesNotWaitIsConnectedWithItsNodes) {
  eager_device eager(store, path);
  frontend_port<test::scripted_store, eager_device> front(store, eager, path);
  backend("2");
  front.process();
  EXPECT_EQ(state(), "4");
  EXPECT_EQ(tree.get(path.frontend() + "/event-channel"), "10");
  EXPECT_FALSE(front.connected()) << "its backend is not";
  EXPECT_THAT(eager.calls, ElementsAre("prepare", "publish"));
  tree.put(path.backend() + "/sectors", "2048");
  backend("4");
  front.process();
  EXPECT_TRUE(front.connected());
  EXPECT_THAT(eager.calls, ElementsAre("prepare", "publish", "connect"));
  backend("4");
  front.process();
  EXPECT_THAT(eager.calls, ElementsAre("prepare", "publish", "connect", "reread"));
  backend("5");
  front.process();
  EXPECT_EQ(eager.count("begin_close"), 1);
  EXPECT_EQ(state(), "6");
  backend("6");
  front.process();
  EXPECT_TRUE(front.released());
}

TEST_F(FrontendPort, ADeviceThatDoesNotWaitClosesWhereItsBackendNeverConnects) {
  eager_device eager(store, path);
  frontend_port<test::scripted_store, eager_device> front(store, eager, path);
  backend("2");
  front.process();
  ASSERT_EQ(state(), "4");
  backend("5");
  front.process();
  backend("6");
  front.process();
  EXPECT_TRUE(front.released());
  EXPECT_THAT(eager.calls, ElementsAre("prepare", "publish", "release"))
      << "what has not connected is not told to close";
}

TEST_F(FrontendPort, ADeviceThatDoesNotWaitSaysWhatItDoesNotLikeOfItsBackend) {
  eager_device eager(store, path);
  eager.connecting = [] { throw configuration_error("no good"); };
  frontend_port<test::scripted_store, eager_device> front(store, eager, path);
  backend("2");
  front.process();
  backend("4");
  front.process();
  EXPECT_EQ(front.error(), "no good");
  EXPECT_FALSE(front.connected());
}

TEST_F(FrontendPort, ADeviceInUseStaysInClosingUntilItIsLetGo) {
  connect();
  device.in_use = true;
  backend("5");
  port->process();
  EXPECT_EQ(state(), "5");
  EXPECT_EQ(device.count("begin_close"), 1);
  device.in_use = false;
  port->wake();
  EXPECT_TRUE(readable(port->fd()));
  port->process();
  EXPECT_EQ(state(), "6");
  EXPECT_EQ(device.rings, 1) << "the backend may still have them mapped";
  backend("6");
  port->process();
  EXPECT_EQ(device.rings, 0);
  EXPECT_TRUE(port->released());
}

TEST_F(FrontendPort, CloseEndsAConnection) {
  connect();
  port->close();
  port->process();
  EXPECT_EQ(state(), "6");
  backend("6");
  port->process();
  EXPECT_TRUE(port->released());
  EXPECT_EQ(device.count("begin_close"), 1);
}

TEST_F(FrontendPort, CloseBeforeAnythingIsThereIsClosedAtOnce) {
  start();
  port->close();
  EXPECT_EQ(state(), "6");
  EXPECT_TRUE(port->released());
}

TEST_F(FrontendPort, CloseWhileInitialisedGivesTheRingsBack) {
  start();
  backend("2");
  port->process();
  port->close();
  port->process();
  EXPECT_EQ(state(), "6");
  backend("6");
  port->process();
  EXPECT_EQ(device.rings, 0);
  EXPECT_EQ(device.count("begin_close"), 0) << "it was never connected";
}

TEST_F(FrontendPort, ReopenWaitsUntilTheBackendHasNoticedTheEnd) {
  connect();
  port->close();
  port->reopen();
  port->process();
  EXPECT_EQ(state(), "6");
  backend("6");
  port->process();
  EXPECT_EQ(state(), "1");
  backend("2");
  port->process();
  EXPECT_EQ(state(), "3");
  EXPECT_EQ(device.rings, 1);
}

TEST_F(FrontendPort, ABackendThatIsClosedOrGoneEndsTheConnectionAtOnce) {
  for (const bool vanish : {false, true}) {
    test::store_tree other_tree;
    test::scripted_store other(other_tree);
    (void)create_device(other, describe_vbd({0, 3, "vbd", 51712}, {}));
    other_tree.put(path.backend() + "/sectors", "2048");
    device_type disk(other, path);
    disk.in_use = true;
    frontend_port<test::scripted_store, device_type> end(other, disk, path);
    for (const char* const step : {"2", "4"}) {
      other_tree.put(path.backend() + "/state", step);
      end.process();
    }
    ASSERT_TRUE(end.connected());
    vanish ? other_tree.drop(path.backend()) : other_tree.put(path.backend() + "/state", "6");
    end.process();
    EXPECT_TRUE(end.released());
    EXPECT_EQ(other_tree.get(path.frontend() + "/state"), "6");
    EXPECT_EQ(disk.calls.back(), "release");
  }
}

TEST_F(FrontendPort, ABackendThatRefusesBeforeConnectedClosesIt) {
  start();
  backend("2");
  port->process();
  backend("5");
  port->process();
  EXPECT_EQ(state(), "6");
  EXPECT_EQ(device.count("connect"), 0);
}

TEST_F(FrontendPort, ABackendThatRefusesBeforeInitialisedClosesIt) {
  start();
  backend("5");
  port->process();
  EXPECT_EQ(state(), "6");
  EXPECT_TRUE(port->released());
}

TEST_F(FrontendPort, AnErrorWhilePreparingClosesIt) {
  device.preparing = [] { throw configuration_error("no grants left"); };
  start();
  backend("2");
  port->process();
  EXPECT_EQ(state(), "6");
  EXPECT_EQ(port->error(), "no grants left");
  EXPECT_EQ(tree.get(path.frontend_error()), "no grants left");
  EXPECT_EQ(device.rings, 0);
}

TEST_F(FrontendPort, ABackendWithoutItsNodesIsRefused) {
  start();
  backend("2");
  port->process();
  backend("4");
  port->process();
  EXPECT_EQ(state(), "6");
  EXPECT_NE(port->error().find("sectors"), std::string::npos);
  EXPECT_EQ(device.rings, 1);
  backend("6");
  port->process();
  EXPECT_EQ(device.rings, 0);
  port->reopen();
  port->process();
  EXPECT_EQ(port->error(), "") << "a new attempt";
}

TEST_F(FrontendPort, ADirectoryThatWasRemovedIsNotMadeAnew) {
  connect();
  force_remove(store, path);
  port->process();
  EXPECT_TRUE(port->released());
  EXPECT_FALSE(tree.has(path.frontend()));
}

TEST_F(FrontendPort, AStateThatAnEarlierDriverLeftIsClosedFirst) {
  tree.put(path.frontend() + "/state", "4");
  backend("4");
  start();
  port->reopen();
  port->process();
  EXPECT_EQ(state(), "6");
  EXPECT_EQ(device.count("connect"), 0);
  backend("6");
  port->process();
  EXPECT_EQ(state(), "1");
}

TEST_F(FrontendPort, AStateThatItNeverWritesIsGivenUp) {
  connect();
  tree.put(path.frontend() + "/state", "garbage");
  port->process();
  EXPECT_EQ(state(), "6");
  EXPECT_EQ(device.rings, 0);
}

TEST_F(FrontendPort, OnePassTakesABoundedNumberOfEvents) {
  connect();
  for (int i = 0; i < 1000; ++i) {
    store.queue(path.backend() + "/state/" + std::to_string(i), path.frontend());
  }
  port->process();
  EXPECT_GT(store.waiting(), 0U);
  EXPECT_FALSE(port->accept({path.backend(), "somebody else"}));
}

}  // namespace
}  // namespace pvring::xenbus
