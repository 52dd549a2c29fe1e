// SPDX-License-Identifier: MIT
#include "pvring/net/flow_steering.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace pvring::net {
namespace {

namespace netif = protocol::netif;

steering filled(std::uint32_t with) {
  steering out;
  out.algorithm = netif::hash_algorithm::toeplitz;
  out.flags = with;
  out.key.fill(static_cast<std::uint8_t>(with));
  out.mappings = most_hash_mappings;
  out.mapping.fill(with);
  return out;
}

flow_hash hash_with(std::uint32_t value) {
  return {netif::hash_algorithm::toeplitz, netif::hash_type::ipv4, value};
}

TEST(Steering, WithoutATableTheHashModuloTheQueuesDecides) {
  steering s = filled(netif::all_hash_flags);
  s.mappings = 0;
  EXPECT_EQ(s.queue_of(hash_with(10), 4), 2U);
}

TEST(Steering, WithATableItsEntryDecides) {
  steering s = filled(netif::all_hash_flags);
  s.mappings = 3;
  s.mapping[0] = 2;
  s.mapping[1] = 0;
  s.mapping[2] = 1;
  EXPECT_EQ(s.queue_of(hash_with(9), 4), 2U);
  EXPECT_EQ(s.queue_of(hash_with(10), 4), 0U);
  EXPECT_EQ(s.queue_of(hash_with(11), 4), 1U);
}

TEST(Steering, QueueIsOursWithoutHashOrAlgorithmOrKinds) {
  steering s = filled(netif::all_hash_flags);
  EXPECT_EQ(s.queue_of({}, 4), std::nullopt);
  s.flags = 0;
  EXPECT_EQ(s.queue_of(hash_with(1), 4), std::nullopt);
  s = filled(1);
  s.algorithm = netif::hash_algorithm::none;
  EXPECT_EQ(s.queue_of(hash_with(1), 4), std::nullopt);
}

TEST(SharedSteering, GivesBackWhatWasPublished) {
  shared_steering shared;
  steering seen = filled(9);
  EXPECT_EQ(shared.read(seen), 0U);
  EXPECT_EQ(seen, steering());
  steering mine = filled(3);
  mine.key[1] = 200;
  mine.mapping[127] = 77;
  shared.publish(mine);
  EXPECT_EQ(shared.read(seen), shared.version());
  EXPECT_NE(shared.version(), 0U);
  EXPECT_EQ(seen, mine);
}

TEST(SharedSteering, ReadersNeverSeeTwoPublicationsMixed) {
  shared_steering shared;
  shared.publish(filled(1));
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      steering seen;
      while (!stop.load()) {
        if (shared.read(seen)) {
          EXPECT_EQ(seen, filled(seen.flags));
          ++reads;
        }
      }
    });
  }
  std::uint32_t round = 0;
  while (round < 2000 || reads.load() < 100) {
    shared.publish(filled(++round % 200 + 1));
    if (round % 16 == 0) {
      std::this_thread::yield();
    }
  }
  stop.store(true);
  for (std::thread& t : readers) {
    t.join();
  }
}

TEST(FlowHasher, FollowsWhatIsPublished) {
  shared_steering shared;
  flow_hasher hasher(shared);
  hasher.refresh();
  EXPECT_FALSE(hasher.active());
  std::vector<std::byte> frame(14 + 20);
  frame[12] = std::byte{8};
  frame[14] = std::byte{0x45};
  frame[26] = std::byte{0x80};  // one bit of the source address: the hash is the key's first word
  EXPECT_EQ(hasher(frame, frame.size()).algorithm, 0);

  steering mine = filled(netif::all_hash_flags);
  mine.key = {1, 2, 3, 4};
  shared.publish(mine);
  EXPECT_FALSE(hasher.active()) << "until it looks";
  hasher.refresh();
  EXPECT_TRUE(hasher.active());
  EXPECT_EQ(hasher(frame, frame.size()).value, 0x01020304U);

  mine.key = {9};
  shared.publish(mine);
  hasher.refresh();
  EXPECT_EQ(hasher(frame, frame.size()).value, 0x09000000U);
  mine.flags = 0;
  shared.publish(mine);
  hasher.refresh();
  EXPECT_FALSE(hasher.active());
}

}  // namespace
}  // namespace pvring::net
