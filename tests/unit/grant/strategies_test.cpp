// SPDX-License-Identifier: MIT
// The three strategies against a scripted grant handle: how calls are batched, who fails when a
// call does, what is unmapped when, and how backpressure ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <vector>

#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/choice.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "scripted_mapper.hpp"

namespace {

using namespace pvring;
using grant::acquired;
using grant::lease_state;
using grant::piece;
using platform::direction;
using test::scripted_mapper;

// A crippled twin: acquire may throw.
struct throwing_strategy : grant::detail::strategy_base {
  static constexpr bool mapped = false;
  acquired acquire(lease_state&) { return acquired::ready; }
  void finish_acquires(auto&&) noexcept {}
  void release(lease_state&, bool, auto&&) noexcept {}
  void finish_releases(auto&&) noexcept {}
  std::uint64_t trim(std::uint64_t) noexcept { return 0; }
  void clear() noexcept {}
  std::uint32_t leases() noexcept { return 0; }
};
static_assert(!grant::bound_strategy<throwing_strategy>);
static_assert(!grant::strategy<grant::first_usable<grant::map_each>, scripted_mapper>);
static_assert(grant::strategy<grant::batched_copy, scripted_mapper>);
static_assert(grant::strategy<grant::persistent_pool, scripted_mapper>);
static_assert(grant::strategy<grant::map_each, scripted_mapper>);
static_assert(!std::is_copy_constructible_v<grant::released>);

// One request's lease with its storage.
struct request {
  std::vector<piece> pieces;
  std::vector<iovec> buffers;
  lease_state lease;

  request(direction way, std::vector<piece> of) : pieces(std::move(of)), buffers(pieces.size()) {
    lease.direction = way;
    lease.pieces = pieces;
    lease.storage = buffers;
  }
  request(const request&) = delete;

  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> out;
    for (const iovec& part : lease.local()) {
      const auto* from = static_cast<const std::byte*>(part.iov_base);
      out.insert(out.end(), from, from + part.iov_len);
    }
    return out;
  }
  void fill(std::byte with) const {
    for (const iovec& part : lease.local()) {
      std::memset(part.iov_base, static_cast<int>(with), part.iov_len);
    }
  }
};

piece whole(platform::grant_reference reference) {
  return {.reference = reference, .offset = 0, .length = 4096};
}

constexpr auto ignore = [](const grant::released&) {};
constexpr auto ignore_lease = [](lease_state&) {};

class batched_copy : public testing::Test {
 protected:
  batched_copy() {
    for (platform::grant_reference reference = 1; reference <= 64; ++reference) {
      std::fill(mapper.peer[reference].bytes.begin(), mapper.peer[reference].bytes.end(),
                static_cast<std::byte>(reference));
    }
  }
  scripted_mapper mapper;
};

TEST_F(batched_copy, brings_in_all_writes_of_a_pass_with_one_call) {
  grant::batched_copy::bind<scripted_mapper> strategy(mapper, {.max_leases = 8});
  std::list<request> requests;
  for (platform::grant_reference reference = 1; reference <= 8; ++reference) {
    request& r = requests.emplace_back(direction::from_peer, std::vector{whole(reference)});
    ASSERT_EQ(strategy.acquire(r.lease), acquired::queued);
  }
  EXPECT_TRUE(mapper.copy_calls.empty());
  std::size_t ready = 0;
  strategy.finish_acquires([&](lease_state& lease) { ready += lease.error == 0; });
  EXPECT_EQ(ready, 8U);
  ASSERT_EQ(mapper.copy_calls.size(), 1U);
  EXPECT_EQ(mapper.copy_calls[0].size(), 8U);
  std::byte expected{1};
  for (request& r : requests) {
    EXPECT_TRUE(std::ranges::all_of(r.bytes(), [&](std::byte b) { return b == expected; }));
    expected = static_cast<std::byte>(std::to_integer<int>(expected) + 1);
    strategy.release(r.lease, true, ignore);
  }
  strategy.finish_releases(ignore);
  EXPECT_EQ(mapper.copy_calls.size(), 1U) << "a write has nothing to take out";
  EXPECT_EQ(strategy.leases(), 0U);
}

