// SPDX-License-Identifier: MIT
// T2: the backend's side of a whole pass with an engine that completes at once, against the ring
// macros alone. What is between the two is validation, look-up, the engine's interface, accounting
// and the promise to answer exactly once. Beside it, what a journal adds, from which a successor
// could go on.
#include <cstdint>
#include <memory>
#include <optional>

#include "pvring/grant/persistent_pool.hpp"
#include "support/clock.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/instructions.hpp"
#include "support/nothing_engine.hpp"
#include "support/ring_loops.hpp"
#include "targets.hpp"

namespace bench {
namespace {

constexpr std::uint64_t batches_per_block = 128;
constexpr std::uint64_t image_bytes = std::uint64_t{1} << 30;

/// A guest and its queue; a pass is timed alone, between two readings of the clock.
template <class Journal>
class pass_loop {
 public:
  pass_loop() { warm_up(); }

  void put() noexcept {
    for (std::uint32_t tag = 0; tag < ring_batch; ++tag) {
      const std::uint64_t sector = (next_++ * 8) % (image_bytes / 512);
      offsets_ += sector * 512;
      guest_.put(tag, blkif::operation::read, sector, page_bytes);
    }
    (void)guest_.publish();
  }
  void serve() noexcept { work_ += device_.service(ring_batch); }
  void collect() noexcept {
    guest_.take([this](std::uint32_t tag, bool okay) {
      answered_ += okay ? 1 : 0;
      tags_ += tag;
    });
  }

  void check(result& out) const {
    const std::uint64_t n = next_;
    out.check_equal(answered_, n, "pass: requests answered well");
    out.check_equal(tags_, n / ring_batch * (ring_batch * (ring_batch - 1) / 2),
                    "pass: sum of the ids answered");
    out.check_equal(seen_.transfers, n, "pass: transfers that the engine saw");
    out.check_equal(seen_.bytes, n * page_bytes, "pass: bytes that the engine saw");
    out.check_equal(seen_.offsets, offsets_, "pass: sum of the offsets that the engine saw");
    out.check_equal(device_.grants().counters().map_calls.get(), ring_batch + 1,
                    "pass: map calls, one per page of the warm-up and one for the ring");
  }

 private:
  void warm_up() {
    put();
    serve();
    collect();
  }

  guest_shape shape_{};
  pvring::platform::emulated_host host_ = make_host(shape_);
  guest guest_{host_, shape_};
  nothing::tally seen_;
  nothing_engine::image image_{nothing{&seen_}, {.size = image_bytes}};
  mutable device<pvring::grant::persistent_pool, nothing_engine, Journal> device_{host_, guest_,
                                                                                  image_};
  std::uint64_t next_ = 0;
  std::uint64_t offsets_ = 0;
  std::uint64_t answered_ = 0;
  std::uint64_t tags_ = 0;
  std::uint64_t work_ = 0;
};

using usual_loop = pass_loop<pvring::ring::no_journal>;
using journal_loop = pass_loop<pvring::ring::shared_journal>;

/// The part of a batch that belongs to the backend, per request.
template <class Loop>
double backend_ns_per_request(Loop& loop, std::int64_t overhead) {
  std::int64_t spent = 0;
  for (std::uint64_t i = 0; i < batches_per_block; ++i) {
    loop.put();
    const std::int64_t start = wall_ns();
    loop.serve();
    spent += wall_ns() - start - overhead;
    loop.collect();
  }
  return static_cast<double>(spent) / static_cast<double>(batches_per_block * ring_batch);
}

double round_trip_ns_per_request(macro_copy_loop& loop) {
  const std::int64_t start = wall_ns();
  for (std::uint64_t i = 0; i < batches_per_block; ++i) {
    loop.batch();
  }
  return static_cast<double>(wall_ns() - start) /
         static_cast<double>(batches_per_block * ring_batch);
}

template <class Loop>
void run_rounds(std::uint64_t rounds) {
  const auto loop = std::make_unique<Loop>();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    loop->put();
    loop->serve();
    loop->collect();
  }
}

}  // namespace

