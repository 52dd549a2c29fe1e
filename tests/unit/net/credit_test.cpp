// SPDX-License-Identifier: MIT
#include "pvring/net/credit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pvring::net {
namespace {

using ::testing::HasSubstr;

TEST(CreditRate, is_two_numbers_above_zero) {
  EXPECT_EQ(parse_credit_rate("20000,50000"), (credit_rate{20'000, 50'000}));
  for (const char* text : {"", ",", "1", "1,", ",1", "0,1", "1,0", "1;2", " 1,2", "1,2 ", "-1,2",
                           "1,2,3", "99999999999999999999,1", "1,4294967296"}) {
    try {
      (void)parse_credit_rate(text);
      ADD_FAILURE() << text;
    } catch (const configuration_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("'" + std::string(text) + "'"));
    }
  }
}

TEST(CreditBucket, limits_nothing_before_it_is_told_to) {
  credit_bucket bucket;
  EXPECT_TRUE(bucket.unlimited());
  credit_slice slice;
  EXPECT_TRUE(slice.take(bucket, 65'535, 1));
  EXPECT_TRUE(slice.take(bucket, 65'535, 1));
}

// Whatever the queues do, together they get no more than the rate and what may be saved up; and one
// that is alone gets all of it.
TEST(CreditBucket, gives_all_queues_together_the_rate_of_one_device) {
  for (const credit_rate rate : {credit_rate{20'000, 20'000}, credit_rate{100'000, 1'000},
                                 credit_rate{10'000'000, 50'000}, credit_rate{1500, 1'000'000}}) {
    for (const std::size_t queues : {1U, 4U}) {
      credit_bucket bucket;
      bucket.set(rate);
      std::vector<credit_slice> slices(queues);
      std::mt19937_64 random(3);
      constexpr std::uint64_t start = 1'000'000'000;
      std::uint64_t now = start;
      double taken = 0;
      double longest = 0;
      for (int step = 0; step < 20'000; ++step) {
        now += random() % 2000;
        const auto bytes = static_cast<std::uint32_t>(64 + random() % 65'000);
        longest = std::max(longest, static_cast<double>(bytes));
        if (slices[random() % queues].take(bucket, bytes, now)) {
          taken += bytes;
        }
      }
      const double earned = static_cast<double>(rate.bytes) * static_cast<double>(now - start) /
                            static_cast<double>(rate.microseconds);
      const double saved = static_cast<double>(std::max(credit_bucket::least_burst, rate.bytes));
      EXPECT_LE(taken, (earned + saved) * 1.001) << rate.bytes << " per " << rate.microseconds;
      const double demand = 32'000.0 * 20'000;
      if (demand > 2 * earned) {
        EXPECT_GE(taken, earned * 0.9 - longest) << rate.bytes << " per " << rate.microseconds;
      }
    }
  }
}

TEST(CreditBucket, says_when_to_come_again_and_keeps_its_word) {
  credit_bucket bucket;
  bucket.set({1000, 1000});  // a byte in a microsecond
  credit_slice slice;
  std::uint64_t now = 1'000'000'000;
  std::size_t waits = 0;
  for (int i = 0; i < 1000; ++i) {
    while (!slice.take(bucket, 1000, now)) {
      ASSERT_GT(slice.again_at_us(), now);
      ASSERT_LE(slice.again_at_us(), now + 1001);
      now = slice.again_at_us();
      ++waits;
    }
  }
  EXPECT_GT(waits, 800U);
}

TEST(CreditBucket, lets_the_longest_packet_pass_at_any_rate) {
  credit_bucket bucket;
  bucket.set({1, 1'000'000});
  credit_slice slice;
  EXPECT_TRUE(slice.take(bucket, 65'535, 200'000'000'000));
}

}  // namespace
}  // namespace pvring::net