TEST_F(batched_copy, never_mixes_directions_in_a_call) {
  grant::batched_copy::bind<scripted_mapper> strategy(mapper, {.max_leases = 8});
  request write(direction::from_peer, {whole(1)});
  request read(direction::to_peer, {whole(2)});
  ASSERT_EQ(strategy.acquire(write.lease), acquired::queued);
  ASSERT_EQ(strategy.acquire(read.lease), acquired::ready);
  strategy.finish_acquires(ignore_lease);
  read.fill(std::byte{0xaa});
  strategy.release(write.lease, true, ignore);
  strategy.release(read.lease, true, ignore);
  strategy.finish_releases(ignore);
  ASSERT_EQ(mapper.copy_directions, (std::vector{direction::from_peer, direction::to_peer}));
  EXPECT_EQ(mapper.peer[2].bytes[4095], std::byte{0xaa});
}

TEST_F(batched_copy, sends_nothing_to_the_peer_for_a_read_that_failed) {
  grant::batched_copy::bind<scripted_mapper> strategy(mapper, {});
  request read(direction::to_peer, {whole(2)});
  ASSERT_EQ(strategy.acquire(read.lease), acquired::ready);
  int proofs = 0;
  strategy.release(read.lease, false, [&](const grant::released&) { ++proofs; });
  strategy.finish_releases([&](const grant::released&) { ++proofs; });
  EXPECT_EQ(proofs, 1);
  EXPECT_TRUE(mapper.copy_calls.empty());
}

// Case 61: a status that is not okay is the error of its own request, and of no other.
TEST_F(batched_copy, lets_a_segment_status_decide_its_own_request_only) {
  mapper.statuses[2] = platform::grant_status::bad_reference;
  grant::batched_copy::bind<scripted_mapper> strategy(mapper, {});
  request good(direction::from_peer, {whole(1)});
  request bad(direction::from_peer, {whole(3), whole(2)});
  request also_good(direction::from_peer, {whole(4)});
  for (request* r : {&good, &bad, &also_good}) {
    ASSERT_EQ(strategy.acquire(r->lease), acquired::queued);
  }
  strategy.finish_acquires(ignore_lease);
  EXPECT_EQ(good.lease.error, 0);
  EXPECT_EQ(bad.lease.error, -EIO);
  EXPECT_EQ(also_good.lease.error, 0);
  EXPECT_EQ(mapper.copy_calls.size(), 1U) << "no retry for a permanent error";
}

TEST_F(batched_copy, repeats_a_call_that_failed_as_a_whole_request_by_request) {
  mapper.copy_errors = {EINVAL, 0, EINVAL, 0};
  grant::batched_copy::bind<scripted_mapper> strategy(mapper, {});
  std::list<request> requests;
  for (platform::grant_reference reference = 1; reference <= 3; ++reference) {
    request& r = requests.emplace_back(direction::from_peer,
                                       std::vector{whole(reference), whole(reference + 10)});
    ASSERT_EQ(strategy.acquire(r.lease), acquired::queued);
  }
  strategy.finish_acquires(ignore_lease);
  ASSERT_EQ(mapper.copy_calls.size(), 4U);
  EXPECT_EQ(mapper.copy_calls[1].size(), 2U);
  auto at = requests.begin();
  EXPECT_EQ(at++->lease.error, 0);
  EXPECT_EQ(at++->lease.error, -EIO);
  EXPECT_EQ(at++->lease.error, 0);
}

TEST_F(batched_copy, fails_a_request_whose_own_call_failed) {
  mapper.copy_errors = {EFAULT};
  grant::batched_copy::bind<scripted_mapper> strategy(mapper, {});
  request r(direction::from_peer, {whole(1)});
  ASSERT_EQ(strategy.acquire(r.lease), acquired::queued);
  strategy.finish_acquires(ignore_lease);
  EXPECT_EQ(r.lease.error, -EIO);
  EXPECT_EQ(mapper.copy_calls.size(), 1U);
}

