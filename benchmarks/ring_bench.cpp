// SPDX-License-Identifier: MIT
// Micro benchmarks of the rings: a round trip of 32 block requests with pvring's rings and with
// Xen's macros where their headers are there, and the single steps. Each checks what came through.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"
#include "support/ring_loops.hpp"

namespace {

namespace blkif = pvring::protocol::blkif;

template <class Loop>
void round_trip(benchmark::State& state) {
  const auto loop = std::make_unique<Loop>();
  std::uint64_t batches = 0;
  for (auto _ : state) {
    loop->batch();
    ++batches;
  }
  if (!loop->tally().matches(batches)) {
    state.SkipWithError("ids or counts are not those sent");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(batches * bench::ring_batch));
}
BENCHMARK_TEMPLATE(round_trip, bench::pvring_loop);
#ifdef PVRING_BENCH_HAS_XEN
BENCHMARK_TEMPLATE(round_trip, bench::macro_loop);
BENCHMARK_TEMPLATE(round_trip, bench::macro_copy_loop);
#endif

/// A whole ring of requests with so many segments, of one ABI: the copy grows with them.
template <blkif::abi Abi>
void fetch(benchmark::State& state) {
  using wire = blkif::wire<Abi>;
  const auto segments = static_cast<std::uint16_t>(state.range(0));
  const bench::ring_page page;
  pvring::ring::front_ring<wire> front(page.bytes());
  pvring::ring::back_ring<wire> back(page.bytes());
  blkif::request outgoing{};
  blkif::request fetched{};
  outgoing.operation = blkif::operation::write;
  outgoing.sector_number = pvring::untrusted<std::uint64_t>(8);
  outgoing.nr_segments = pvring::untrusted(segments);
  std::uint64_t sum = 0;
  std::uint64_t expected = 0;
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < bench::ring_batch; ++i) {
      outgoing.id = i;
      outgoing.direct[segments - 1] = {
          .gref = i + 8, .first_sect = 0, .last_sect = 7, .reserved = {}};
      expected += 2 * i + 8;
      front.put(outgoing);
    }
    benchmark::DoNotOptimize(front.publish());
    back.consume_all([&](pvring::ring::taken<wire>& request) {
      request.fetch(fetched);
      sum += fetched.id + fetched.direct[segments - 1].gref;
      back.respond(request.owe(wire::echo_of(fetched, true)).settle(blkif::status::okay));
    });
    benchmark::DoNotOptimize(back.publish());
    front.take(bench::ring_batch, [](const typename wire::response&) {});
  }
  if (sum != expected) {
    state.SkipWithError("requests are not those sent");
  }
  state.SetItemsProcessed(state.iterations() * bench::ring_batch);
}
BENCHMARK_TEMPLATE(fetch, blkif::abi::x86_64)->Arg(1)->Arg(4)->Arg(11);
BENCHMARK_TEMPLATE(fetch, blkif::abi::x86_32)->Arg(1)->Arg(4)->Arg(11);

/// What a poller pays for a look at an idle ring, and a sleeper for arming it.
void look(benchmark::State& state) {
  using wire = blkif::wire<blkif::abi::x86_64>;
  const bench::ring_page page;
  const pvring::ring::front_ring<wire> front(page.bytes());
  pvring::ring::back_ring<wire> back(page.bytes());
  bool found = false;
  for (auto _ : state) {
    found |= back.has_requests();
    benchmark::ClobberMemory();
  }
  if (found) {
    state.SkipWithError("an idle ring has requests");
  }
}
BENCHMARK(look);

void arm(benchmark::State& state) {
  using wire = blkif::wire<blkif::abi::x86_64>;
  const bench::ring_page page;
  const pvring::ring::front_ring<wire> front(page.bytes());
  pvring::ring::back_ring<wire> back(page.bytes());
  bool found = false;
  for (auto _ : state) {
    found |= back.arm();
  }
  if (found) {
    state.SkipWithError("an idle ring has requests");
  }
}
BENCHMARK(arm);

}  // namespace