bool run_pass_variant(const std::string& variant, std::uint64_t rounds) {
  // The frontend's part is in all, and the last is nothing else: the difference is the backend's.
  if (variant == "pass.whole") {
    run_rounds<usual_loop>(rounds);
    return true;
  }
  if (variant == "pass.journal") {
    run_rounds<journal_loop>(rounds);
    return true;
  }
  if (variant != "pass.front") {
    return false;
  }
  guest_shape shape{};
  const auto host = make_host(shape);
  guest front(host, shape);
  // Its own answers, put into the ring by the shortest backend there can be.
  auto* const indices =
      reinterpret_cast<pvring::protocol::ring_indices<>*>(front.ring_memory().data());
  std::uint64_t next = 0;
  std::uint64_t answered = 0;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    for (std::uint32_t tag = 0; tag < ring_batch; ++tag) {
      front.put(tag, blkif::operation::read, (next++ * 8) % (image_bytes / 512), page_bytes);
    }
    (void)front.publish();
    std::atomic_ref(indices->rsp_prod)
        .store(static_cast<std::uint32_t>(next), std::memory_order_release);
    front.take([&](std::uint32_t, bool) { ++answered; });
  }
  return answered == next;
}

result measure_pass(const settings& how) {
  result out("T2", "backend side of a whole pass, batches of 32, nothing moved", !how.smoke);
  out.method =
      "service() with a warm persistent_pool, one 4 KiB segment per request, and an engine that "
      "completes at once and moves "
      "nothing. Each pass of 32 is timed alone, less what the clock itself takes; the frontend's "
      "work is outside. Baseline: "
      "the round trip of T1 with the macros' own copy (both ends); the macros' backend half alone "
      "is shown beside, and the same pass "
      "with a journal in shared memory. Loops take "
      "turns in blocks of 128 passes, a repetition's value is its median block.";
  const auto ours = std::make_unique<usual_loop>();
  const auto keeping = std::make_unique<journal_loop>();
  const auto macros = std::make_unique<macro_copy_loop>();
  const auto halves = std::make_unique<macro_copy_loop>();
  const std::int64_t overhead = wall_overhead_ns();

  const std::size_t blocks = how.smoke ? 5 : 100;
  std::vector<double> time[4];
  for (std::size_t repetition = 0; repetition < how.repetitions; ++repetition) {
    const auto values = interleave(4, blocks, [&](std::size_t which) {
      return which == 0   ? backend_ns_per_request(*ours, overhead)
             : which == 1 ? round_trip_ns_per_request(*macros)
             : which == 2 ? backend_ns_per_request(*halves, overhead)
                          : backend_ns_per_request(*keeping, overhead);
    });
    for (std::size_t i = 0; i < 4; ++i) {
      time[i].push_back(median(values[i]));
    }
  }
  ours->check(out);
  keeping->check(out);
  const std::uint64_t done = how.repetitions * blocks * batches_per_block;
  out.check(macros->tally().matches(done) && halves->tally().matches(done),
            "macros: ids or counts are not those sent");

  out.at_most("time, pass / round trip of the macros", summarize(ratios(time[0], time[1])), 8);
  out.report("time, pass / backend half of the macros", summarize(ratios(time[0], time[2])));
  out.report("time, pass with a journal / pass", summarize(ratios(time[3], time[0])));
  out.keep("pvring, backend's pass", "ns per request", time[0]);
  out.keep("pvring, with a journal", "ns per request", time[3]);
  out.keep("macros, round trip", "ns per request", time[1]);
  out.keep("macros, backend half", "ns per request", time[2]);

  std::string why;
  const std::uint64_t rounds = how.smoke ? 100 : 2000;
  const auto whole = count_instructions(how, "pass.whole", rounds, why);
  const auto front = whole ? count_instructions(how, "pass.front", rounds, why) : std::nullopt;
  const auto journal = front ? count_instructions(how, "pass.journal", rounds, why) : std::nullopt;
  const auto base =
      journal ? count_instructions(how, "ring.macros_copy", rounds, why) : std::nullopt;
  if (base) {
    const double own = (*whole - *front) / ring_batch;
    out.report("instructions, pass / round trip of the macros", {own * ring_batch / *base, 0, 1});
    const double kept = (*journal - *front) / ring_batch;
    out.report("instructions, pass with a journal / pass", {kept / own, 0, 1});
    out.keep("pvring, backend's pass", "instructions per request", {own});
    out.keep("pvring, with a journal", "instructions per request", {kept});
    out.keep("macros, round trip", "instructions per request", {*base / ring_batch});
  } else {
    out.skip("instructions, pass / round trip of the macros", "-", why);
  }
  out.charts.push_back(
      bars_of(out, "ns per request", "t2-pass", "T2: backend side of a pass, batches of 32"));
  return out;
}

}  // namespace bench