// Case 56: whatever the layout, no operation leaves its local page, and all bytes arrive.
TEST_F(batched_copy, never_crosses_a_local_page) {
  for (const bool scatter : {true, false}) {
    grant::batched_copy::bind<scripted_mapper> strategy(
        mapper, {.max_pieces = 64, .max_leases = 4, .scatter = scatter});
    request r(direction::from_peer, {{.reference = 1, .offset = 512, .length = 3584},
                                     {.reference = 2, .offset = 0, .length = 4096},
                                     {.reference = 3, .offset = 3584, .length = 512},
                                     {.reference = 4, .offset = 0, .length = 4096}});
    ASSERT_EQ(strategy.acquire(r.lease), acquired::queued);
    strategy.finish_acquires(ignore_lease);
    ASSERT_EQ(r.lease.error, 0);
    const std::vector<std::byte> got = r.bytes();
    ASSERT_EQ(got.size(), 3584U + 4096 + 512 + 4096);
    EXPECT_EQ(got[0], std::byte{1});
    EXPECT_EQ(got[3584], std::byte{2});
    EXPECT_EQ(got[7679], std::byte{2});
    EXPECT_EQ(got[7680], std::byte{3});
    EXPECT_EQ(got.back(), std::byte{4});
    EXPECT_FALSE(mapper.crossed) << (scatter ? "congruent" : "packed");
    EXPECT_EQ(r.lease.buffers, scatter ? 2U : 1U) << "neighbours that touch are one buffer";
    strategy.release(r.lease, true, ignore);
  }
}

TEST_F(batched_copy, waits_for_buffers_and_goes_on_when_there_are_some) {
  grant::batched_copy::bind<scripted_mapper> strategy(
      mapper, {.max_pieces = 4, .max_leases = 8, .budget_bytes = 5 * platform::page_size});
  request first(direction::to_peer, {whole(1), whole(2), whole(3)});
  request second(direction::to_peer, {whole(4), whole(5), whole(6)});
  ASSERT_EQ(strategy.acquire(first.lease), acquired::ready);
  ASSERT_EQ(strategy.acquire(second.lease), acquired::wait);
  EXPECT_EQ(strategy.counters().waits.get(), 1U);
  strategy.release(first.lease, false, ignore);
  EXPECT_EQ(strategy.acquire(second.lease), acquired::ready);
}

TEST_F(batched_copy, places_a_request_in_pieces_when_no_run_is_long_enough) {
  grant::batched_copy::bind<scripted_mapper> strategy(
      mapper, {.max_pieces = 4, .max_leases = 16, .budget_bytes = 8 * platform::page_size});
  std::list<request> singles;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(
        strategy.acquire(singles.emplace_back(direction::to_peer, std::vector{whole(1)}).lease),
        acquired::ready);
  }
  int i = 0;
  for (request& r : singles) {
    if (i++ % 2 == 0) {
      strategy.release(r.lease, false, ignore);
    }
  }
  request scattered(direction::to_peer, {whole(1), whole(2), whole(3), whole(4)});
  ASSERT_EQ(strategy.acquire(scattered.lease), acquired::ready);
  EXPECT_EQ(scattered.lease.buffers, 4U);
  strategy.release(scattered.lease, false, ignore);
  EXPECT_EQ(strategy.leases(), 4U);
}

TEST_F(batched_copy, runs_early_rather_than_split_a_request_between_calls) {
  // 512 operations fit; 11 pieces each: the 47th request does not.
  grant::batched_copy::bind<scripted_mapper> strategy(
      mapper, {.max_leases = 64, .budget_bytes = 1024 * 4096});
  std::list<request> requests;
  for (int i = 0; i < 60; ++i) {
    std::vector<piece> pieces;
    for (platform::grant_reference reference = 1; reference <= 11; ++reference) {
      pieces.push_back(whole(reference));
    }
    ASSERT_EQ(strategy.acquire(requests.emplace_back(direction::from_peer, pieces).lease),
              acquired::queued);
  }
  std::size_t seen = 0;
  strategy.finish_acquires([&](lease_state& lease) { seen += lease.error == 0; });
  EXPECT_EQ(seen, 60U);
  ASSERT_EQ(mapper.copy_calls.size(), 2U);
  EXPECT_EQ(mapper.copy_calls[0].size() % 11, 0U);
}

class map_each : public testing::Test {
 protected:
  map_each() {
    for (platform::grant_reference reference = 1; reference <= 64; ++reference) {
      mapper.peer[reference];
    }
  }
  scripted_mapper mapper;
};

