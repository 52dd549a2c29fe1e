// SPDX-License-Identifier: MIT
// What every grant strategy must do, as a typed test suite on the emulated platform: bytes arrive,
// failures stay where they belong, nothing is unmapped under an engine's hands, and nothing stays
// behind. Instantiate it with a strategy of your own.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <vector>

#include "../../grant/strategy.hpp"
#include "../../platform/emulated.hpp"

namespace pvring::testing {

/// \tparam Strategy a grant strategy (a policy, not bound)
template <class Strategy>
class grant_strategy_conformance : public ::testing::Test {
 protected:
  static constexpr domain_id guest_domain = 1;
  static constexpr std::uint32_t page_count = 64;
  using mapper = platform::emulated_grants;
  using bound = typename Strategy::template bind<mapper>;

  grant_strategy_conformance()
      : host_(platform::emulated_host::create()),
        guest_(host_.create_domain(guest_domain)),
        platform_(host_, 0) {
    platform_.set_in_flight(&registry);
    platform_.set_faults(&faults);
    pages_ = guest_.allocate_pages(page_count);
    for (std::uint32_t i = 0; i < page_count; ++i) {
      std::memset(page(i), static_cast<int>(i + 1), platform::page_size);
      references_.push_back(guest_.grant(0, page(i), platform::access::read_write));
    }
  }

  struct request {
    std::vector<grant::piece> pieces;
    std::vector<iovec> storage;
    grant::lease_state lease;
    request(platform::direction way, std::vector<grant::piece> of)
        : pieces(std::move(of)), storage(pieces.size()) {
      lease.direction = way;
      lease.pieces = pieces;
      lease.storage = storage;
    }
    request(const request&) = delete;
    request& operator=(const request&) = delete;
  };

  [[nodiscard]] std::byte* page(std::uint32_t index) const {
    return pages_ + index * platform::page_size;
  }
  [[nodiscard]] platform::grant_reference reference(std::uint32_t index) const {
    return references_.at(index);
  }
  [[nodiscard]] grant::piece piece(std::uint32_t index, std::uint16_t offset = 0,
                                   std::uint16_t length = 4096) const {
    return {.reference = reference(index), .offset = offset, .length = length};
  }
  [[nodiscard]] grant::piece bad_piece() const {
    return {.reference = 0x7fffffff, .offset = 0, .length = 4096};
  }

  /// Acquires, as a queue does; what it came to, with `queued` resolved.
  grant::acquired acquire(bound& strategy, request& r) {
    const grant::acquired outcome = strategy.acquire(r.lease);
    bool called = false;
    strategy.finish_acquires([&](grant::lease_state& lease) {
      EXPECT_EQ(&lease, &r.lease);
      called = true;
    });
    EXPECT_EQ(called, outcome == grant::acquired::queued);
    if (outcome != grant::acquired::queued) {
      return outcome;
    }
    return r.lease.error == 0 ? grant::acquired::ready : grant::acquired::failed;
  }
  /// Releases, and returns the error that the proof came with.
  int release(bound& strategy, request& r, bool ok = true) {
    int proofs = 0;
    int error = 0;
    const auto take = [&](const grant::released& proof) {
      EXPECT_EQ(&proof.lease(), &r.lease);
      error = proof.error();
      ++proofs;
    };
    strategy.release(r.lease, ok, take);
    strategy.finish_releases(take);
    EXPECT_EQ(proofs, 1) << "a lease is released exactly once";
    return error;
  }
  static std::vector<std::byte> bytes(const request& r) {
    std::vector<std::byte> out;
    for (const iovec& part : r.lease.local()) {
      const auto* from = static_cast<const std::byte*>(part.iov_base);
      out.insert(out.end(), from, from + part.iov_len);
    }
    return out;
  }
  static void fill(const request& r, std::byte with) {
    for (const iovec& part : r.lease.local()) {
      std::memset(part.iov_base, static_cast<int>(with), part.iov_len);
    }
  }
  [[nodiscard]] std::size_t mapped() const {
    std::size_t count = 0;
    for (const auto r : references_) {
      count += guest_.is_mapped(r) ? 1 : 0;
    }
    return count;
  }

