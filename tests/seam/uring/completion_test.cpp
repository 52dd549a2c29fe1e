// SPDX-License-Identifier: MIT
// How results are found, what they mean, and what becomes of operations that the kernel lacks.
#include <cerrno>
#include <set>

#include "fixture.hpp"

namespace seam {
namespace {

class uring_completion : public uring_seam {
 public:
  int run(transfer& work) {
    submit({&work});
    const auto done = reap_all();
    EXPECT_EQ(done.size(), 1U);
    return done.empty() ? 1 : done[0].second;
  }
  transfer& range(operation kind, std::uint64_t offset, std::uint64_t length) {
    transfer& work = make(kind, offset, {});
    work.length = length;
    return work;
  }
};

TEST_F(uring_completion, wakes_who_waits_while_results_are_there) {
  open();
  submit_reads(2);
  EXPECT_FALSE(context->arm());
  EXPECT_FALSE(readable());
  kernel().complete_next(512);
  EXPECT_TRUE(readable());
  EXPECT_TRUE(context->arm());
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_FALSE(context->arm());
  EXPECT_FALSE(readable());
  kernel().complete_next(512);
  EXPECT_TRUE(readable());
  EXPECT_EQ(reap_all().size(), 1U);
}

// A result that did not fit into the completion ring, or that waits until this thread is in the
// kernel, is fetched by one call.
TEST_F(uring_completion, fetches_what_the_kernel_kept) {
  open();
  submit_reads(8);
  kernel().hold = true;
  for (int i = 0; i < 8; ++i) {
    kernel().complete_next(512);
  }
  EXPECT_TRUE(readable());
  EXPECT_TRUE(context->arm());
  std::set<transfer*> seen;
  for (const auto& [work, error] : reap()) {
    EXPECT_EQ(error, 0);
    seen.insert(work);
  }
  EXPECT_EQ(seen.size(), 8U);
  EXPECT_EQ(kernel().asked, 1U);
  EXPECT_FALSE(context->arm());
}

TEST_F(uring_completion, loses_nothing_when_the_completion_ring_overflows) {
  open(65536, 2);
  submit_reads(2);
  for (int i = 0; i < 6; ++i) {  // more than it has places for: four
    kernel().post(kernel().accepted[0].ring, 0, 0);
  }
  kernel().complete_next(512);
  kernel().complete_next(512);
  EXPECT_EQ(reap_all().size(), 2U);
  EXPECT_EQ(context->in_flight(), 0U);
}

TEST_F(uring_completion, ignores_results_that_are_not_about_its_transfers) {
  open();
  submit_reads(1);
  kernel().post(kernel().accepted[0].ring, 0, 512);
  kernel().post(kernel().accepted[0].ring, 0xfffffffffffffff8U, 512);
  EXPECT_TRUE(reap().empty());
  kernel().complete_next(512);
  kernel().post(kernel().accepted[0].ring, kernel().accepted[0].entry.user_data, 512);
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_EQ(context->in_flight(), 0U);
  submit_reads(8);
  EXPECT_EQ(context->in_flight(), 8U);
}

TEST_F(uring_completion, submits_again_what_came_back_with_eagain_or_interrupted) {
  open();
  kernel().at_once = true;
  int times = 3;
  kernel().result = [&](const fake::call&) -> std::optional<int> {
    if (times-- > 0) {
      return times % 2 == 0 ? -EINTR : -EAGAIN;
    }
    return std::nullopt;
  };
  EXPECT_EQ(run(read(0)), 0);
  EXPECT_EQ(kernel().accepted.size(), 4U);
}

TEST_F(uring_completion, continues_a_short_read_from_where_it_stopped) {
  open();
  transfer& work = read(1024, {1024, 2048, 1024});
  submit({&work});
  kernel().complete_next(1024 + 512);
  EXPECT_TRUE(reap().empty());
  EXPECT_EQ(kernel().last().entry.off, 1024U + 1536U);
  EXPECT_EQ(kernel().last().entry.len, 1536U);
  kernel().complete_next(1536);
  EXPECT_TRUE(reap().empty());
  EXPECT_EQ(kernel().last().entry.off, 1024U + 3072U);
  kernel().complete_next(1024);
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
}

TEST_F(uring_completion, reports_a_full_disk) {
  open();
  submit({&write(0, {8192})});
  kernel().complete_next(4096);
  EXPECT_TRUE(reap().empty());
  kernel().complete_next(-ENOSPC);
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, -ENOSPC);
}

TEST_F(uring_completion, punches_and_zeroes_in_the_kernels_background) {
  open();
  kernel().at_once = true;
  if (image->discard_granularity() != 0) {
    EXPECT_EQ(run(range(operation::discard, 4096, 8192)), 0);
    const fake::request& hole = kernel().last().entry;
    EXPECT_EQ(hole.opcode, IORING_OP_FALLOCATE);
    EXPECT_EQ(hole.off, 4096U);
    EXPECT_EQ(hole.addr, 8192U);
    EXPECT_EQ(hole.len, unsigned{FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE});
  }
  kernel().result = [](const fake::call&) { return std::optional<int>(0); };
  EXPECT_EQ(run(range(operation::write_zeroes, 512, 1024)), 0);
  EXPECT_EQ(kernel().last().entry.len, unsigned{FALLOC_FL_ZERO_RANGE});
  EXPECT_FALSE(image->helper().started());
}

TEST_F(uring_completion, does_long_ranges_in_parts) {
  open();
  kernel().at_once = true;
  kernel().result = [](const fake::call&) { return std::optional<int>(0); };
  EXPECT_EQ(run(range(operation::write_zeroes, 512, (std::uint64_t{5} << 29U) + 512)), 0);
  ASSERT_EQ(kernel().accepted.size(), 3U);
  EXPECT_EQ(kernel().accepted[1].entry.off, 512U + (1U << 30U));
  EXPECT_EQ(kernel().accepted[2].entry.addr, (1U << 29U) + 512U);
}

TEST_F(uring_completion, leaves_to_the_helper_what_the_kernel_cannot) {
  for (const int lack : {-EOPNOTSUPP, -EINVAL, -ENOSYS}) {
    fake::current = std::make_unique<fake::kernel>();
    open();
    kernel().at_once = true;
    kernel().result = [lack](const fake::call&) { return std::optional<int>(lack); };
    EXPECT_EQ(run(range(operation::write_zeroes, 0, 4096)), 0);
    EXPECT_TRUE(image->helper().started());
    EXPECT_EQ(kernel().accepted.size(), 1U);
    EXPECT_EQ(run(range(operation::write_zeroes, 0, 4096)), 0);  // not asked again
    EXPECT_EQ(kernel().accepted.size(), 1U);
    context.reset();
  }
}

TEST_F(uring_completion, reports_what_else_goes_wrong_with_a_range) {
  open();
  kernel().at_once = true;
  kernel().result = [](const fake::call&) { return std::optional<int>(-ENOSPC); };
  EXPECT_EQ(run(range(operation::write_zeroes, 0, 4096)), -ENOSPC);
  EXPECT_FALSE(image->helper().started());
}

TEST_F(uring_completion, flushes_with_the_helper_where_the_kernel_has_no_fsync) {
  open();
  kernel().at_once = true;
  kernel().result = [](const fake::call&) { return std::optional<int>(-EINVAL); };
  EXPECT_EQ(run(flush()), 0);
  EXPECT_TRUE(image->helper().started());
}

}  // namespace
}  // namespace seam