TEST_F(map_each, makes_one_call_per_request_and_unmaps_it_whole_before_its_answer) {
  grant::map_each::bind<scripted_mapper> strategy(mapper, {});
  request r(direction::from_peer, {whole(1), whole(2), whole(3)});
  ASSERT_EQ(strategy.acquire(r.lease), acquired::ready);
  ASSERT_EQ(mapper.maps.size(), 1U);
  EXPECT_EQ(mapper.maps[0].references, (std::vector<platform::grant_reference>{1, 2, 3}));
  EXPECT_EQ(r.lease.buffers, 1U);
  std::size_t mapped_at_proof = 99;
  strategy.release(r.lease, true,
                   [&](const grant::released&) { mapped_at_proof = mapper.mapped_pages; });
  EXPECT_EQ(mapped_at_proof, 0U);
  ASSERT_EQ(mapper.unmaps.size(), 1U);
  EXPECT_EQ(mapper.unmaps[0].count, 3U);
}

// Case 52: what a read brings has to be stored; a write is only looked at.
TEST_F(map_each, maps_for_reading_what_a_write_carries_and_for_writing_what_a_read_fills) {
  grant::map_each::bind<scripted_mapper> strategy(mapper, {});
  mapper.peer[1].writable = false;
  request write(direction::from_peer, {whole(1)});
  request read(direction::to_peer, {whole(2)});
  EXPECT_EQ(strategy.acquire(write.lease), acquired::ready);
  EXPECT_EQ(strategy.acquire(read.lease), acquired::ready);
  EXPECT_EQ(mapper.maps[0].access, platform::access::read_only);
  EXPECT_EQ(mapper.maps[1].access, platform::access::read_write);
  request refused(direction::to_peer, {whole(1)});
  EXPECT_EQ(strategy.acquire(refused.lease), acquired::failed);
  for (request* r : {&write, &read, &refused}) {
    strategy.release(r->lease, true, ignore);
  }
  EXPECT_EQ(mapper.mapped_pages, 0U);
}

// Case 46: one bad reference among good ones; the request fails, its neighbours do not, and nothing
// stays mapped.
TEST_F(map_each, leaves_nothing_mapped_after_a_request_that_failed) {
  grant::map_each::bind<scripted_mapper> strategy(mapper, {});
  for (int round = 0; round < 10000; ++round) {
    for (const std::vector<platform::grant_reference>& references :
         {std::vector<platform::grant_reference>{1, 999, 2}, {999, 1, 2}, {1, 2, 999}}) {
      request r(direction::from_peer,
                {whole(references[0]), whole(references[1]), whole(references[2])});
      ASSERT_EQ(strategy.acquire(r.lease), acquired::failed);
      ASSERT_EQ(r.lease.error, -EIO);
      strategy.release(r.lease, true, ignore);
    }
    mapper.maps.clear();
  }
  EXPECT_EQ(mapper.mapped_pages, 0U);
  EXPECT_EQ(strategy.leases(), 0U);
}

TEST_F(map_each, waits_within_its_quota) {
  grant::map_each::bind<scripted_mapper> strategy(mapper, {.max_pieces = 3, .quota_pages = 4});
  request first(direction::to_peer, {whole(1), whole(2), whole(3)});
  request second(direction::to_peer, {whole(4), whole(5)});
  ASSERT_EQ(strategy.acquire(first.lease), acquired::ready);
  ASSERT_EQ(strategy.acquire(second.lease), acquired::wait);
  strategy.release(first.lease, true, ignore);
  ASSERT_EQ(strategy.acquire(second.lease), acquired::ready);
  strategy.release(second.lease, true, ignore);
}

class persistent_pool : public map_each {
 protected:
  using pool = grant::persistent_pool::bind<scripted_mapper>;
  void once(pool& strategy, direction way, std::vector<piece> pieces) {
    request r(way, std::move(pieces));
    ASSERT_EQ(strategy.acquire(r.lease), acquired::ready);
    strategy.release(r.lease, true, ignore);
  }
};

TEST_F(persistent_pool, maps_a_page_once_and_finds_it_after_that) {
  pool strategy(mapper, {});
  once(strategy, direction::from_peer, {whole(1), whole(2)});
  for (int i = 0; i < 100; ++i) {
    once(strategy, direction::to_peer, {whole(2), whole(1)});
  }
  EXPECT_EQ(mapper.maps.size(), 1U);
  EXPECT_EQ(mapper.maps[0].access, platform::access::read_write);
  EXPECT_EQ(strategy.counters().hits.get(), 200U);
  EXPECT_EQ(strategy.counters().misses.get(), 2U);
}

