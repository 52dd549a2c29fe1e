// SPDX-License-Identifier: MIT
#include "pvring/net/frame_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace pvring::net {
namespace {

// Against a queue that grows: same frames, same order, every byte, whatever is done in whatever
// order; and never more memory than was said.
TEST(FrameStore, keeps_every_byte_until_it_is_forgotten) {
  frame_store store(64 * 1024);
  EXPECT_LE(store.bytes(), 64U * 1024 + 132U * 1024);
  std::mt19937 random(5);
  struct model {
    std::uint8_t fill;
    std::size_t length;
  };
  std::deque<model> all;
  std::size_t passed = 0;
  std::size_t full = 0;
  std::uint8_t next_fill = 0;
  for (int step = 0; step < 200'000; ++step) {
    switch (random() % 4) {
      case 0:
      case 1: {
        const auto room = store.room();
        if (room.empty()) {
          ++full;
          break;
        }
        ASSERT_EQ(room.size(), max_frame_bytes);
        const std::size_t length =
            1 + (random() % 3 == 0 ? random() % max_frame_bytes : random() % 200);
        std::fill_n(room.begin(), length, std::byte{++next_fill});
        store.keep(length, {.gso_size = next_fill}, 0);
        all.push_back({next_fill, length});
        break;
      }
      case 2:
        if (store.has_next()) {
          const auto& f = store.next();
          const model& expected = all[passed];
          ASSERT_EQ(f.length, expected.length);
          ASSERT_EQ(f.info.gso_size, expected.fill);
          const std::byte* const bytes = store.bytes_of(f);
          ASSERT_TRUE(std::all_of(bytes, bytes + f.length,
                                  [&](std::byte b) { return b == std::byte{expected.fill}; }));
          store.pass();
          ++passed;
        }
        break;
      default:
        if (random() % 4 == 0) {
          store.forget_passed();
          all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(passed));
          passed = 0;
        }
        break;
    }
    ASSERT_EQ(store.size(), all.size());
  }
  EXPECT_GT(full, 100U);
}

TEST(FrameStore, lays_small_frames_so_that_none_crosses_a_page) {
  frame_store store(512 * 1024);
  for (int i = 0; i < 200; ++i) {
    ASSERT_FALSE(store.room().empty());
    store.keep(1514, {}, 0);
  }
  while (store.has_next()) {
    const auto& f = store.next();
    EXPECT_EQ(f.position / 4096, (f.position + f.length - 1) / 4096);
    store.pass();
  }
}

TEST(FrameStore, always_has_room_for_a_frame_when_it_is_empty) {
  frame_store store(0);
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(store.room().empty());
    store.keep(max_frame_bytes, {}, 0);
    store.drop_next();
  }
}

}  // namespace
}  // namespace pvring::net
