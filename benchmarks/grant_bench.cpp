// SPDX-License-Identifier: MIT
// Micro benchmarks of the grant strategies, typed over all of them: acquiring and releasing the
// pages of a batch of requests on the emulated platform. They count pages and check the data that
// was to be moved.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "pvring/grant/run_allocator.hpp"
#include "support/copy_each.hpp"
#include "support/guest.hpp"

namespace {

namespace grant = pvring::grant;
using pvring::platform::direction;

constexpr std::uint32_t batch = 32;

/// A granted page per request and the leases on them.
template <class Strategy>
class fixture {
 public:
  explicit fixture(std::uint16_t bytes) {
    for (std::uint32_t i = 0; i < batch; ++i) {
      pages_[i] = domain_.allocate_pages();
      std::memset(pages_[i], static_cast<int>(i + 1), pvring::platform::page_size);
      pieces_[i] = {.reference = domain_.grant(bench::backend_domain, pages_[i],
                                               pvring::platform::access::read_write),
                    .mark = 0,
                    .offset = 0,
                    .length = bytes};
    }
  }

  /// One batch there and back; how many bytes were found to be right.
  std::size_t run(direction way) {
    right_ = 0;
    for (std::uint32_t i = 0; i < batch; ++i) {
      grant::lease_state& lease = leases_[i];
      lease = grant::lease_state{};
      lease.direction = way;
      lease.pieces = {&pieces_[i], 1};
      lease.storage = {&buffers_[i], 1};
      if (strategy_.acquire(lease) == grant::acquired::ready) {
        use(lease);
      }
    }
    strategy_.finish_acquires([this](grant::lease_state& lease) { use(lease); });
    for (grant::lease_state& lease : leases_) {
      strategy_.release(lease, true, [](const grant::released&) {});
    }
    strategy_.finish_releases([](const grant::released&) {});
    return right_;
  }
  void clear() { strategy_.clear(); }
  [[nodiscard]] const grant::counters& counters() const { return strategy_.counters(); }
  [[nodiscard]] std::byte* page(std::uint32_t i) const { return pages_[i]; }

 private:
  void use(grant::lease_state& lease) {
    const auto i = static_cast<std::uint32_t>(&lease - leases_.data());
    const iovec& buffer = lease.local().front();
    if (lease.direction == direction::from_peer) {
      right_ += *static_cast<const std::uint8_t*>(buffer.iov_base) == i + 1 ? buffer.iov_len : 0;
    } else {
      *static_cast<std::uint8_t*>(buffer.iov_base) = static_cast<std::uint8_t>(i + 1);
      right_ += buffer.iov_len;
    }
  }

  pvring::platform::emulated_host host_ = bench::make_host({});
  pvring::platform::emulated_guest domain_ = host_.create_domain(1);
  pvring::platform::emulated platform_{host_, bench::backend_domain};
  pvring::platform::emulated_grants grants_ = platform_.open_grants(batch);
  typename Strategy::template bind<pvring::platform::emulated_grants> strategy_{
      grants_, {.domain = 1, .max_pieces = 11, .max_leases = batch, .quota_pages = batch}};
  std::array<std::byte*, batch> pages_{};
  std::array<grant::piece, batch> pieces_{};
  std::array<iovec, batch> buffers_{};
  std::array<grant::lease_state, batch> leases_{};
  std::size_t right_ = 0;
};

/// \tparam Way what the requests do: a write brings bytes in, a read takes them out
template <class Strategy, direction Way>
void acquire_and_release(benchmark::State& state) {
  const auto bytes = static_cast<std::uint16_t>(state.range(0));
  const auto on = std::make_unique<fixture<Strategy>>(bytes);
  std::size_t right = 0;
  for (auto _ : state) {
    right += on->run(Way);
  }
  const auto requests = static_cast<double>(state.iterations() * batch);
  if (static_cast<double>(right) != requests * bytes) {
    state.SkipWithError("bytes are missing or wrong");
  }
  for (std::uint32_t i = 0; i < batch; ++i) {
    if (*reinterpret_cast<const std::uint8_t*>(on->page(i)) != i + 1) {
      state.SkipWithError("a guest page does not hold what was written to it");
    }
  }
  state.counters["calls_per_request"] = static_cast<double>(on->counters().calls.get()) / requests;
  state.SetItemsProcessed(state.iterations() * batch);
  on->clear();
}
#define PVRING_BENCH_STRATEGY(strategy)                                                         \
  BENCHMARK_TEMPLATE(acquire_and_release, strategy, direction::from_peer)->Arg(512)->Arg(4096); \
  BENCHMARK_TEMPLATE(acquire_and_release, strategy, direction::to_peer)->Arg(512)->Arg(4096)
PVRING_BENCH_STRATEGY(grant::batched_copy);
PVRING_BENCH_STRATEGY(grant::persistent_pool);
PVRING_BENCH_STRATEGY(grant::map_each);
PVRING_BENCH_STRATEGY(bench::copy_each);

/// Runs of so many pages taken and given back, with half of the arena in use.
void runs(benchmark::State& state) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  grant::run_allocator arena(512);
  std::vector<std::uint32_t> held;
  while (arena.free_units() > 256) {
    if (const auto taken = arena.take(1)) {
      held.push_back(*taken);
    }
  }
  std::uint64_t found = 0;
  for (auto _ : state) {
    const auto run = arena.take(count);
    if (run) {
      ++found;
      arena.give_back(*run, count);
    }
    benchmark::ClobberMemory();
  }
  if (found != static_cast<std::uint64_t>(state.iterations())) {
    state.SkipWithError("a run was not found");
  }
}
BENCHMARK(runs)->Arg(1)->Arg(11)->Arg(64);

}  // namespace