TEST_F(persistent_pool, makes_one_call_for_all_misses_of_a_request) {
  pool strategy(mapper, {});
  once(strategy, direction::from_peer, {whole(2)});
  once(strategy, direction::from_peer, {whole(1), whole(2), whole(3)});
  ASSERT_EQ(mapper.maps.size(), 2U);
  EXPECT_EQ(mapper.maps[1].references, (std::vector<platform::grant_reference>{1, 3}));
}

// Case 52, in a pool.
TEST_F(persistent_pool, never_uses_a_read_only_page_to_store_into) {
  mapper.peer[1].writable = false;
  pool strategy(mapper, {});
  once(strategy, direction::from_peer, {whole(1)});  // falls back to reading only
  ASSERT_EQ(mapper.maps.size(), 2U);
  EXPECT_EQ(mapper.maps[1].access, platform::access::read_only);
  request read(direction::to_peer, {whole(1)});
  EXPECT_EQ(strategy.acquire(read.lease), acquired::failed);
  strategy.release(read.lease, true, ignore);
  mapper.peer[1].writable = true;
  once(strategy, direction::to_peer, {whole(1)});
  once(strategy, direction::from_peer, {whole(1)});
}

// Case 53: a mapping goes whole, with the address and count that it was made with, and only when
// all of it is unused.
TEST_F(persistent_pool, evicts_whole_mappings_that_are_wholly_unused) {
  pool strategy(mapper, {.max_pieces = 4, .quota_pages = 6});
  once(strategy, direction::from_peer, {whole(1), whole(2), whole(3)});
  request holder(direction::from_peer, {whole(2)});
  ASSERT_EQ(strategy.acquire(holder.lease), acquired::ready);
  request large(direction::from_peer, {whole(10), whole(11), whole(12), whole(13)});
  EXPECT_EQ(strategy.acquire(large.lease), acquired::wait)
      << "page 2 is in use, so 1 and 3 stay as well";
  EXPECT_TRUE(mapper.unmaps.empty());
  strategy.release(holder.lease, true, ignore);
  ASSERT_EQ(strategy.acquire(large.lease), acquired::ready);
  ASSERT_EQ(mapper.unmaps.size(), 1U);
  EXPECT_EQ(mapper.unmaps[0].count, 3U);
  strategy.release(large.lease, true, ignore);
  strategy.clear();
  EXPECT_EQ(mapper.mapped_pages, 0U);
}

TEST_F(persistent_pool, gives_up_the_longest_unused_first) {
  pool strategy(mapper, {.max_pieces = 1, .quota_pages = 3});
  once(strategy, direction::from_peer, {whole(1)});
  once(strategy, direction::from_peer, {whole(2)});
  once(strategy, direction::from_peer, {whole(3)});
  once(strategy, direction::from_peer, {whole(1)});
  once(strategy, direction::from_peer, {whole(4)});  // 2 goes
  const std::size_t calls = mapper.maps.size();
  once(strategy, direction::from_peer, {whole(1)});
  once(strategy, direction::from_peer, {whole(3)});
  EXPECT_EQ(mapper.maps.size(), calls);
  once(strategy, direction::from_peer, {whole(2)});
  EXPECT_EQ(mapper.maps.size(), calls + 1);
}

TEST_F(persistent_pool, serves_a_request_that_alone_pins_more_than_the_cap) {
  pool strategy(mapper, {.max_pieces = 4, .quota_pages = 4});
  once(strategy, direction::from_peer, {whole(1), whole(2), whole(3), whole(4)});
  // A hit on one page of that mapping pins all four, and there is no room for three more.
  once(strategy, direction::from_peer, {whole(1), whole(5), whole(6), whole(7)});
  EXPECT_LE(mapper.mapped_pages, 4U);
}

TEST_F(persistent_pool, gives_up_what_idled) {
  pool strategy(mapper, {.idle_milliseconds = 100});
  EXPECT_EQ(strategy.trim(1000), 0U);
  once(strategy, direction::from_peer, {whole(1)});
  EXPECT_EQ(strategy.trim(1050), 1100U);
  EXPECT_EQ(mapper.mapped_pages, 1U);
  EXPECT_EQ(strategy.trim(1100), 0U);
  EXPECT_EQ(mapper.mapped_pages, 0U);
  once(strategy, direction::from_peer, {whole(1)});
}

