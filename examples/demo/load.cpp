// SPDX-License-Identifier: MIT
// Reading a window of the disk and the mixed load, on one queue; and running a thread for each
// queue. Failures become messages that say where they happened.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "load.hpp"

namespace demo {
namespace {

// As Linux does it: 32 pages in one request, where indirect requests are offered.
constexpr std::uint32_t usual_segments = 32;
constexpr std::uint64_t chunk_sectors = usual_segments * 8;
// For a disk that answers nothing any more.
constexpr std::chrono::seconds patience{30};

[[noreturn]] void fail(const reader& who, std::uint64_t sector, const std::string& what) {
  throw mismatch(who.strategy + ", queue " + std::to_string(who.index) + ", sector " +
                 std::to_string(sector) + ": " + what);
}

}  // namespace

void on_all_queues(std::uint32_t queues, const std::function<void(std::uint32_t)>& work,
                   const std::function<void()>& meanwhile) {
  std::vector<std::exception_ptr> failures(queues);
  std::atomic<std::uint32_t> running{queues};
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < queues; ++i) {
      threads.emplace_back([&, i] {
        try {
          work(i);
        } catch (...) {
          failures[i] = std::current_exception();
        }
        running.fetch_sub(1, std::memory_order_release);
        running.notify_all();
      });
    }
    for (auto left = running.load(); left != 0; left = running.load()) {
      if (meanwhile) {
        meanwhile();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      } else {
        running.wait(left);
      }
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

std::uint32_t reader_of(const window& from, std::uint64_t sector, std::uint32_t readers) {
  return static_cast<std::uint32_t>((sector - from.first_sector) / chunk_sectors % readers);
}

void read_share(pvring::testing::strict_queue& queue, const reader& who, const window& from,
                tally& count) {
  using clock = std::chrono::steady_clock;
  const std::uint64_t step = std::min<std::uint64_t>(chunk_sectors, queue.max_segments() * 8);
  const std::uint64_t sectors = from.bytes.size() / sector_bytes;
  std::vector<pvring::testing::block_segment> segments;
  std::uint64_t next = who.index * chunk_sectors;  // within the window
  std::uint64_t in_chunk = 0;
  std::size_t in_flight = 0;
  auto heard = clock::now();

  const auto submit_next = [&] {
    const std::uint64_t at = next + in_chunk;
    const std::uint64_t chunk_end = std::min(next + chunk_sectors, sectors);
    const std::uint64_t here = std::min(step, chunk_end - at);
    segments.clear();
    pvring::testing::append_segments(segments, here);
    const auto now = static_cast<std::uint64_t>(clock::now().time_since_epoch().count());
    if (!queue.submit({.sector = from.first_sector + at, .segments = segments, .cookie = now})) {
      return false;
    }
    ++in_flight;
    in_chunk += here;
    if (at + here == chunk_end) {
      next += who.count * chunk_sectors;
      in_chunk = 0;
    }
    return true;
  };
  const auto take = [&](const pvring::testing::block_completion& end) {
    --in_flight;
    if (!end.okay()) {
      fail(who, end.sector,
           "a read of " + std::to_string(end.sectors) + " sectors failed with status " +
               std::to_string(end.status));
    }
    end.copy_to(from.bytes.subspan((end.sector - from.first_sector) * sector_bytes));
    ++count.reads;
    count.bytes += end.sectors * sector_bytes;
    const auto now = static_cast<std::uint64_t>(clock::now().time_since_epoch().count());
    count.latency.record(now - end.cookie);
  };

  while (next < sectors || in_flight != 0) {
    while (next < sectors && in_flight < who.depth && submit_next()) {
    }
    queue.publish();
    if (queue.poll(take) != 0) {
      heard = clock::now();
    } else if (clock::now() - heard > patience) {
      fail(who, from.first_sector + next,
           "no answer for " + std::to_string(patience.count()) + " seconds");
    } else {
      queue.wait(std::chrono::seconds(1));
    }
  }
}

void mix(pvring::testing::strict_queue& queue, const reader& who,
         pvring::testing::block_model& file_system, pvring::testing::block_model& tail,
         const mixture& how, tally& count) {
  pvring::testing::block_load load(
      queue, {{.model = &file_system, .keep_content = true}, {.model = &tail}},
      {.seed = how.seed,
       .depth = who.depth,
       .write_percent = 40,
       .discard_percent = how.discard ? 10U : 0U,
       .requests_per_flush = how.flush ? 100U : 0U,
       .patience = patience});
  try {
    load.run(how.until);
  } catch (const pvring::testing::block_failure& e) {
    fail(who, e.sector(), e.what());
  }
  count = load.counts();
}

}  // namespace demo
