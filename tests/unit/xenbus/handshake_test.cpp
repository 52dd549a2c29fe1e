// SPDX-License-Identifier: MIT
// Both ends against each other, each on its own connection, driven by nothing but their
// descriptors.
#include <gtest/gtest.h>

#include <string>

#include "recording_device.hpp"
#include "recording_frontend.hpp"

namespace pvring::xenbus {
namespace {

struct Handshake : testing::Test {
  test::silence quiet;
  test::store_tree tree;
  test::backend_bench back{tree};
  test::scripted_store guest{tree};
  test::recording_frontend<test::scripted_store> front_device{guest, back.path};
  frontend_port<test::scripted_store, test::recording_frontend<test::scripted_store>> front{
      guest, front_device, back.path};

  void SetUp() override { back.start(); }
  void settle() {
    for (int i = 0; i < 100; ++i) {
      const bool b = test::readable(back.port->fd());
      const bool f = test::readable(front.fd());
      if (!b && !f) {
        return;
      }
      if (b) {
        back.process();
      }
      if (f) {
        front.process();
      }
    }
    FAIL() << "the two ends never come to rest";
  }
  [[nodiscard]] bool connected() const { return back.port->connected() && front.connected(); }
};

TEST_F(Handshake, BothEndsComeToConnected) {
  settle();
  EXPECT_TRUE(connected());
  EXPECT_EQ(front_device.sectors, 2048U);
}

TEST_F(Handshake, TheFrontendClosesAndComesBackWithAnotherShape) {
  settle();
  front_device.queues = 4;
  front_device.page_order = 2;
  front.close();
  front.reopen();
  settle();
  EXPECT_TRUE(connected());
  EXPECT_EQ(back.device.queues, 4U);
  front_device.queues = 1;
  front_device.page_order = 0;
  front.close();
  settle();
  EXPECT_TRUE(front.released());
  EXPECT_EQ(back.device.connected, 0);
  front.reopen();
  settle();
  EXPECT_TRUE(connected());
  EXPECT_EQ(back.device.queues, 1U);
  EXPECT_EQ(back.device.count("connect"), 3);
}

TEST_F(Handshake, ASizeIsTakenOverLive) {
  settle();
  back.device.sectors = 4096;
  EXPECT_TRUE(back.port->announce_resize());
  settle();
  EXPECT_EQ(front_device.sectors, 4096U);
  EXPECT_EQ(front_device.count("connect"), 1);
}

TEST_F(Handshake, UnplugEndsBothEnds) {
  settle();
  front_device.in_use = true;
  request_unplug(back.store, back.path);
  settle();
  EXPECT_FALSE(back.port->finished());
  EXPECT_EQ(back.device.connected, 1) << "a disk in use is served";
  front_device.in_use = false;
  front.wake();
  settle();
  EXPECT_TRUE(back.port->finished());
  EXPECT_TRUE(front.released());
  EXPECT_EQ(back.device.connected, 0);
}

TEST_F(Handshake, AProtocolErrorIsSurvivedByReopening) {
  settle();
  back.port->report(protocol_error::request_producer_overrun);
  settle();
  EXPECT_TRUE(front.released());
  EXPECT_EQ(back.state(), "6");
  front.reopen();
  settle();
  EXPECT_TRUE(connected());
}

TEST_F(Handshake, ARefusedFrontendClosesAndMayTryAgain) {
  front_device.queues = 5;
  settle();
  EXPECT_FALSE(connected());
  EXPECT_TRUE(front.released());
  EXPECT_NE(back.error().find("multi-queue-num-queues"), std::string::npos);
  front_device.queues = 2;
  front.reopen();
  settle();
  EXPECT_TRUE(connected());
}

TEST_F(Handshake, ADrainingBackendHoldsTheFrontendsRings) {
  settle();
  back.device.always_drained = false;
  front.close();
  settle();
  EXPECT_EQ(front_device.rings, 1);
  back.device.always_drained = true;
  back.port->wake();
  settle();
  EXPECT_EQ(front_device.rings, 0);
}

TEST_F(Handshake, ABackendThatStopsLeavesAFrontendThatMayWait) {
  settle();
  back.port->stop();
  settle();
  EXPECT_TRUE(back.port->finished());
  EXPECT_TRUE(front.released());
  front.reopen();
  settle();
  EXPECT_EQ(front.state(), xenbus_state::initialising);
  back.start();
  settle();
  EXPECT_TRUE(connected());
}

TEST_F(Handshake, ABackendThatDiedIsReplacedOnceTheFrontendHasReconnected) {
  settle();
  back.port.reset();
  back.device.connected = 0;
  back.start();
  settle();
  EXPECT_FALSE(connected());
  EXPECT_EQ(front_device.count("begin_close"), 1);
  EXPECT_TRUE(front.released());
  front.reopen();
  settle();
  EXPECT_TRUE(connected());
}

TEST_F(Handshake, ForcedRemovalEndsBothEnds) {
  settle();
  force_remove(back.store, back.path);
  settle();
  EXPECT_TRUE(back.port->finished());
  EXPECT_TRUE(front.released());
  EXPECT_FALSE(tree.has(back.path.backend()));
  EXPECT_FALSE(tree.has(back.path.frontend()));
}

}  // namespace
}  // namespace pvring::xenbus
