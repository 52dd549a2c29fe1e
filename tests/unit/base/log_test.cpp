// SPDX-License-Identifier: MIT
// Messages go to the program's sink, and a peer that causes many is cut short and told of.
#include "pvring/base/log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace log = pvring::log;

std::mutex received_mutex;
std::vector<std::pair<log::level, std::string>> received;

void receive(log::level severity, std::string_view message) noexcept {
  const std::lock_guard lock(received_mutex);
  received.emplace_back(severity, message);
}

class Log : public testing::Test {
 protected:
  void SetUp() override {
    received.clear();
    log::set_sink(&receive);
  }
  void TearDown() override { log::set_sink(&log::detail::to_stderr); }
};

TEST_F(Log, MessagesReachTheSink) {
  log::write(log::level::warning, "something");
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0], std::pair(log::level::warning, std::string("something")));
}

TEST_F(Log, AnyThreadMayWrite) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int n = 0; n < 50; ++n) {
        log::write(log::level::info, "one");
      }
    });
  }
  for (std::thread& one : threads) {
    one.join();
  }
  EXPECT_EQ(received.size(), 200U);
}

TEST_F(Log, DefaultSinkPrintsWarningsAndErrorsOnly) {
  testing::internal::CaptureStderr();
  log::detail::to_stderr(log::level::debug, "d");
  log::detail::to_stderr(log::level::info, "i");
  log::detail::to_stderr(log::level::warning, "w");
  log::detail::to_stderr(log::level::error, std::string_view("error%s", 7));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "pvring warning: w\npvring error: error%s\n");
}

TEST_F(Log, BurstPassesAndTheRestIsKeptBack) {
  log::rate_limit limit(3, std::chrono::hours(1));
  for (int i = 0; i < 1000; ++i) {
    limit.write(log::level::error, "the peer did it again");
  }
  EXPECT_EQ(received.size(), 3U);
  EXPECT_EQ(limit.kept_back(), 997U);
}

TEST_F(Log, NextWindowSaysHowManyWereKeptBack) {
  log::rate_limit limit(1, std::chrono::milliseconds(20));
  limit.write(log::level::error, "first");
  limit.write(log::level::error, "second");
  limit.write(log::level::error, "third");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  limit.write(log::level::error, "fourth");
  ASSERT_GE(received.size(), 3U);
  EXPECT_EQ(received[0].second, "first");
  EXPECT_EQ(received[1].second, "2 similar messages were kept back");
  EXPECT_EQ(received[2].second, "fourth");
  EXPECT_EQ(limit.kept_back(), 0U);
}

}  // namespace
