// SPDX-License-Identifier: MIT
// What becomes of a batch that the kernel takes in part, late, or not at all, and what it is given.
#include <cerrno>
#include <set>

#include "fixture.hpp"

namespace seam {
namespace {

class uring_submit : public uring_seam {
 public:
  static std::vector<std::uint64_t> sectors() {
    std::vector<std::uint64_t> out;
    for (const fake::call& c : kernel().accepted) {
      out.push_back(c.entry.off / 512);
    }
    return out;
  }
};

TEST_F(uring_submit, takes_one_call_for_a_whole_batch) {
  open();
  submit_reads(8);
  EXPECT_EQ(kernel().submit_calls, 1U);
  EXPECT_EQ(kernel().accepted.size(), 8U);
  EXPECT_EQ(context->counters().submit_calls.get(), 1U);
}

TEST_F(uring_submit, costs_no_call_to_reap_or_to_arm) {
  open();
  kernel().at_once = true;
  for (int round = 0; round < 10; ++round) {
    submit_reads(8);
    EXPECT_EQ(reap().size(), 8U);
    EXPECT_FALSE(context->arm());
    context->disarm();
  }
  EXPECT_EQ(kernel().asked, 0U);
  EXPECT_EQ(context->counters().reap_calls.get(), 0U);
  EXPECT_EQ(context->counters().other_calls.get(), 0U);
}

// What the kernel did not take is withdrawn, then given once more: nothing twice, nothing skipped.
TEST_F(uring_submit, keeps_the_remainder_in_order_when_the_kernel_takes_part) {
  open();
  kernel().submit = {3, -EAGAIN, 2, -EAGAIN};
  submit_reads(8);
  EXPECT_EQ(kernel().accepted.size(), 3U);
  EXPECT_EQ(context->in_flight(), 8U);
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_EQ(kernel().accepted.size(), 5U);
  kernel().at_once = true;
  while (kernel().completed < kernel().accepted.size()) {
    kernel().perform_next();
  }
  for (const auto& [work, error] : reap_all()) {
    EXPECT_EQ(error, 0);
  }
  EXPECT_EQ(sectors(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  submit_reads(8);
  EXPECT_EQ(reap_all().size(), 8U);
  EXPECT_EQ(kernel().accepted.size(), 16U);
}

// The ring's indices wrap and its entries are used again, with every number of them withdrawn.
TEST_F(uring_submit, gives_each_transfer_once_however_the_kernel_cuts_the_batches) {
  open(65536, 5);
  kernel().at_once = true;
  for (int round = 0; round < 200; ++round) {
    kernel().submit = {round % 5, round % 3 == 0 ? -EAGAIN : round % 4};
    const auto batch = submit_reads(std::size_t(1 + round % 5));
    std::set<transfer*> seen;
    for (const auto& [work, error] : reap_all()) {
      EXPECT_EQ(error, 0);
      EXPECT_TRUE(seen.insert(work).second);
    }
    ASSERT_EQ(seen.size(), batch.size());
    kernel().submit.clear();
  }
  std::size_t expected = 0;
  for (int round = 0; round < 200; ++round) {
    expected += std::size_t(1 + round % 5);
  }
  EXPECT_EQ(kernel().accepted.size(), expected);
}

TEST_F(uring_submit, repeats_a_call_that_a_signal_interrupted) {
  open();
  kernel().submit = {-EINTR, -EINTR};
  submit_reads(4);
  EXPECT_EQ(kernel().submit_calls, 3U);
  EXPECT_EQ(kernel().accepted.size(), 4U);
}

TEST_F(uring_submit, waits_where_results_have_to_be_reaped_first) {
  open();
  kernel().submit = {2, -EBUSY};
  submit_reads(4);
  EXPECT_EQ(kernel().accepted.size(), 2U);
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_EQ(kernel().accepted.size(), 4U);
}

TEST_F(uring_submit, tries_again_after_a_pause_when_nothing_is_in_flight) {
  open();
  kernel().at_once = true;
  kernel().submit = {-EAGAIN, -ENOMEM, -EAGAIN};
  submit_reads(4);
  EXPECT_EQ(kernel().submit_calls, 1U);
  EXPECT_TRUE(context->deadline());
  EXPECT_EQ(reap_all().size(), 4U);
  EXPECT_EQ(kernel().submit_calls, 4U);
  EXPECT_FALSE(context->deadline());
}

// A ring that is broken answers nothing any more: an error each, and no buffer is left to it.
TEST_F(uring_submit, fails_what_a_broken_ring_does_not_take) {
  open();
  kernel().submit = {-EBADF, -EBADF, -EBADF};
  submit_reads(3);
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 3U);
  for (const auto& [work, error] : done) {
    EXPECT_EQ(error, -EBADF);
  }
  kernel().at_once = true;
  submit_reads(8);
  EXPECT_EQ(reap_all().size(), 8U);
  EXPECT_EQ(kernel().accepted.size(), 8U) << "what was failed is not submitted later";
}

TEST_F(uring_submit, leaves_nothing_of_an_earlier_use_in_an_entry) {
  open(65536, 1);
  kernel().at_once = true;
  submit({&read(4096, {512, 512})});
  EXPECT_EQ(reap_all().size(), 1U);
  submit({&flush()});
  EXPECT_EQ(reap_all().size(), 1U);
  const fake::request& used = kernel().last().entry;
  EXPECT_EQ(used.opcode, IORING_OP_FSYNC);
  EXPECT_EQ(used.rw_flags, unsigned{IORING_FSYNC_DATASYNC});
  EXPECT_EQ(used.addr, 0U);
  EXPECT_EQ(used.len, 0U);
  EXPECT_EQ(used.off, 0U);
  submit({&write(512)});
  EXPECT_EQ(reap_all().size(), 1U);
  EXPECT_EQ(kernel().last().entry.rw_flags, 0U);
}

TEST_F(uring_submit, names_the_file_by_its_place_where_the_kernel_allows_it) {
  open();
  EXPECT_TRUE(context->file_is_registered());
  submit_reads(1);
  EXPECT_EQ(kernel().last().entry.fd, 0);
  EXPECT_EQ(kernel().last().entry.flags, IOSQE_FIXED_FILE);
  kernel().complete_next(512);
  EXPECT_EQ(reap_all().size(), 1U);

  kernel().register_files = -EMFILE;
  context.emplace(*image, pvring::aio::context_options{});
  EXPECT_FALSE(context->file_is_registered());
  submit_reads(1);
  EXPECT_GT(kernel().last().entry.fd, 0);
  EXPECT_EQ(kernel().last().entry.flags, 0);
  kernel().perform_next();
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
}

TEST_F(uring_submit, uses_registered_buffers_for_one_run_inside_them_only) {
  open();
  std::vector<std::byte> region(8192);
  context->expect_buffers_in(region);
  EXPECT_TRUE(context->buffers_are_registered());
  const auto opcode_of = [&](std::byte* start, std::size_t length, operation kind) {
    iovec one{start, length};
    transfer work;
    work.kind = kind;
    work.length = length;
    work.buffers = {&one, 1};
    submit({&work});
    kernel().complete_next(static_cast<int>(length));
    EXPECT_EQ(reap_all().size(), 1U);
    return int{kernel().last().entry.opcode};
  };
  std::vector<std::byte> elsewhere(8192);
  EXPECT_EQ(opcode_of(region.data(), 8192, operation::read), IORING_OP_READ_FIXED);
  EXPECT_EQ(opcode_of(region.data() + 7680, 512, operation::write), IORING_OP_WRITE_FIXED);
  EXPECT_EQ(opcode_of(elsewhere.data(), 512, operation::read), IORING_OP_READ);
  EXPECT_EQ(opcode_of(elsewhere.data(), 512, operation::write), IORING_OP_WRITE);
  EXPECT_EQ(kernel().last().entry.buf_index, 0);
  submit({&read(0, {512, 512})});
  EXPECT_EQ(kernel().last().entry.opcode, IORING_OP_READV);
  kernel().complete_next(1024);
  EXPECT_EQ(reap_all().size(), 1U);
  context.reset();
  EXPECT_TRUE(kernel().registered_buffers.empty());
}

TEST_F(uring_submit, goes_on_where_buffers_cannot_be_registered) {
  open();
  kernel().register_buffers = -ENOMEM;
  std::vector<std::byte> region(8192);
  context->expect_buffers_in(region);
  EXPECT_FALSE(context->buffers_are_registered());
  iovec one{region.data(), 512};
  transfer work;
  work.length = 512;
  work.buffers = {&one, 1};
  submit({&work});
  EXPECT_EQ(kernel().last().entry.opcode, IORING_OP_READ);
  kernel().complete_next(512);
  EXPECT_EQ(reap_all().size(), 1U);
}

TEST_F(uring_submit, never_gives_the_kernel_a_change_of_a_read_only_image) {
  file.emplace(4096U);
  image.emplace(file->path(), pvring::aio::file_options{.read_only = true});
  context.emplace(*image, pvring::aio::context_options{});
  submit({&write(0), &make(operation::discard, 0, {}), &make(operation::write_zeroes, 0, {})});
  EXPECT_TRUE(kernel().accepted.empty());
  for (const auto& [work, error] : reap_all()) {
    EXPECT_EQ(error, -EROFS);
  }
}

}  // namespace
}  // namespace seam