// Cases 49, 60: a failing call leaves nothing behind, and the pages that were found are let go
// again.
TEST_F(persistent_pool, lets_go_of_hits_when_the_misses_cannot_be_mapped) {
  pool strategy(mapper, {});
  once(strategy, direction::from_peer, {whole(1)});
  request bad(direction::to_peer, {whole(1), whole(999)});
  ASSERT_EQ(strategy.acquire(bad.lease), acquired::failed);
  strategy.release(bad.lease, false, ignore);
  strategy.clear();
  EXPECT_EQ(mapper.mapped_pages, 0U);
  EXPECT_EQ(strategy.pages(), 0U);
}

TEST_F(persistent_pool, unmaps_everything_at_the_end) {
  {
    pool strategy(mapper, {.max_leases = 16});
    for (platform::grant_reference reference = 1; reference <= 60; ++reference) {
      once(strategy, direction::to_peer, {whole(reference)});
    }
    EXPECT_EQ(mapper.mapped_pages, 60U);
  }
  EXPECT_EQ(mapper.mapped_pages, 0U);
}

TEST_F(persistent_pool, takes_the_same_reference_twice_in_a_request) {
  pool strategy(mapper, {});
  once(strategy, direction::to_peer, {whole(7), whole(7)});
  once(strategy, direction::to_peer, {whole(7), whole(7)});
  strategy.clear();
  EXPECT_EQ(mapper.mapped_pages, 0U);
}

// Case 45, 130: only touching local memory is a reason to merge.
TEST(lease_state, merges_only_what_touches_in_local_memory) {
  iovec storage[4];
  lease_state lease;
  lease.storage = storage;
  std::byte memory[64];
  lease.append(memory, 16);
  lease.append(memory + 16, 16);
  lease.append(memory + 40, 8);
  lease.append(memory, 8);
  ASSERT_EQ(lease.buffers, 3U);
  EXPECT_EQ(lease.local()[0].iov_len, 32U);
  lease_state from_null;
  from_null.storage = storage;
  from_null.append(nullptr, 16);  // no entry before it to merge with, whatever address it has
  EXPECT_EQ(from_null.buffers, 1U);
}

using grants = grant::first_usable<grant::batched_copy, grant::persistent_pool, grant::map_each>;
using persistent_first = grant::first_usable<grant::persistent_pool, grant::batched_copy>;

std::string_view chosen(const grant::circumstances& known, std::string_view only = {}) {
  std::string_view name = "none";
  (void)grant::choose<grants>(known, only, [&]<class S>() { name = S::name; });
  return name;
}

TEST(choice, takes_the_first_strategy_that_can_run) {
  EXPECT_EQ(chosen({.has_copy = true, .frontend_persistent = true, .mapping_safe = true}),
            "batched_copy");
  EXPECT_EQ(chosen({.frontend_persistent = true, .mapping_safe = true}), "persistent_pool");
  EXPECT_EQ(chosen({.mapping_safe = true}), "map_each");
  EXPECT_EQ(chosen({}), "none");
  EXPECT_EQ(chosen({.has_copy = true, .mapping_safe = true}, "map_each"), "map_each");
}

TEST(choice, advertises_persistent_grants_only_where_they_would_be_used) {
  const grant::circumstances with_copy{.has_copy = true, .mapping_safe = true};
  EXPECT_FALSE(grant::wants_persistent<grants>(with_copy));
  EXPECT_TRUE(grant::wants_persistent<grants>({.mapping_safe = true}));
  EXPECT_TRUE(grant::wants_persistent<grants>(with_copy, "persistent_pool"));
  EXPECT_TRUE(grant::wants_persistent<persistent_first>(with_copy));
  EXPECT_FALSE(grant::wants_persistent<persistent_first>({.has_copy = true}))
      << "mapping is not safe";
}

TEST(choice, names_what_it_knew) {
  const std::string why = grant::explain("map_each", {.mapping_safe = true}, false);
  EXPECT_NE(why.find("does not copy"), std::string::npos);
  EXPECT_NE(why.find("not advertised"), std::string::npos);
  EXPECT_EQ(grant::names<grants>(), "batched_copy, persistent_pool, map_each");
  EXPECT_TRUE(grant::offers<grants>("map_each"));
  EXPECT_FALSE(grant::offers<persistent_first>("map_each"));
}

}  // namespace
