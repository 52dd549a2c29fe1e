// SPDX-License-Identifier: MIT
// Contexts begin with a clear message or a kernel context, and end without leaving anything behind.
#include <system_error>

#include "fixture.hpp"

namespace seam {
namespace {

class libaio_lifetime : public libaio_seam {};

// Case 119.
TEST_F(libaio_lifetime, says_which_limit_to_raise_when_contexts_are_used_up) {
  kernel().setup = {-EAGAIN};
  try {
    open(4096, 77);
    FAIL() << "no exception";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EAGAIN);
    const std::string what = error.what();
    EXPECT_NE(what.find("/proc/sys/fs/aio-max-nr"), std::string::npos) << what;
    EXPECT_NE(what.find("77"), std::string::npos) << what;
  }
  EXPECT_EQ(kernel().destroys, 0U);
}

TEST_F(libaio_lifetime, names_the_kernel_option_that_is_missing) {
  kernel().setup = {-ENOSYS};
  try {
    open();
    FAIL() << "no exception";
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find("CONFIG_AIO"), std::string::npos) << error.what();
  }
}

TEST_F(libaio_lifetime, refuses_a_capacity_that_cannot_be) {
  EXPECT_THROW(open(4096, 0), pvring::configuration_error);
  EXPECT_THROW(open(4096, 65536), pvring::configuration_error);
  EXPECT_EQ(kernel().setups, 0U);
}

// Case 119.
TEST_F(libaio_lifetime, destroys_every_kernel_context) {
  open();
  for (int i = 0; i < 1000; ++i) {
    context.emplace(*image, pvring::aio::context_options{.capacity = 4});
  }
  context.reset();
  EXPECT_EQ(kernel().setups, 1001U);
  EXPECT_EQ(kernel().destroys, 1001U);
}

// Case 113: after a signal the same number is waited for, after a part only the rest.
TEST_F(libaio_lifetime, waits_at_the_end_for_what_is_in_flight) {
  open();
  submit_reads(4);
  kernel().getevents = {-EINTR, 2, -EINTR};
  context.reset();
  EXPECT_EQ(kernel().waited_for, (std::vector<long>{4, 4, 2, 2}));
  EXPECT_EQ(kernel().in_flight_at_destroy, 0U);
}

TEST_F(libaio_lifetime, ends_when_the_kernel_cannot_be_asked) {
  open();
  submit_reads(1);
  kernel().getevents = {-EINVAL};
  context.reset();
  EXPECT_EQ(kernel().destroys, 1U);
}

TEST_F(libaio_lifetime, drops_at_the_end_what_the_kernel_never_had) {
  open();
  kernel().submit = {-EAGAIN};
  submit_reads(3);
  (void)context->arm();
  context.reset();
  EXPECT_TRUE(kernel().accepted.empty());
  EXPECT_EQ(kernel().destroys, 1U);
}

TEST_F(libaio_lifetime, waits_at_the_end_for_the_helper) {
  open();
  for (int i = 0; i < 50; ++i) {
    transfer& zeroes = make(operation::write_zeroes, 0, {});
    zeroes.length = 65536;
    submit({&zeroes});
    context.emplace(*image, pvring::aio::context_options{});
  }
}

}  // namespace
}  // namespace seam
