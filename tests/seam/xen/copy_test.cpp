// SPDX-License-Identifier: MIT
// Copying: one status per piece, calls that fail as a whole, pieces that are asked for again.
#include <array>
#include <cerrno>
#include <map>

#include "fixture.hpp"

namespace seam {
namespace {

class xen_copy_seam : public xen_seam {
 public:
  xen_copy_seam() { grant({1, 2, 3}); }

  copy_operation piece(grant_reference reference, std::uint16_t offset = 0,
                       std::uint16_t length = 8) {
    return {.local = memory.data() + page_size * (used++ % 4),
            .reference = reference,
            .offset = offset,
            .length = length,
            .owner = 77};
  }
  int copy(xen_grants& grants, std::span<copy_operation> operations,
           direction way = direction::from_peer) {
    return grants.copy(7, way, operations);
  }

  alignas(4096) std::array<std::byte, 5 * page_size> memory{};
  std::size_t used = 0;
};

TEST_F(xen_copy_seam, says_at_open_whether_there_is_copy) {
  EXPECT_TRUE(xen_grants(1).has_copy());
  EXPECT_THAT(machine().grants.copies, IsEmpty()) << "nothing is copied to find out";
  machine().grants.has_copy = false;
  xen_grants without(1);
  EXPECT_FALSE(without.has_copy());
  std::array ops{piece(1)};
  EXPECT_EQ(copy(without, ops), EOPNOTSUPP);
  EXPECT_EQ(without.counters().copy_failures.get(), 1U);
  EXPECT_EQ(without.counters().copy_system_calls.get(), 0U);
}

TEST_F(xen_copy_seam, copies_from_the_peer) {
  xen_grants grants(1);
  std::array ops{piece(1, 100, 8), piece(2, 4000, 96)};
  ASSERT_EQ(copy(grants, ops), 0);
  EXPECT_EQ(ops[1].local[95], std::byte{'2'});
  ASSERT_EQ(machine().grants.copies.size(), 1U);
  const fake::segment& s = machine().grants.copies[0][1];
  EXPECT_EQ(s.flags, GNTCOPY_source_gref);
  EXPECT_EQ(s.source.foreign.ref, 2U);
  EXPECT_EQ(s.source.foreign.offset, 4000U);
  EXPECT_EQ(s.source.foreign.domid, 7U);
  EXPECT_EQ(s.dest.virt, ops[1].local);
  EXPECT_EQ(s.len, 96U);
  EXPECT_EQ(grants.counters().copy_bytes.get(), 104U);
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 1U);
}

TEST_F(xen_copy_seam, copies_to_the_peer) {
  xen_grants grants(1);
  std::array ops{piece(3, 10, 4)};
  std::fill_n(ops[0].local, 4, std::byte{'x'});
  ASSERT_EQ(copy(grants, ops, direction::to_peer), 0);
  EXPECT_EQ(machine().grants.granted[3][13], 'x');
  EXPECT_EQ(machine().grants.granted[3][14], '3');
  const fake::segment& s = machine().grants.copies[0][0];
  EXPECT_EQ(s.flags, GNTCOPY_dest_gref);
  EXPECT_EQ(s.dest.foreign.ref, 3U);
  EXPECT_EQ(s.source.virt, ops[0].local);
}

TEST_F(xen_copy_seam, each_piece_has_its_own_status_and_xens_numbers) {
  xen_grants grants(1);
  std::map<std::uint32_t, std::int16_t> statuses{{1, GNTST_okay},
                                                 {2, GNTST_permission_denied},
                                                 {3, GNTST_bad_page},
                                                 {4, GNTST_bad_gntref},
                                                 {5, GNTST_general_error}};
  machine().grants.status = [&](const fake::segment& s) { return statuses[s.source.foreign.ref]; };
  std::array ops{piece(2), piece(1), piece(3), piece(4), piece(5)};
  ASSERT_EQ(copy(grants, ops), 0);
  EXPECT_EQ(ops[0].status, grant_status::permission_denied);
  EXPECT_EQ(ops[1].status, grant_status::okay);
  EXPECT_EQ(ops[2].status, -9);
  EXPECT_EQ(ops[3].status, grant_status::bad_reference);
  EXPECT_EQ(ops[4].status, grant_status::general_error);
  EXPECT_EQ(ops[4].owner, 77U);
  EXPECT_EQ(grants.counters().copy_bytes.get(), 8U);
  EXPECT_EQ(grants.counters().copy_retries.get(), 0U);
  EXPECT_EQ(machine().grants.copies.size(), 1U) << "permanent errors are not asked for again";
}

// Case 51.
TEST_F(xen_copy_seam, a_piece_that_nobody_looked_at_has_failed) {
  xen_grants grants(1);
  machine().grants.segments_looked_at = 1;
  std::array ops{piece(1), piece(2)};
  ASSERT_EQ(copy(grants, ops), 0);
  EXPECT_EQ(ops[0].status, grant_status::okay);
  EXPECT_NE(ops[1].status, grant_status::okay);
}

// Case 61.
TEST_F(xen_copy_seam, a_call_that_fails_as_a_whole_is_not_repeated) {
  xen_grants grants(1);
  machine().grants.copy = {EFAULT};
  std::array ops{piece(1), piece(2)};
  EXPECT_EQ(copy(grants, ops), EFAULT);
  EXPECT_EQ(machine().grants.copies.size(), 1U);
  EXPECT_EQ(grants.counters().copy_failures.get(), 1U);
  EXPECT_EQ(grants.counters().copy_bytes.get(), 0U);
}

TEST_F(xen_copy_seam, a_signal_only_repeats_a_call) {
  xen_grants grants(1);
  machine().grants.copy = {EINTR, EINTR};
  std::array ops{piece(1)};
  EXPECT_EQ(copy(grants, ops), 0);
  EXPECT_EQ(grants.counters().copy_calls.get(), 1U);
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 3U);
}

