// SPDX-License-Identifier: MIT
// T1: what pvring's rings cost over Xen's index macros. Time in short blocks that take turns, so
// that whatever else runs on the machine hits all loops alike; and instructions, which do not
// depend on it.
#include <cstdint>
#include <memory>

#include "support/clock.hpp"
#include "support/instructions.hpp"
#include "support/ring_loops.hpp"
#include "targets.hpp"

namespace bench {
namespace {

constexpr std::uint64_t batches_per_block = 256;

template <class Loop>
double block_ns_per_request(Loop& loop) {
  const std::int64_t start = wall_ns();
  for (std::uint64_t i = 0; i < batches_per_block; ++i) {
    loop.batch();
  }
  return static_cast<double>(wall_ns() - start) /
         static_cast<double>(batches_per_block * ring_batch);
}

template <class Loop>
void run_alone(std::uint64_t rounds) {
  const auto loop = std::make_unique<Loop>();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    loop->batch();
  }
}

template <class Loop>
void check(result& out, const Loop& loop, std::uint64_t blocks) {
  out.check(loop.tally().matches(blocks * batches_per_block),
            std::string(Loop::name) + ": ids or counts are not those sent");
}

}  // namespace

bool run_ring_variant(const std::string& variant, std::uint64_t rounds) {
  if (variant == "ring.pvring") {
    run_alone<pvring_loop>(rounds);
  } else if (variant == "ring.macros") {
    run_alone<macro_loop>(rounds);
  } else if (variant == "ring.macros_copy") {
    run_alone<macro_copy_loop>(rounds);
  } else {
    return false;
  }
  return true;
}

result measure_ring(const settings& how) {
  result out("T1", "blkif ring round trip, batches of 32, one thread", !how.smoke);
  out.method =
      "Front and back end on one thread; one round is 32 reads of one segment put, taken, answered "
      "and collected. Loops take "
      "turns in blocks of 256 rounds; a repetition's value is its median block. Instructions by "
      "callgrind, from runs of "
      "different length.";
  const auto ours = std::make_unique<pvring_loop>();
  const auto macros = std::make_unique<macro_loop>();
  const auto copying = std::make_unique<macro_copy_loop>();

  const std::size_t blocks = how.smoke ? 5 : 200;
  std::vector<double> time[3];
  for (std::size_t repetition = 0; repetition < how.repetitions; ++repetition) {
    const auto values = interleave(3, blocks, [&](std::size_t which) {
      return which == 0   ? block_ns_per_request(*ours)
             : which == 1 ? block_ns_per_request(*macros)
                          : block_ns_per_request(*copying);
    });
    for (std::size_t i = 0; i < 3; ++i) {
      time[i].push_back(median(values[i]));
    }
  }
  const std::uint64_t done = how.repetitions * blocks;
  check(out, *ours, done);
  check(out, *macros, done);
  check(out, *copying, done);

  out.at_most("time, pvring / macros with pvring's copy", summarize(ratios(time[0], time[1])),
              1.05);
  out.report("time, pvring / macros with their own copy", summarize(ratios(time[0], time[2])));
  out.keep(pvring_loop::name, "ns per request", time[0]);
  out.keep(macro_loop::name, "ns per request", time[1]);
  out.keep(macro_copy_loop::name, "ns per request", time[2]);

  const std::string names[3] = {"ring.pvring", "ring.macros", "ring.macros_copy"};
  double instructions[3] = {};
  std::string why;
  bool counted = true;
  for (std::size_t i = 0; i < 3 && counted; ++i) {
    const auto count = count_instructions(how, names[i], how.smoke ? 100 : 2000, why);
    counted = count.has_value();
    instructions[i] = count.value_or(0) / ring_batch;
  }
  if (counted) {
    out.at_most("instructions, pvring / macros with pvring's copy",
                {instructions[0] / instructions[1], 0, 1}, 1.05);
    out.report("instructions, pvring / macros with their own copy",
               {instructions[0] / instructions[2], 0, 1});
    const char* const titles[3] = {pvring_loop::name, macro_loop::name, macro_copy_loop::name};
    for (std::size_t i = 0; i < 3; ++i) {
      out.keep(titles[i], "instructions per request", {instructions[i]});
    }
  } else {
    out.skip("instructions, pvring / macros with pvring's copy", "<= 1.05 x", why);
  }
  out.charts.push_back(
      bars_of(out, "ns per request", "t1-ring", "T1: ring round trip, batches of 32"));
  return out;
}

}  // namespace bench
