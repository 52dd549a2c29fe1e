// SPDX-License-Identifier: MIT
// What a hostile frontend comes to: its own device ends with a named error, in the store too; a
// good device beside it, served by the same process on the same host, goes on with its data right.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "pvring/testing/scripted_frontend.hpp"
#include "support/two_devices.hpp"

namespace pvring::test {
namespace {

using protocol::xenbus_state;
using testing::hostile_frontend;
using testing::scripted_frontend;

using two_devices = two_devices_of<memory_config>;

// Case 16.
TEST_F(two_devices,
       a_producer_beyond_the_ring_closes_its_own_device_with_the_reason_and_it_may_come_back) {
  serve();
  scripted_frontend front(good_.host(), hostile_device);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
  front.write_good_nodes();
  front.go(xenbus_state::initialised);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::connected));
  front.go(xenbus_state::connected);
  front.set_request_producer(1000);
  front.kick();
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::closing))
      << "state " << static_cast<int>(front.backend_state());
  EXPECT_NE(store_error().find("overran"), std::string::npos) << store_error();
  good_device_works();

  front.go(xenbus_state::closed);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::closed));
  EXPECT_FALSE(guest_.is_mapped(front.ring_references()[0]));
  front.reset_ring();
  front.go(xenbus_state::initialising);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
  front.go(xenbus_state::initialised);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::connected));
  protocol::blkif::request flush{};
  flush.operation = 200;
  front.put(flush);
  EXPECT_TRUE(front.wait_for_responses(1));
}

// Case 88: requests that were put before the backend bound its channel are served without a kick of
// their own.
TEST_F(two_devices, requests_from_before_the_connection_are_answered) {
  scripted_frontend front(good_.host(), hostile_device);
  for (int i = 0; i < 3; ++i) {
    protocol::blkif::request unknown{};
    unknown.operation = 77;
    front.put(unknown);
  }
  serve();
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
  front.write_good_nodes();
  front.go(xenbus_state::connected);  // and Initialised was missed
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::connected));
  EXPECT_TRUE(front.wait_for_responses(3));
}

// Cases 18, 97, 100: a frontend that turns back from Closing keeps its ring, and nothing in it runs
// twice.
TEST_F(two_devices, a_frontend_that_turns_back_goes_on_where_its_ring_was) {
  serve();
  scripted_frontend front(good_.host(), hostile_device);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
  front.write_good_nodes();
  front.go(xenbus_state::initialised);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::connected));
  front.go(xenbus_state::connected);
  std::uint32_t sent = 0;
  for (const std::uint32_t upto : {5U, 40U, 45U}) {
    protocol::blkif::request unknown{};
    unknown.operation = 77;
    unknown.id = 257;  // an answered slot holds this where a request has its operation
    while (sent < upto) {
      front.put(unknown);
      ASSERT_TRUE(front.wait_for_responses(++sent));
    }
    front.go(xenbus_state::closing);
    ASSERT_TRUE(front.wait_for_backend(xenbus_state::closing));
    front.go(xenbus_state::connected);
    ASSERT_TRUE(front.wait_for_backend(xenbus_state::connected));
  }
  EXPECT_EQ(front.response_producer(), 45U);
  EXPECT_EQ(store_error(), "");
}

struct bad_node {
  const char* name;
  const char* value;  // nullptr: missing
};
class BadNodes : public two_devices, public ::testing::WithParamInterface<bad_node> {};

