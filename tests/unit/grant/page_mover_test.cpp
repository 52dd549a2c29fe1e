// SPDX-License-Identifier: MIT
#include "pvring/grant/page_mover.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/mapped_first.hpp"
#include "pvring/platform/emulated.hpp"
#include "scripted_mapper.hpp"

namespace pvring::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

static_assert(grant::page_mover<grant::copy_mover<scripted_mapper>>);
static_assert(grant::page_mover<grant::map_mover<scripted_mapper>>);
static_assert(grant::page_mover<grant::mover_for<grant::mapped_first<>, scripted_mapper>>);
struct no_mover {
  void move(const std::byte*, const grant::piece&, std::uint32_t) noexcept {}
};
static_assert(!grant::page_mover<no_mover>);
static_assert(grant::answer_frees_grants<grant::mapped_first<grant::map_each>>);
static_assert(!grant::answer_frees_grants<grant::mapped_first<grant::batched_copy>>);

struct page_buffer {
  explicit page_buffer(std::size_t pages)
      : bytes(static_cast<std::byte*>(std::aligned_alloc(4096, pages * 4096)), &std::free) {
    for (std::size_t i = 0; i < pages * 4096; ++i) {
      bytes.get()[i] = static_cast<std::byte>(i * 13 / 7 & 0xffU);
    }
  }
  std::unique_ptr<std::byte, decltype(&std::free)> bytes;
};

grant::piece whole(platform::grant_reference reference, std::uint16_t length = 4096) {
  return {.reference = reference, .mark = 0, .offset = 0, .length = length};
}

template <class Mover>
std::set<std::uint32_t> flush(Mover& mover) {
  std::set<std::uint32_t> failed;
  mover.flush([&](std::uint32_t owner) { failed.insert(owner); });
  EXPECT_FALSE(mover.pending());
  return failed;
}

class CopyMover : public ::testing::Test {
 protected:
  CopyMover() {
    for (platform::grant_reference i = 1; i <= 8; ++i) {
      mapper.peer[i];
    }
  }
  scripted_mapper mapper;
  page_buffer from{4};
};

TEST_F(CopyMover, moves_all_pieces_with_one_call_and_none_crosses_a_page) {
  grant::copy_mover<scripted_mapper> mover(mapper, {.domain = 1, .most = 8});
  (void)mover.move(from.bytes.get(), whole(1), 0);
  (void)mover.move(from.bytes.get() + 100, whole(2), 1);  // crosses a page here
  (void)mover.move(from.bytes.get() + 4096 - 10, {.reference = 3, .offset = 50, .length = 10}, 2);
  EXPECT_TRUE(mover.pending());
  EXPECT_THAT(flush(mover), IsEmpty());
  EXPECT_THAT(mapper.copy_calls, SizeIs(1));
  EXPECT_THAT(mapper.copy_calls[0], SizeIs(4));
  EXPECT_EQ(mapper.copy_directions[0], platform::direction::to_peer);
  EXPECT_FALSE(mapper.crossed);
  EXPECT_EQ(std::memcmp(mapper.peer[1].bytes.data(), from.bytes.get(), 4096), 0);
  EXPECT_EQ(std::memcmp(mapper.peer[2].bytes.data(), from.bytes.get() + 100, 4096), 0);
  EXPECT_EQ(std::memcmp(mapper.peer[3].bytes.data() + 50, from.bytes.get() + 4086, 10), 0);
  EXPECT_EQ(mover.counters().calls.get(), 1U);
  EXPECT_EQ(mover.counters().operations.get(), 4U);
  EXPECT_THAT(flush(mover), IsEmpty());
  EXPECT_THAT(mapper.copy_calls, SizeIs(1));  // nothing to do, no call
}

TEST_F(CopyMover, tells_of_each_piece_that_failed_by_its_status) {
  grant::copy_mover<scripted_mapper> mover(mapper, {.domain = 1, .most = 8});
  mapper.statuses[2] = platform::grant_status::bad_reference;
  for (std::uint32_t i = 0; i < 4; ++i) {
    (void)mover.move(from.bytes.get(), whole(i + 1), i + 10);
  }
  EXPECT_THAT(flush(mover), ElementsAre(11));
}

TEST_F(CopyMover, repeats_a_call_that_failed_as_a_whole_piece_by_piece) {
  grant::copy_mover<scripted_mapper> mover(mapper, {.domain = 1, .most = 8});
  mapper.copy_errors = {EFAULT, 0, EFAULT, 0};
  for (std::uint32_t i = 0; i < 3; ++i) {
    (void)mover.move(from.bytes.get(), whole(i + 1), i);
  }
  EXPECT_THAT(flush(mover), ElementsAre(1));
  EXPECT_THAT(mapper.copy_calls, SizeIs(4));
  EXPECT_EQ(std::memcmp(mapper.peer[3].bytes.data(), from.bytes.get(), 4096), 0);
}

TEST_F(CopyMover, cuts_its_calls_where_it_is_told_to) {
  grant::copy_mover<scripted_mapper> mover(mapper,
                                           {.domain = 1, .most = 8, .operations_per_call = 3});
  for (std::uint32_t i = 0; i < 8; ++i) {
    (void)mover.move(from.bytes.get(), whole(i + 1), i);
  }
  EXPECT_THAT(flush(mover), IsEmpty());
  ASSERT_THAT(mapper.copy_calls, SizeIs(3));
  EXPECT_THAT(mapper.copy_calls[2], SizeIs(2));
}

