// SPDX-License-Identifier: MIT
// What the demo's guest does with its disk, one thread per queue: reading all of it, and a mixed
// load of which every block is checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <pvring/testing/block_load.hpp>
#include <pvring/testing/block_model.hpp>
#include <pvring/testing/strict_queue.hpp>
#include <span>
#include <string>
#include <vector>

#include "settings.hpp"

namespace demo {

/// Runs `work(i)` on a thread for each queue, calls `meanwhile()` some times per second, and throws
/// what the first that failed threw.
void on_all_queues(std::uint32_t queues, const std::function<void(std::uint32_t)>& work,
                   const std::function<void()>& meanwhile);

/// Counted by a queue's thread; its own until it is joined.
using tally = pvring::testing::block_load_counts;

/// Who it is, for messages, and how the work is shared.
struct reader {
  std::string strategy;
  std::uint32_t index = 0;
  std::uint32_t count = 1;  ///< readers that share the work
  std::uint32_t depth = 32;
};

/// What to mix.
struct mixture {
  bool flush = false;    ///< the disk can
  bool discard = false;  ///< likewise
  std::uint64_t seed = 1;
  std::chrono::steady_clock::time_point until;
};

/// Sectors that lie side by side, and the memory that they are read into.
struct window {
  std::uint64_t first_sector = 0;
  std::span<std::byte> bytes;
};
/// The queue that reads a sector of a window.
[[nodiscard]] std::uint32_t reader_of(const window& from, std::uint64_t sector,
                                      std::uint32_t readers);

/// Reads this reader's share of a window. \throws mismatch when a read fails
void read_share(pvring::testing::strict_queue& queue, const reader& who, const window& from,
                tally& count);

/// The mixed load of one queue on its own part of the file system, which is only rewritten with
/// what it contains, and its own part of the tail. \throws mismatch naming sector, queue and
/// strategy
void mix(pvring::testing::strict_queue& queue, const reader& who,
         pvring::testing::block_model& file_system, pvring::testing::block_model& tail,
         const mixture& how, tally& count);

}  // namespace demo
