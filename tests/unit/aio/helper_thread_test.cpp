// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <pvring/aio/helper_thread.hpp>

namespace aio_test {
namespace {

using pvring::aio::helper_job;
using pvring::aio::helper_thread;

struct counting_job {
  helper_job base;  // first
  std::vector<int>* out = nullptr;
  int number = 0;

  static void run(helper_job& base) noexcept {
    auto& self = reinterpret_cast<counting_job&>(base);
    self.out->push_back(self.number);
  }
};

TEST(helper_thread, does_not_start_before_it_is_needed) {
  helper_thread helper;
  EXPECT_FALSE(helper.started());
  helper.quiesce();
  EXPECT_FALSE(helper.started());
}

TEST(helper_thread, runs_jobs_in_the_order_they_were_posted) {
  helper_thread helper;
  std::vector<int> out;
  std::vector<counting_job> jobs(100);
  for (int i = 0; i < 100; ++i) {
    counting_job& job = jobs[static_cast<std::size_t>(i)];
    job.base.run = &counting_job::run;
    job.out = &out;
    job.number = i;
    ASSERT_TRUE(helper.post(job.base));
  }
  helper.quiesce();
  ASSERT_EQ(out.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)], i);
  }
}

TEST(helper_thread, has_a_name_and_takes_no_signals) {
  helper_thread helper("pvring-test");
  struct looking {
    helper_job base;
    std::array<char, 32> name{};
    sigset_t blocked{};
  } job;
  job.base.run = [](helper_job& base) noexcept {
    auto& self = reinterpret_cast<looking&>(base);
    ::pthread_getname_np(::pthread_self(), self.name.data(), self.name.size());
    ::pthread_sigmask(SIG_SETMASK, nullptr, &self.blocked);
  };
  ASSERT_TRUE(helper.post(job.base));
  helper.quiesce();
  EXPECT_EQ(std::string(job.name.data()), "pvring-test");
  EXPECT_EQ(::sigismember(&job.blocked, SIGTERM), 1);
}

TEST(helper_thread, takes_jobs_from_many_threads_that_start_it_together) {
  for (int round = 0; round < 20; ++round) {
    helper_thread helper;
    std::atomic<int> ran{0};
    struct adding {
      helper_job base;
      std::atomic<int>* to = nullptr;
    };
    std::array<std::array<adding, 16>, 3> jobs{};
    std::vector<std::thread> threads;
    for (auto& mine : jobs) {
      threads.emplace_back([&helper, &mine, &ran] {
        for (adding& job : mine) {
          job.to = &ran;
          job.base.run = [](helper_job& base) noexcept {
            reinterpret_cast<adding&>(base).to->fetch_add(1, std::memory_order_relaxed);
          };
          EXPECT_TRUE(helper.post(job.base));
        }
        helper.quiesce();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(ran.load(), 48);
  }
}

}  // namespace
}  // namespace aio_test
