// SPDX-License-Identifier: MIT
// Case 123: one of several queues cannot be connected. The earlier ones are undone, the error says
// which it was, nothing stays mapped or bound, and the device can be connected later.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>

#include "pvring/platform/emulated/fault_plan.hpp"
#include "support/served_disk.hpp"

namespace pvring::test {
namespace {

enum class what_fails { map, bind };
constexpr std::uint32_t queues = 4;

class OneQueueOfFour
    : public ::testing::TestWithParam<std::tuple<what_fails, std::uint32_t, const char*>> {
 protected:
  OneQueueOfFour()
      : host_(platform::emulated_host::create()),
        guest_(host_.create_domain(guest_domain)),
        dom0_(host_),
        toolstack_(dom0_.open_store()) {
    xenbus::create_device(toolstack_, xenbus::describe_vbd(identity_, {}));
    dom0_.set_faults(&plan_);
  }
  ~OneQueueOfFour() override {
    if (disk_) {
      disk_->stop();
    }
  }

  static std::size_t entries(const char* where) {
    const std::filesystem::directory_iterator all(where);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  void serve() {
    disk_.emplace(
        dom0_, blk::identity{.domain = guest_domain, .device = identity_.device}, image_,
        blk::options{
            .max_queues = queues, .max_ring_page_order = 1, .strategy = std::get<2>(GetParam())});
    server_ = std::jthread([this] {
      try {
        disk_->run();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "the backend's thread: " << e.what();
      }
    });
  }

  const xenbus::device_identity identity_{
      .frontend_domain = guest_domain, .type = "vbd", .device = blk::xvd('a')};
  platform::fault_plan plan_;
  aio::memory_image image_{1U << 20U};
  platform::emulated_host host_;
  platform::emulated_guest guest_;
  platform::emulated dom0_;
  platform::emulated_store toolstack_;
  std::optional<blk::backend<memory_config>> disk_;
  std::jthread server_;
};

TEST_P(OneQueueOfFour,
       that_cannot_be_connected_undoes_the_others_is_named_and_the_device_comes_back) {
  const auto [what, which, strategy] = GetParam();
  // Each queue maps its ring with one call, and binds its channel with one, in order.
  if (what == what_fails::map) {
    plan_.fail_map(which + 1, ENOMEM);
  } else {
    plan_.fail_bind(which + 1, EINVAL);
  }
  serve();
  testing::strict_frontend front(host_, identity_, {.queues = queues, .ring_page_order = 1});
  const std::size_t threads = entries("/proc/self/task");
  const std::size_t descriptors = entries("/proc/self/fd");

  const std::string error_node = "/local/domain/0/error/backend/vbd/" +
                                 std::to_string(guest_domain) + "/" +
                                 std::to_string(identity_.device) + "/error";
  ASSERT_TRUE(front.process_until([&] { return toolstack_.read(error_node) && front.released(); },
                                  std::chrono::seconds(10)))
      << "the plan was not followed, or the frontend is not let go";
  const std::string error = toolstack_.read(error_node).value_or("");
  const std::string directory =
      xenbus::join(front.path().frontend(), "queue-" + std::to_string(which));
  const bool map = what == what_fails::map;
  const std::string number =
      toolstack_.read(xenbus::join(directory, map ? "ring-ref0" : "event-channel")).value_or("?");
  const std::string name = map ? "reference " + number + " (" + directory + ")"
                               : "port " + number + " of domain " + std::to_string(guest_domain);
  EXPECT_NE(error.find(name), std::string::npos) << name << " is not in: " << error;
  EXPECT_EQ(front.violations_text(), "") << "ring pages that are still mapped are one";
  EXPECT_EQ(host_.leaked_pages(), 0U);
  EXPECT_TRUE(disk_->statistics().empty());
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);

  front.reopen();
  ASSERT_TRUE(front.connect()) << front.error();
  ASSERT_EQ(front.queue_count(), queues);
  EXPECT_EQ(disk_->statistics().size(), queues);
  for (std::uint32_t i = 0; i < queues; ++i) {
    testing::strict_queue& queue = front.queue(i);
    const auto segments = testing::segments_for(8);
    ASSERT_TRUE(queue.submit({.sector = i * 8U, .segments = segments}));
    queue.publish();
    unsigned answers = 0;
    for (int tries = 0; answers == 0 && tries < 100; ++tries) {
      queue.poll([&](const testing::block_completion& done) { answers += done.okay() ? 1U : 9U; });
      if (answers == 0) {
        queue.wait(std::chrono::milliseconds(100));
      }
    }
    EXPECT_EQ(answers, 1U) << "queue " << i;
  }
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
  disk_->stop();
  server_.join();
  EXPECT_EQ(host_.leaked_pages(), 0U);
}

std::string name_of(
    const ::testing::TestParamInfo<std::tuple<what_fails, std::uint32_t, const char*>>& info) {
  const auto& [what, which, strategy] = info.param;
  return std::string(what == what_fails::map ? "map" : "bind") + "_of_queue_" +
         std::to_string(which) + "_" + strategy;
}
INSTANTIATE_TEST_SUITE_P(each, OneQueueOfFour,
                         ::testing::Combine(::testing::Values(what_fails::map, what_fails::bind),
                                            ::testing::Values(0U, 2U, 3U),
                                            ::testing::Values("batched_copy", "map_each",
                                                              "persistent_pool")),
                         name_of);

}  // namespace
}  // namespace pvring::test
