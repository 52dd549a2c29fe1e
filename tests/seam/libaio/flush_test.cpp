// SPDX-License-Identifier: MIT
// A flush is asynchronous where the kernel can, the helper's where not, and a failed one is never
// forgotten.
#include "fixture.hpp"

namespace seam {
namespace {

class libaio_flush : public libaio_seam {
 public:
  int flush_now() {
    submit({&flush()});
    while (kernel().completed < kernel().accepted.size()) {
      kernel().perform_next();
    }
    const auto done = reap_all();
    EXPECT_EQ(done.size(), 1U);
    return done.empty() ? 1 : done[0].second;
  }
};

TEST_F(libaio_flush, is_an_fdsync_of_the_kernel) {
  open();
  EXPECT_EQ(flush_now(), 0);
  ASSERT_EQ(kernel().accepted.size(), 1U);
  EXPECT_EQ(kernel().last().copy.aio_lio_opcode, IO_CMD_FDSYNC);
  EXPECT_FALSE(image->helper().started());
}

TEST_F(libaio_flush, goes_to_the_helper_where_the_kernel_does_not_take_it) {
  open();
  kernel().submit = {-EINVAL};
  EXPECT_EQ(flush_now(), 0);
  EXPECT_TRUE(image->helper().started());
  EXPECT_TRUE(kernel().accepted.empty());
  const unsigned calls = kernel().submit_calls;
  EXPECT_EQ(flush_now(), 0);  // and the kernel is not asked again
  EXPECT_EQ(kernel().submit_calls, calls);
}

TEST_F(libaio_flush, goes_to_the_helper_where_the_kernel_finds_out_late) {
  open();
  kernel().result = [](const fake::call&) { return std::optional<long>(-EINVAL); };
  EXPECT_EQ(flush_now(), 0);
  EXPECT_TRUE(image->helper().started());
}

TEST_F(libaio_flush, does_not_take_others_of_the_batch_along_to_the_helper) {
  open();
  kernel().submit = {1, -EINVAL};
  submit({&read(0), &flush(), &read(512)});
  ASSERT_EQ(kernel().accepted.size(), 2U);
  kernel().complete_next(512);
  kernel().complete_next(512);
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 3U);
  for (const auto& [work, error] : done) {
    EXPECT_EQ(error, 0);
  }
}

// Case 116.
TEST_F(libaio_flush, fails_for_ever_once_it_failed) {
  open();
  submit({&write(0)});
  kernel().perform_next();
  ASSERT_EQ(reap().size(), 1U);
  kernel().result = [](const fake::call&) { return std::optional<long>(-EIO); };
  EXPECT_EQ(flush_now(), -EIO);
  kernel().result = nullptr;
  const std::size_t asked = kernel().accepted.size();
  EXPECT_EQ(flush_now(), -EIO);
  EXPECT_EQ(flush_now(), -EIO);
  EXPECT_EQ(kernel().accepted.size(), asked);

  context.reset();
  context.emplace(*image, pvring::aio::context_options{});
  EXPECT_EQ(flush_now(), -EIO) << "a new context is not a new image";

  context.reset();
  image.reset();
  image.emplace(file->path());
  context.emplace(*image, pvring::aio::context_options{});
  EXPECT_EQ(flush_now(), 0);
}

TEST_F(libaio_flush, fails_where_another_one_failed_while_it_was_in_flight) {
  open();
  submit({&flush(), &flush()});
  kernel().complete_next(-ENOSPC);
  kernel().complete_next(0);
  const auto done = reap();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].second, -ENOSPC);
  EXPECT_EQ(done[1].second, -ENOSPC);
}

TEST_F(libaio_flush, that_cannot_even_be_submitted_counts_as_failed) {
  open();
  kernel().submit = {-EBADF};
  EXPECT_EQ(flush_now(), -EBADF);
  EXPECT_EQ(flush_now(), -EBADF);
}

TEST_F(libaio_flush, keeps_the_first_failure) {
  open();
  EXPECT_EQ(image->flushed(-EIO), -EIO);
  EXPECT_EQ(image->flushed(-ENOSPC), -EIO);
  EXPECT_EQ(image->flushed(0), -EIO);
}

}  // namespace
}  // namespace seam