// Cases 44, 104, 106, 123, 129.
TEST_P(BadNodes, are_refused_by_name_and_a_corrected_frontend_is_served) {
  serve({.max_queues = 4, .max_ring_page_order = 2});
  scripted_frontend front(good_.host(), hostile_device);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
  front.write_good_nodes();
  const auto& [name, value] = GetParam();
  if (value != nullptr) {
    front.write(name, value);
  } else {
    front.remove(name);
  }
  front.go(xenbus_state::initialised);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::closing));
  EXPECT_FALSE(store_error().empty());
  good_device_works(3);
  front.go(xenbus_state::closed);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::closed));
  if (value != nullptr) {
    front.remove(name);
  }
  front.write_good_nodes();
  front.go(xenbus_state::initialising);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
  front.go(xenbus_state::initialised);
  EXPECT_TRUE(front.wait_for_backend(xenbus_state::connected)) << store_error();
}
INSTANTIATE_TEST_SUITE_P(
    every, BadNodes,
    ::testing::Values(
        bad_node{"protocol", "sparc-abi"}, bad_node{"protocol", ""}, bad_node{"ring-ref", nullptr},
        bad_node{"ring-ref", "99999999999"}, bad_node{"ring-ref", "12x"},
        bad_node{"ring-ref", "-1"}, bad_node{"ring-ref", "4294967295"},
        bad_node{"event-channel", nullptr}, bad_node{"event-channel", "123456"},
        bad_node{"event-channel", " 1"}, bad_node{"ring-page-order", "3"},
        bad_node{"ring-page-order", "1"}, bad_node{"ring-page-order", "18446744073709551617"},
        bad_node{"multi-queue-num-queues", "0"}, bad_node{"multi-queue-num-queues", "5"},
        bad_node{"multi-queue-num-queues", "2"}, bad_node{"multi-queue-num-queues", "65"},
        bad_node{"feature-persistent", "2"}, bad_node{"feature-persistent", "yes"}));

class Seeds : public two_devices, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(Seeds, of_misdeeds_disturb_nobody_else_and_leave_nothing_behind) {
  constexpr const char* strategies[] = {"batched_copy", "map_each", "persistent_pool"};
  serve({.strategy = strategies[GetParam() % 3]});
  std::atomic<bool> over{false};
  std::jthread attacker([&] {
    for (int round = 0; round < 5; ++round) {
      scripted_frontend front(good_.host(), hostile_device, GetParam() % 3);
      hostile_frontend hostile(front, GetParam() * 100 + static_cast<std::uint32_t>(round));
      EXPECT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
      front.write("feature-persistent", "1");
      front.write_good_nodes();
      front.go(xenbus_state::initialised);
      EXPECT_TRUE(front.wait_for_backend(xenbus_state::connected));
      for (int step = 0; step < 300; ++step) {
        hostile.step();
      }
      front.go(xenbus_state::closed);
      EXPECT_TRUE(front.wait_for_backend(xenbus_state::closed));
      for (const auto reference : front.ring_references()) {
        EXPECT_FALSE(guest_.is_mapped(reference));
      }
      for (const auto reference : hostile.references()) {
        EXPECT_FALSE(guest_.is_mapped(reference)) << "a page of data";
      }
      EXPECT_EQ(good_.host().leaked_pages(), 0U);
      front.remove("ring-page-order");
      front.go(xenbus_state::initialising);
    }
    over = true;
  });
  while (!over) {
    good_device_works(5);
  }
  attacker.join();
  end();
  EXPECT_EQ(good_.host().leaked_pages(), 0U);
}
INSTANTIATE_TEST_SUITE_P(some, Seeds, ::testing::Range(0U, 6U));

// Case 96.
TEST_F(two_devices, a_hundred_connections_leave_threads_and_descriptors_as_they_were) {
  const auto count = [](const char* where) {
    std::size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(where)) {
      ++entries;
    }
    return entries;
  };
  serve();
  scripted_frontend front(good_.host(), hostile_device);
  std::size_t threads = 0;
  std::size_t descriptors = 0;
  for (int cycle = 0; cycle < 100; ++cycle) {
    ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
    front.reset_ring();
    front.write_good_nodes();
    front.go(xenbus_state::initialised);
    ASSERT_TRUE(front.wait_for_backend(xenbus_state::connected));
    for (int again = 0; again < 3; ++again) {
      front.go(xenbus_state::connected);
    }
    front.go(xenbus_state::closed);
    ASSERT_TRUE(front.wait_for_backend(xenbus_state::closed));
    if (cycle == 3) {
      threads = count("/proc/self/task");
      descriptors = count("/proc/self/fd");
    }
    if (cycle == 99) {
      EXPECT_EQ(count("/proc/self/task"), threads);
      EXPECT_EQ(count("/proc/self/fd"), descriptors);
    }
    front.go(xenbus_state::initialising);
  }
}

}  // namespace
}  // namespace pvring::test