/// With real pages, since what is stored through a mapping has to be seen by the guest.
class MappingMover : public ::testing::Test {
 protected:
  MappingMover() {
    for (int i = 0; i < 24; ++i) {
      pages.push_back(guest.allocate_pages());
      references.push_back(guest.grant(0, pages.back(), platform::access::read_write));
    }
  }
  bool arrived(std::size_t page, const std::byte* bytes, std::size_t length) {
    return std::memcmp(pages[page], bytes, length) == 0;
  }
  platform::emulated_host host = platform::emulated_host::create();
  platform::emulated_guest guest = host.create_domain(1);
  platform::emulated platform{host};
  platform::emulated_grants mapper = platform.open_grants(64);
  std::vector<std::byte*> pages;
  std::vector<platform::grant_reference> references;
  page_buffer from{4};
};

TEST_F(MappingMover, fills_pages_and_leaves_none_mapped) {
  grant::map_mover<platform::emulated_grants> mover(mapper, {.domain = 1, .most = 24});
  for (std::uint32_t i = 0; i < 24; ++i) {
    (void)mover.move(from.bytes.get() + i, whole(references[i], 2000), i);
  }
  EXPECT_THAT(flush(mover), IsEmpty());
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_TRUE(arrived(i, from.bytes.get() + i, 2000));
    EXPECT_TRUE(guest.end_grant(references[i]));
  }
  EXPECT_EQ(mover.counters().calls.get(), 4U);  // 19 pages, and 5
}

TEST_F(MappingMover, of_pages_that_cannot_be_mapped_together_fails_the_culprit_only) {
  grant::map_mover<platform::emulated_grants> mover(mapper, {.domain = 1, .most = 24});
  ASSERT_TRUE(guest.end_grant(references[2]));
  for (std::uint32_t i = 0; i < 5; ++i) {
    (void)mover.move(from.bytes.get(), whole(references[i]), i);
  }
  EXPECT_THAT(flush(mover), ElementsAre(2));
  EXPECT_TRUE(arrived(4, from.bytes.get(), 4096));
}

TEST_F(MappingMover, fills_at_once_what_is_kept_mapped_and_copies_the_rest) {
  grant::mapped_first<>::bind<platform::emulated_grants> strategy(mapper, {.domain = 1});
  auto mover = grant::make_mover<grant::mapped_first<>>(mapper, {.domain = 1, .most = 8}, strategy);
  EXPECT_FALSE(mover.immediate());
  std::vector<grant::mapped_entry> entries{{.reference = references[0]},
                                           {.reference = references[1], .read_only = true}};
  ASSERT_TRUE(strategy.table().add(entries));
  EXPECT_TRUE(mover.immediate());
  EXPECT_TRUE(mover.move(from.bytes.get(), whole(references[0]), 0));
  EXPECT_FALSE(mover.pending());
  EXPECT_TRUE(arrived(0, from.bytes.get(), 4096));
  (void)mover.move(from.bytes.get() + 1, whole(references[1]),
                   1);  // not to be written through a mapping
  (void)mover.move(from.bytes.get() + 2, whole(references[2]), 2);
  EXPECT_TRUE(mover.pending());
  EXPECT_THAT(flush(mover), IsEmpty());
  EXPECT_TRUE(arrived(1, from.bytes.get() + 1, 4096));
  EXPECT_TRUE(arrived(2, from.bytes.get() + 2, 4096));
  EXPECT_EQ(mover.hits().get(), 1U);
  EXPECT_EQ(mover.misses().get(), 2U);
  strategy.clear();
  for (const platform::grant_reference reference : references) {
    EXPECT_TRUE(guest.end_grant(reference));
  }
}

TEST_F(MappingMover, lets_a_request_use_kept_pages_only_where_all_of_its_pages_are_kept) {
  grant::mapped_first<>::bind<platform::emulated_grants> strategy(mapper, {.domain = 1});
  std::memset(pages[0], 7, 4096);
  std::memset(pages[1], 8, 4096);
  std::vector<grant::mapped_entry> entries{{.reference = references[0], .read_only = true}};
  ASSERT_TRUE(strategy.table().add(entries));
  const auto acquire = [&](std::vector<grant::piece> pieces, bool kept, int first) {
    grant::lease_state lease;
    std::vector<iovec> storage(pieces.size());
    lease.pieces = pieces;
    lease.storage = storage;
    const grant::acquired outcome = strategy.acquire(lease);
    EXPECT_EQ(outcome, kept ? grant::acquired::ready : grant::acquired::queued);
    strategy.finish_acquires([](grant::lease_state&) {});
    EXPECT_EQ(strategy.leases(), 1U);
    EXPECT_EQ(*static_cast<std::uint8_t*>(lease.local().front().iov_base), first);
    if (kept) {
      // A page in use stays, whoever asks.
      EXPECT_EQ(strategy.table().remove(entries), 0U);
      EXPECT_FALSE(entries[0].done);
    }
    int proofs = 0;
    const auto prove = [&](const grant::released& proof) {
      EXPECT_EQ(&proof.lease(), &lease);
      ++proofs;
    };
    strategy.release(lease, true, prove);
    strategy.finish_releases(prove);
    EXPECT_EQ(proofs, 1);
    EXPECT_EQ(strategy.leases(), 0U);
  };
  acquire({whole(references[0])}, true, 7);
  acquire({whole(references[0]), whole(references[1])}, false, 7);
  EXPECT_EQ(strategy.table().remove(entries), 1U);
  EXPECT_TRUE(guest.end_grant(references[0]));
  acquire({whole(references[1])}, false, 8);
}

}  // namespace
}  // namespace pvring::test
