// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include <pvring/aio/mailbox.hpp>

namespace aio_test {
namespace {

using pvring::aio::mailbox;

struct owning {
  std::unique_ptr<int> held;
};
template <class T>
concept can_be_mailed = requires { typename mailbox<T>; };
static_assert(can_be_mailed<int*> && can_be_mailed<std::uint32_t>);
static_assert(!can_be_mailed<owning>);  // case 124: what is left in a box is not destroyed

bool readable(int fd, int milliseconds = 0) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, milliseconds) == 1;
}

TEST(mailbox, hands_over_in_order) {
  mailbox<int> box(4);
  EXPECT_TRUE(box.empty());
  box.push(1);
  box.push(2);
  box.push(3);
  int got = 0;
  ASSERT_TRUE(box.pop(got));
  EXPECT_EQ(got, 1);
  std::vector<int> rest;
  EXPECT_EQ(box.consume([&](int n) { rest.push_back(n); }), 2U);
  EXPECT_EQ(rest, (std::vector<int>{2, 3}));
  EXPECT_FALSE(box.pop(got));
}

// Case 124.
TEST(mailbox, holds_exactly_its_capacity_again_and_again) {
  for (const std::size_t capacity : {1UL, 2UL, 7UL, 64UL, 1000UL}) {
    mailbox<std::size_t> box(capacity);
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < capacity; ++i) {
        box.push(i);
      }
      std::size_t next = 0;
      box.consume([&](std::size_t n) { EXPECT_EQ(n, next++); });
      EXPECT_EQ(next, capacity);
    }
  }
}

TEST(mailbox, refuses_more_places_than_there_can_be) {
  EXPECT_THROW(mailbox<int>(65536), pvring::configuration_error);
  const mailbox<int> most(mailbox<int>::most_places);
}

TEST(mailbox, takes_no_more_than_the_budget) {
  mailbox<int> box(8);
  for (int i = 0; i < 8; ++i) {
    box.push(i);
  }
  EXPECT_EQ(box.consume([](int) {}, 3), 3U);
  EXPECT_EQ(box.consume([](int) {}), 5U);
}

TEST(mailbox, signals_only_a_consumer_that_armed_and_only_once) {
  mailbox<int> box(8);
  box.push(1);
  EXPECT_FALSE(readable(box.fd()));
  EXPECT_TRUE(box.arm()) << "there is work";
  int got = 0;
  ASSERT_TRUE(box.pop(got));
  EXPECT_FALSE(box.arm());
  EXPECT_FALSE(readable(box.fd()));
  box.push(2);
  box.push(3);
  EXPECT_TRUE(readable(box.fd()));
  EXPECT_TRUE(box.arm()) << "arming clears and looks";
  box.consume([](int) {});
  EXPECT_FALSE(box.arm());
  EXPECT_FALSE(readable(box.fd()));
  box.disarm();
  box.push(4);
  EXPECT_FALSE(readable(box.fd()));
}

TEST(mailbox, tells_a_consumer_with_a_shared_descriptor_of_each_signal) {
  const pvring::unique_fd shared(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  mailbox<int> box(8, shared.get());
  EXPECT_FALSE(box.announce());
  EXPECT_FALSE(box.announce());
  box.push(1);
  EXPECT_TRUE(readable(shared.get()));
  EXPECT_TRUE(box.announce());
  EXPECT_FALSE(box.withdraw());
  EXPECT_FALSE(box.withdraw());
  box.push(2);
  EXPECT_FALSE(box.announce());
  box.push(3);
  EXPECT_TRUE(box.withdraw());
}

// Under ThreadSanitizer this also checks that what a producer wrote before pushing is visible to
// the consumer.
TEST(mailbox, loses_neither_a_handle_nor_a_wake_up_among_many_producers) {
  constexpr std::size_t producers = 3;
  constexpr std::size_t each = 8;
  constexpr int rounds = 4000;
  struct item {
    std::atomic<bool> free{true};
    int value = 0;
  };
  std::vector<std::vector<item>> items;
  for (std::size_t p = 0; p < producers; ++p) {
    items.emplace_back(each);
  }
  mailbox<item*> box(producers * each);
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      for (int i = 0; i < rounds; ++i) {
        item& one = items[p][static_cast<std::size_t>(i) % each];
        while (!one.free.load(std::memory_order_acquire)) {
          std::this_thread::yield();
        }
        one.free.store(false, std::memory_order_relaxed);
        one.value = i;
        box.push(&one);
      }
    });
  }
  std::size_t got = 0;
  long long sum = 0;
  while (got < producers * rounds) {
    if (!box.arm()) {
      ASSERT_TRUE(readable(box.fd(), 10000)) << "a wake-up was lost at " << got;
    }
    if (got % 3 == 0) {
      box.disarm();
    }
    got += box.consume([&](item* one) {
      sum += one->value;
      one->free.store(true, std::memory_order_release);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(sum, static_cast<long long>(producers) * rounds * (rounds - 1) / 2);
  EXPECT_TRUE(box.empty());
}

}  // namespace
}  // namespace aio_test