TEST_F(xen_copy_seam, a_malformed_piece_refuses_the_call_before_anything_is_copied) {
  xen_grants grants(1);
  for (const copy_operation bad :
       {piece(1, 4090, 7), piece(1, 0, 0), piece(1, 0, 4097), piece(1, 65535, 1)}) {
    std::array ops{piece(1), bad};
    EXPECT_EQ(copy(grants, ops), EINVAL);
  }
  EXPECT_THAT(machine().grants.copies, IsEmpty());
  EXPECT_EQ(grants.counters().copy_failures.get(), 4U);
  std::array whole{piece(1, 0, 4096), piece(2, 4095, 1)};
  EXPECT_EQ(copy(grants, whole), 0);
}

// Case 61.
TEST_F(xen_copy_seam, only_pieces_to_try_again_are_asked_for_again) {
  xen_grants grants(1);
  std::map<std::uint32_t, int> busy{{1, 2}, {3, 1}};
  machine().grants.status = [&](const fake::segment& s) -> std::int16_t {
    return busy[s.source.foreign.ref]-- > 0 ? GNTST_eagain
           : s.source.foreign.ref == 2      ? GNTST_bad_gntref
                                            : GNTST_okay;
  };
  std::array ops{piece(1), piece(2), piece(3), piece(4)};
  ASSERT_EQ(copy(grants, ops), 0);
  ASSERT_EQ(machine().grants.copies.size(), 3U);
  EXPECT_EQ(machine().grants.copies[1].size(), 2U);
  EXPECT_EQ(machine().grants.copies[1][1].source.foreign.ref, 3U);
  EXPECT_EQ(machine().grants.copies[2].size(), 1U);
  EXPECT_EQ(ops[0].status, grant_status::okay);
  EXPECT_EQ(ops[1].status, grant_status::bad_reference);
  EXPECT_EQ(ops[2].status, grant_status::okay);
  EXPECT_EQ(grants.counters().copy_retries.get(), 3U);
  EXPECT_EQ(grants.counters().copy_bytes.get(), 24U);
  EXPECT_EQ(grants.counters().copy_calls.get(), 1U);
}

TEST_F(xen_copy_seam, asking_again_has_an_end) {
  xen_grants grants(1);
  machine().grants.status = [](const fake::segment&) -> std::int16_t { return GNTST_eagain; };
  std::array ops{piece(1), piece(2)};
  EXPECT_EQ(copy(grants, ops), 0);
  EXPECT_EQ(ops[0].status, grant_status::try_again);
  EXPECT_EQ(machine().grants.copies.size(), 1U + detail::copier::most_retries);
  EXPECT_EQ(grants.counters().copy_retries.get(), 2U * detail::copier::most_retries);
}

TEST_F(xen_copy_seam, a_retry_that_fails_as_a_whole_fails_the_call) {
  xen_grants grants(1);
  machine().grants.status = [](const fake::segment&) -> std::int16_t { return GNTST_eagain; };
  machine().grants.copy = {0, EFAULT};
  std::array ops{piece(1)};
  EXPECT_EQ(copy(grants, ops), EFAULT);
}

TEST_F(xen_copy_seam, a_large_call_is_split) {
  xen_grants grants(1);
  const std::size_t n = 2 * grants.batch_limit() + 1;
  std::vector<copy_operation> ops;
  for (std::size_t i = 0; i < n; ++i) {
    ops.push_back(piece(1 + static_cast<grant_reference>(i % 3)));
  }
  ASSERT_EQ(copy(grants, ops), 0);
  ASSERT_EQ(machine().grants.copies.size(), 3U);
  EXPECT_EQ(machine().grants.copies[1].size(), grants.batch_limit());
  EXPECT_EQ(machine().grants.copies[2].size(), 1U);
  EXPECT_EQ(machine().grants.copies[2][0].dest.virt, ops.back().local);
  EXPECT_EQ(ops.back().status, grant_status::okay);
  EXPECT_EQ(grants.counters().copy_calls.get(), 1U);
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 3U);
  EXPECT_EQ(grants.counters().copy_operations.get(), n);

  machine().grants.copy = {0, EFAULT};
  EXPECT_EQ(copy(grants, ops), EFAULT);
  EXPECT_EQ(machine().grants.copies.size(), 5U) << "what comes behind is not asked for";
}

TEST_F(xen_copy_seam, nothing_to_copy_is_done_at_once) {
  xen_grants grants(1);
  EXPECT_EQ(copy(grants, {}), 0);
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 0U);
}

TEST_F(xen_copy_seam, hypercalls_are_counted_as_the_kernel_makes_them) {
  xen_grants grants(1);
  std::vector<copy_operation> ops;
  for (int i = 0; i < 15; ++i) {
    ops.push_back(piece(1));
  }
  ops.push_back(piece(2));
  ASSERT_EQ(copy(grants, ops), 0);
  EXPECT_EQ(grants.counters().hypercalls.get(), 1U);
  ops.back().local = memory.data() + page_size - 1;  // crosses a local page: two of the 16
  ASSERT_EQ(copy(grants, ops), 0);
  EXPECT_EQ(grants.counters().hypercalls.get(), 3U);
}

}  // namespace
}  // namespace seam
