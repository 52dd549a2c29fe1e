// SPDX-License-Identifier: MIT
// A device ends while the storage still works for it, with every strategy. Until the last
// completion its ring, channel and pages stay; after it nothing does. The emulated platform is told
// of every buffer in flight, and would record an unmap of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "pvring/testing/delayed_engine.hpp"
#include "support/two_devices.hpp"

namespace pvring::test {
namespace {

using namespace std::chrono_literals;
using protocol::xenbus_state;
using testing::scripted_frontend;
namespace operation = protocol::blkif::operation;

struct delayed_config : default_config {
  using engine = testing::delayed_engine;
};

// Outlives the image that reports to it.
struct watch {
  platform::in_flight_registry buffers_;
};

class Disconnect : protected watch,
                   public two_devices_of<delayed_config>,
                   public ::testing::WithParamInterface<const char*> {
 protected:
  Disconnect()
      : two_devices_of(testing::delayed_options{
            .script = {.by_hand = true,
                       .result = [this](const aio::transfer& work) { return result_of(work); },
                       .watch = &buffers_}}) {
    dom0_.set_in_flight(&buffers_);
    serve({.strategy = GetParam()});
    connect();
    data_ = guest_.allocate_pages(pages);
    for (std::uint32_t i = 0; i < pages; ++i) {
      references_.push_back(
          guest_.grant(0, data_ + i * platform::page_size, platform::access::read_write));
    }
  }
  ~Disconnect() override {
    image_.release(1000);  // nothing may wait for a test that failed
    end();
  }

  void connect() {
    ASSERT_TRUE(front_.wait_for_backend(xenbus_state::init_wait));
    front_.write("feature-persistent", "1");
    front_.write_good_nodes();
    front_.go(xenbus_state::initialised);
    ASSERT_TRUE(front_.wait_for_backend(xenbus_state::connected)) << store_error();
    ASSERT_EQ(disk_->statistics().at(0).strategy, GetParam());
    front_.go(xenbus_state::connected);
  }

  // A request for one page of its own.
  void put(std::uint8_t what) {
    protocol::blkif::request request{};
    request.operation = what;
    request.id = put_;
    request.sector_number = untrusted<std::uint64_t>(put_ * 8U);
    if (what != operation::flush) {
      request.nr_segments = untrusted<std::uint16_t>(std::uint16_t{1});
      request.direct[0] = {references_[put_ % pages], 0, 7, {}};
    }
    front_.put(request);
    ++put_;
  }

  // Reads, writes and a flush, all in the storage's hands: 5 buffers.
  void put_six() {
    for (const std::uint8_t what : {operation::read, operation::write, operation::read,
                                    operation::flush, operation::read, operation::write}) {
      put(what);
    }
    ASSERT_TRUE(wait_for_buffers(5));
  }

  bool wait_for_buffers(std::size_t n) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (buffers_.in_flight() != n && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    return buffers_.in_flight() == n;
  }

  void expect_nothing_left() {
    EXPECT_EQ(buffers_.in_flight(), 0U);
    EXPECT_EQ(buffers_.violations(), 0U) << "unmapped with I/O in flight";
    EXPECT_EQ(buffers_.dropped(), 0U);
    EXPECT_EQ(good_.host().leaked_pages(), 0U);
    for (const auto reference : front_.ring_references()) {
      EXPECT_FALSE(guest_.is_mapped(reference)) << "a page of the ring";
    }
    for (const auto reference : references_) {
      EXPECT_FALSE(guest_.is_mapped(reference)) << "a page of data";
    }
  }

  [[nodiscard]] int result_of(const aio::transfer& work) const {
    return work.offset == failing_sector_ * 512 && work.kind == aio::operation::read ? -EIO : 0;
  }

  static constexpr std::uint32_t pages = 16;
  std::atomic<std::uint64_t> failing_sector_{~std::uint64_t{0} / 512};
  scripted_frontend front_{good_.host(), hostile_device};
  std::byte* data_ = nullptr;
  std::vector<platform::grant_reference> references_;
  std::uint32_t put_ = 0;
};

// Case 93. The frontend may refuse to close a disk in use, and go on.
TEST_P(Disconnect, begins_with_closed_and_not_with_closing) {
  put_six();
  front_.go(xenbus_state::closing);
  ASSERT_TRUE(front_.wait_for_backend(xenbus_state::closing));
  put(operation::read);
  ASSERT_TRUE(wait_for_buffers(6)) << "a request after Closing is not taken";
  EXPECT_TRUE(guest_.is_mapped(front_.ring_references()[0]));
  image_.release(7);
  EXPECT_TRUE(front_.wait_for_responses(7));
  front_.go(xenbus_state::closed);
  ASSERT_TRUE(front_.wait_for_backend(xenbus_state::closed));
  expect_nothing_left();
}

// Case 93.
TEST_P(Disconnect, waits_for_the_last_completion_and_then_leaves_nothing) {
  failing_sector_ = 16;  // one of the reads ends with an error
  put_six();
  front_.go(xenbus_state::closed);
  EXPECT_FALSE(front_.wait_for_backend(xenbus_state::closed, 50ms)) << "with 6 in flight";
  image_.release(5);
  EXPECT_FALSE(front_.wait_for_backend(xenbus_state::closed, 50ms)) << "with 1 in flight";
  EXPECT_TRUE(guest_.is_mapped(front_.ring_references()[0]));
  image_.release();
  ASSERT_TRUE(front_.wait_for_backend(xenbus_state::closed));
  EXPECT_EQ(front_.response_producer(), 6U);
  expect_nothing_left();

  // And the device comes back, with the ring as it was left.
  front_.go(xenbus_state::initialising);
  connect();
  image_.release();
  put(operation::read);
  EXPECT_TRUE(front_.wait_for_responses(7));
  end();
  expect_nothing_left();
}

// Case 93: nobody says Closed.
TEST_P(Disconnect, waits_for_the_last_completion_where_the_backend_itself_is_stopped) {
  put_six();
  disk_->stop();
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(over_);
  EXPECT_EQ(buffers_.in_flight(), 5U);
  EXPECT_TRUE(guest_.is_mapped(front_.ring_references()[0]));
  image_.release(6);
  server_.join();
  EXPECT_TRUE(disk_->finished());
  expect_nothing_left();
}

// Cases 16 and 93: the frontend breaks the protocol while the storage works for it.
TEST_P(Disconnect, for_a_broken_ring_waits_for_the_last_completion) {
  put_six();
  front_.set_request_producer(1000);
  front_.kick();
  ASSERT_TRUE(front_.wait_for_backend(xenbus_state::closing));
  front_.go(xenbus_state::closed);
  EXPECT_FALSE(front_.wait_for_backend(xenbus_state::closed, 50ms));
  EXPECT_EQ(buffers_.in_flight(), 5U);
  image_.release(6);
  ASSERT_TRUE(front_.wait_for_backend(xenbus_state::closed));
  expect_nothing_left();
}

// Cases 93, 97: its grants and its channel are gone, and its memory is ours until we unmap it.
TEST_P(Disconnect, of_a_guest_that_vanishes_waits_for_the_last_completion_and_harms_no_other) {
  put_six();
  guest_.vanish();
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(over_) << "with 6 in flight";
  EXPECT_EQ(buffers_.in_flight(), 5U);
  good_device_works(3);
  image_.release(6);
  server_.join();  // the device is over: run() returned
  EXPECT_TRUE(disk_->finished());
  disk_.reset();
  expect_nothing_left();
  EXPECT_EQ(good_.host().lost_pages(), 0U);
  good_device_works();
}

INSTANTIATE_TEST_SUITE_P(every, Disconnect,
                         ::testing::Values("batched_copy", "map_each", "persistent_pool"));

}  // namespace
}  // namespace pvring::test
