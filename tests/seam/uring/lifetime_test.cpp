// SPDX-License-Identifier: MIT
// Contexts begin with a clear message or a ring, and end without leaving anything behind.
#include <cerrno>
#include <string>
#include <system_error>

#include "fixture.hpp"

namespace seam {
namespace {

class uring_lifetime : public uring_seam {
 public:
  template <class Error>
  std::string refusal(int result) {
    open(4096);
    kernel().setup = {result};
    try {
      context.reset();
      context.emplace(*image, pvring::aio::context_options{.capacity = 77});
    } catch (const Error& error) {
      EXPECT_EQ(kernel().setups, kernel().exits);
      return error.what();
    }
    ADD_FAILURE() << "no exception";
    return {};
  }
};

TEST_F(uring_lifetime, says_that_there_is_no_io_uring_and_what_to_use) {
  using pvring::aio::uring_unavailable;
  for (const int why : {-ENOSYS, -EPERM, -EACCES}) {
    const std::string what = refusal<uring_unavailable>(why);
    EXPECT_NE(what.find("io_uring"), std::string::npos) << what;
    EXPECT_NE(what.find("libaio"), std::string::npos) << what;
  }
  EXPECT_NE(refusal<uring_unavailable>(-EPERM).find("forbidden"), std::string::npos);
}

TEST_F(uring_lifetime, says_which_limit_to_raise) {
  const std::string what = refusal<std::system_error>(-ENOMEM);
  EXPECT_NE(what.find("RLIMIT_MEMLOCK"), std::string::npos) << what;
  EXPECT_NE(what.find("77"), std::string::npos) << what;
  EXPECT_FALSE(refusal<std::system_error>(-EMFILE).empty());
}

TEST_F(uring_lifetime, refuses_a_kernel_that_may_lose_results) {
  kernel().features = 0;
  EXPECT_THROW(open(), pvring::aio::uring_unavailable);
  EXPECT_EQ(kernel().exits, kernel().setups);
}

// Not only when a guest connects.
TEST_F(uring_lifetime, says_when_the_image_is_opened_that_there_is_no_io_uring) {
  file.emplace(4096U);
  kernel().setup = {-EPERM};
  EXPECT_THROW(image.emplace(file->path()), pvring::aio::uring_unavailable);
}

TEST_F(uring_lifetime, does_without_what_an_older_kernel_does_not_know) {
  kernel().refused_flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  open();
  EXPECT_EQ(kernel().setup_flags, 0U);
  kernel().at_once = true;
  submit_reads(4);
  EXPECT_EQ(reap_all().size(), 4U);
}

TEST_F(uring_lifetime, refuses_a_capacity_that_cannot_be) {
  EXPECT_THROW(open(4096, 0), pvring::configuration_error);
  EXPECT_THROW(open(4096, 32769), pvring::configuration_error);
  EXPECT_EQ(kernel().setups, kernel().exits);
}

TEST_F(uring_lifetime, polls_only_what_can_be_polled) {
  open();  // buffered
  EXPECT_THROW(context.emplace(*image, pvring::aio::context_options{.reap = reap_mode::polled}),
               pvring::configuration_error);
  context.reset();
  EXPECT_EQ(kernel().setups, kernel().exits);
}

TEST_F(uring_lifetime, destroys_every_ring) {
  open();
  for (int i = 0; i < 100; ++i) {
    context.emplace(*image, pvring::aio::context_options{.capacity = 4});
  }
  context.reset();
  EXPECT_EQ(kernel().setups, 102U);  // with that of the image
  EXPECT_EQ(kernel().exits, 102U);
  EXPECT_TRUE(kernel().registered_files.empty());
}

TEST_F(uring_lifetime, waits_at_the_end_for_what_is_in_flight) {
  open();
  submit_reads(4);
  kernel().waits = {-EINTR, 0, -EINTR, -EAGAIN};
  context.reset();
  EXPECT_EQ(kernel().in_flight_at_exit, 0U);
  EXPECT_EQ(kernel().exits, kernel().setups);
}

TEST_F(uring_lifetime, drops_at_the_end_what_the_kernel_never_had) {
  open();
  kernel().submit = {-EAGAIN};
  submit_reads(3);
  (void)context->arm();
  context.reset();
  EXPECT_TRUE(kernel().accepted.empty());
  EXPECT_EQ(kernel().exits, kernel().setups);
}

// A process that is killed leaves its I/O behind: see uring_image.
TEST_F(uring_lifetime, does_not_offer_granted_pages_to_be_buffers) {
  open();
  EXPECT_FALSE(image->buffers_free_at_exit());
}

}  // namespace
}  // namespace seam