  platform::in_flight_registry registry;
  platform::fault_plan faults;
  platform::emulated_host host_;
  platform::emulated_guest guest_;
  platform::emulated platform_;
  std::byte* pages_ = nullptr;
  std::vector<platform::grant_reference> references_;
};

TYPED_TEST_SUITE_P(grant_strategy_conformance);

TYPED_TEST_P(grant_strategy_conformance, brings_the_peers_bytes_in_for_a_write) {
  auto grants = this->platform_.open_grants(256);
  typename TestFixture::bound strategy(grants,
                                       {.domain = TestFixture::guest_domain, .max_pieces = 64});
  typename TestFixture::request r(
      platform::direction::from_peer,
      {this->piece(0), this->piece(5, 512, 1024), this->piece(6, 3584, 512)});
  ASSERT_EQ(this->acquire(strategy, r), grant::acquired::ready);
  const auto got = this->bytes(r);
  ASSERT_EQ(got.size(), 4096U + 1024 + 512);
  EXPECT_EQ(got.front(), std::byte{1});
  EXPECT_EQ(got[4096], std::byte{6});
  EXPECT_EQ(got.back(), std::byte{7});
  EXPECT_EQ(this->release(strategy, r), 0);
}

TYPED_TEST_P(grant_strategy_conformance, takes_out_what_a_read_brought_and_not_a_byte_more) {
  auto grants = this->platform_.open_grants(256);
  typename TestFixture::bound strategy(grants,
                                       {.domain = TestFixture::guest_domain, .max_pieces = 64});
  typename TestFixture::request r(platform::direction::to_peer,
                                  {this->piece(3, 1024, 512), this->piece(4)});
  ASSERT_EQ(this->acquire(strategy, r), grant::acquired::ready);
  this->fill(r, std::byte{0xcc});
  EXPECT_EQ(this->release(strategy, r), 0);
  EXPECT_EQ(this->page(3)[1023], std::byte{4});
  EXPECT_EQ(this->page(3)[1024], std::byte{0xcc});
  EXPECT_EQ(this->page(3)[1535], std::byte{0xcc});
  EXPECT_EQ(this->page(3)[1536], std::byte{4});
  EXPECT_EQ(this->page(4)[4095], std::byte{0xcc});
}

TYPED_TEST_P(grant_strategy_conformance, fails_only_the_request_with_the_bad_reference) {
  auto grants = this->platform_.open_grants(256);
  typename TestFixture::bound strategy(grants,
                                       {.domain = TestFixture::guest_domain, .max_pieces = 64});
  using held = typename TestFixture::request;
  std::list<held> requests;
  requests.emplace_back(platform::direction::from_peer, std::vector{this->piece(0)});
  requests.emplace_back(platform::direction::from_peer,
                        std::vector{this->piece(1), this->bad_piece(), this->piece(2)});
  requests.emplace_back(platform::direction::from_peer, std::vector{this->piece(3)});
  for (held& r : requests) {
    ASSERT_NE(strategy.acquire(r.lease), grant::acquired::wait);
  }
  strategy.finish_acquires([](grant::lease_state&) {});
  std::size_t i = 0;
  for (held& r : requests) {
    EXPECT_EQ(r.lease.error != 0, i == 1) << i;
    EXPECT_EQ(this->release(strategy, r, i != 1) != 0, i == 1) << i;
    ++i;
  }
  strategy.clear();
  EXPECT_EQ(this->mapped(), 0U);
}

TYPED_TEST_P(grant_strategy_conformance, has_the_proof_only_when_the_pages_are_let_go) {
  auto grants = this->platform_.open_grants(256);
  typename TestFixture::bound strategy(grants,
                                       {.domain = TestFixture::guest_domain, .max_pieces = 64});
  typename TestFixture::request r(platform::direction::from_peer, {this->piece(0), this->piece(1)});
  ASSERT_EQ(this->acquire(strategy, r), grant::acquired::ready);
  ASSERT_EQ(this->release(strategy, r), 0);
  if (!TypeParam::needs_frontend) {
    EXPECT_EQ(this->mapped(), 0U) << "the frontend did not agree to pages that stay mapped";
    EXPECT_TRUE(this->guest_.end_grant(this->reference(0)));
  }
  strategy.clear();
  EXPECT_EQ(this->mapped(), 0U);
}

TYPED_TEST_P(grant_strategy_conformance, never_unmaps_a_page_that_an_engine_uses) {
  auto grants = this->platform_.open_grants(16);
  // Less room than the requests together need, so that something has to go.
  typename TestFixture::bound strategy(grants, {.domain = TestFixture::guest_domain,
                                                .max_pieces = 4,
                                                .max_leases = 8,
                                                .budget_bytes = 8 * platform::page_size,
                                                .quota_pages = 8});
  using held = typename TestFixture::request;
  std::list<held> flying;
  for (std::uint32_t round = 0; round < 200; ++round) {
    const std::uint32_t first = round * 7 % 60;
    held& r = flying.emplace_back(
        round % 2 == 0 ? platform::direction::to_peer : platform::direction::from_peer,
        std::vector{this->piece(first), this->piece(first + 1), this->piece(first + 2)});
    while (this->acquire(strategy, r) == grant::acquired::wait) {
      r.lease.buffers = 0;
      ASSERT_GT(flying.size(), 1U) << "waits with nobody to wait for";
      held& oldest = flying.front();
      for (const iovec& part : oldest.lease.local()) {
        this->registry.end(part.iov_base, part.iov_len);
      }
      ASSERT_EQ(this->release(strategy, oldest), 0);
      flying.pop_front();
    }
    for (const iovec& part : r.lease.local()) {
      this->registry.begin(part.iov_base, part.iov_len);
    }
  }
  for (held& r : flying) {
    for (const iovec& part : r.lease.local()) {
      this->registry.end(part.iov_base, part.iov_len);
    }
    ASSERT_EQ(this->release(strategy, r), 0);
  }
  EXPECT_EQ(this->registry.violations(), 0U);
  EXPECT_EQ(strategy.leases(), 0U);
  strategy.clear();
  EXPECT_EQ(this->mapped(), 0U);
}

TYPED_TEST_P(grant_strategy_conformance, recovers_from_calls_that_fail_as_a_whole) {
  auto grants = this->platform_.open_grants(256);
  typename TestFixture::bound strategy(grants,
                                       {.domain = TestFixture::guest_domain, .max_pieces = 64});
  // The first copy call fails and its repetition succeeds; a map call has no repetition, as it
  // names one request.
  this->faults.fail_copy(1, EINVAL);
  this->faults.fail_map(1, ENOMEM, 2);
  using held = typename TestFixture::request;
  // How many of the failures one request meets is the strategy's own affair; after three there are
  // none left.
  int failed = 0;
  for (int i = 0; i < 3; ++i) {
    held r(platform::direction::from_peer, {this->piece(0), this->piece(1)});
    const bool good = this->acquire(strategy, r) == grant::acquired::ready;
    EXPECT_EQ(this->release(strategy, r, good) == 0, good);
    failed += good ? 0 : 1;
    EXPECT_TRUE(good || i != 2);
  }
  EXPECT_LE(failed, 2);
  EXPECT_EQ(strategy.leases(), 0U);
  strategy.clear();
  EXPECT_EQ(this->mapped(), 0U);
}

REGISTER_TYPED_TEST_SUITE_P(grant_strategy_conformance, brings_the_peers_bytes_in_for_a_write,
                            takes_out_what_a_read_brought_and_not_a_byte_more,
                            fails_only_the_request_with_the_bad_reference,
                            has_the_proof_only_when_the_pages_are_let_go,
                            never_unmaps_a_page_that_an_engine_uses,
                            recovers_from_calls_that_fail_as_a_whole);

}  // namespace pvring::testing
