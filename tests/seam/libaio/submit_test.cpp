// SPDX-License-Identifier: MIT
// What becomes of a batch that the kernel takes in part, late, or not at all.
#include <chrono>
#include <optional>
#include <semaphore>
#include <thread>

#include <pvring/wait/loop.hpp>

#include "fixture.hpp"

namespace seam {
namespace {

class libaio_submit : public libaio_seam {};

/// A queue whose only source is the engine.
struct served_context {
  std::size_t service(std::size_t) noexcept {
    return engine.reap([this](transfer&, int) noexcept { ++done; });
  }
  static std::optional<pvring::wait::time_point> deadline() noexcept { return std::nullopt; }
  template <class F>
  void for_each_source(F&& f) noexcept {
    f(engine);
  }
  pvring::aio::libaio::context& engine;
  unsigned done = 0;
};

std::vector<std::uint64_t> offsets(const std::vector<fake::call>& calls) {
  std::vector<std::uint64_t> out;
  for (const fake::call& c : calls) {
    out.push_back(static_cast<std::uint64_t>(c.copy.u.c.offset) / 512);
  }
  return out;
}

TEST_F(libaio_submit, takes_one_call_for_a_whole_batch) {
  open();
  submit_reads(8);
  EXPECT_EQ(kernel().submit_calls, 1U);
  EXPECT_EQ(kernel().accepted.size(), 8U);
  EXPECT_EQ(context->counters().submit_calls.get(), 1U);
  EXPECT_EQ(context->counters().transfers.get(), 8U);
}

// Case 107.
TEST_F(libaio_submit, keeps_the_remainder_in_order_when_the_kernel_takes_part) {
  open();
  kernel().submit = {3, -EAGAIN, 5};
  submit_reads(8);
  EXPECT_EQ(kernel().submit_calls, 2U);
  EXPECT_EQ(kernel().accepted.size(), 3U);
  EXPECT_EQ(context->in_flight(), 8U);
  EXPECT_EQ(context->counters().deferred.get(), 5U);

  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_EQ(kernel().submit_calls, 3U);
  EXPECT_EQ(offsets(kernel().accepted), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));

  for (int i = 0; i < 7; ++i) {
    kernel().complete_next(512);
  }
  for (const auto& [work, error] : reap_all()) {
    EXPECT_EQ(error, 0);
  }
  EXPECT_EQ(context->counters().deferred.get(), 5U);
}

TEST_F(libaio_submit, puts_a_later_batch_behind_what_was_deferred) {
  open();
  kernel().submit = {1, -EAGAIN};
  submit({&read(0), &read(512), &read(1024)});
  submit({&read(1536)});
  EXPECT_EQ(offsets(kernel().accepted), (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

// Case 107.
TEST_F(libaio_submit, fails_only_the_first_iocb_on_a_hard_error) {
  open();
  kernel().submit = {-EINVAL};
  const auto batch = submit_reads(4);
  EXPECT_EQ(kernel().accepted.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    kernel().complete_next(512);
  }
  auto done = reap_all();
  ASSERT_EQ(done.size(), 4U);
  for (const auto& [work, error] : done) {
    EXPECT_EQ(error, work == batch[0] ? -EINVAL : 0);
  }
}

TEST_F(libaio_submit, fails_each_iocb_by_its_own_error) {
  open();
  kernel().submit = {-EBADF, 1, -EFAULT};
  const auto batch = submit_reads(4);
  for (int i = 0; i < 2; ++i) {
    kernel().complete_next(512);
  }
  auto done = reap_all();
  ASSERT_EQ(done.size(), 4U);
  for (const auto& [work, error] : done) {
    EXPECT_EQ(error, work == batch[0] ? -EBADF : work == batch[2] ? -EFAULT : 0);
  }
}

// Case 107.
TEST_F(libaio_submit, takes_zero_for_no_room) {
  open();
  kernel().submit = {2, 0};
  submit_reads(4);
  EXPECT_EQ(kernel().submit_calls, 2U);
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_EQ(kernel().accepted.size(), 4U);
}

TEST_F(libaio_submit, waits_for_memory_as_for_room) {
  open();
  kernel().submit = {1, -ENOMEM};
  submit_reads(2);
  kernel().complete_next(512);
  kernel().at_once = true;
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].second, 0);
  EXPECT_EQ(done[1].second, 0);
}

// Case 115.
TEST_F(libaio_submit, repeats_a_call_that_a_signal_interrupted) {
  open();
  kernel().submit = {-EINTR, -EINTR, 2, -EINTR};
  submit_reads(4);
  EXPECT_EQ(kernel().submit_calls, 5U);
  EXPECT_EQ(kernel().accepted.size(), 4U);
}

// Case 107: no busy loop while something of ours is in the kernel.
TEST_F(libaio_submit, does_not_ask_again_before_something_completes) {
  open();
  kernel().submit = {1, -EAGAIN};
  submit_reads(2);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(reap().empty());
    EXPECT_FALSE(context->arm());
  }
  EXPECT_EQ(kernel().submit_calls, 2U);
  EXPECT_FALSE(readable());
  kernel().complete_next(512);
  EXPECT_TRUE(readable());
}

// Case 107: nor while nothing is.
TEST_F(libaio_submit, tries_again_after_a_pause_when_nothing_is_in_flight) {
  open();
  kernel().at_once = true;
  kernel().submit = {-EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN};
  submit_reads(4);
  EXPECT_EQ(kernel().submit_calls, 1U);
  const auto start = std::chrono::steady_clock::now();
  unsigned passes = 0;
  while (context->in_flight() != 0) {
    ++passes;
    if (!context->arm()) {
      ASSERT_TRUE(sleep()) << "nobody woke us";
    }
    for (const auto& [work, error] : reap()) {
      EXPECT_EQ(error, 0);
    }
  }
  // 1 + 2 + 4 + 8 ms, each try behind its pause; every pause costs a wake-up or two.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(15));
  EXPECT_EQ(kernel().submit_calls, 5U);
  EXPECT_LE(passes, 20U);
}

TEST_F(libaio_submit, has_a_deadline_only_while_nothing_in_flight_can_make_room) {
  static_assert(pvring::wait::source_with_deadline<pvring::aio::libaio::context>);
  open();
  EXPECT_FALSE(context->deadline());
  kernel().submit = {1, -EAGAIN};
  submit_reads(3);
  EXPECT_FALSE(context->deadline()) << "the completion of the one makes room";
  kernel().submit = {-EAGAIN};
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  ASSERT_TRUE(context->deadline());
  EXPECT_LE(*context->deadline(),
            std::chrono::steady_clock::now() + pvring::aio::detail::retry_pause::shortest);
  kernel().at_once = true;
  EXPECT_EQ(reap_all().size(), 2U);
  EXPECT_FALSE(context->deadline());
}

// The helper works for all queues of a device, one job after the other.
TEST_F(libaio_submit, tries_again_in_time_while_the_helper_is_busy_with_another_queue) {
  open();
  struct long_discard : pvring::aio::helper_job {
    std::binary_semaphore over{0};
  } other;
  other.run = [](pvring::aio::helper_job& job) noexcept {
    static_cast<long_discard&>(job).over.acquire();
  };
  ASSERT_TRUE(image->helper().post(other));
  kernel().at_once = true;
  kernel().submit = {-EAGAIN, -EAGAIN};
  submit_reads(1);
  EXPECT_EQ(reap_all().size(), 1U) << "it waits behind the other queue's job";
  EXPECT_EQ(kernel().submit_calls, 3U);
  other.over.release();
  image->helper().quiesce();
}

// What a queue's thread sleeps on.
TEST_F(libaio_submit, gives_the_loop_that_serves_it_the_time_of_the_next_try) {
  open();
  served_context served{*context};
  pvring::wait::waiter<served_context> waiter(served);
  ASSERT_TRUE(waiter.turn());
  EXPECT_EQ(waiter.timeout_ms(), -1);
  kernel().at_once = true;
  kernel().submit = {-EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN};
  submit_reads(1);
  unsigned sleeps = 0;
  while (served.done == 0) {
    if (waiter.turn()) {
      ++sleeps;
      const int left = waiter.timeout_ms();
      ASSERT_GE(left, 0) << "it would sleep for ever";
      ASSERT_LE(left, pvring::aio::detail::retry_pause::longest.count());
      pollfd p{waiter.fds()[0], POLLIN, 0};
      (void)::poll(&p, 1, left);
    }
  }
  EXPECT_LE(sleeps, 20U);
  EXPECT_EQ(waiter.timeout_ms(), -1);
  EXPECT_FALSE(image->helper().started()) << "nothing here needs another thread";
}

TEST_F(libaio_submit, bounds_its_tries_while_somebody_polls) {
  open();
  kernel().submit = {-EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN,
                     -EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN};
  submit_reads(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < end) {
    reap();
  }
  EXPECT_LE(kernel().submit_calls, 6U);  // at 0, 1, 3, 7, 15 ms
  EXPECT_GE(kernel().submit_calls, 2U);
}

TEST_F(libaio_submit, wakes_a_sleeper_that_submitted_after_arming) {
  open();
  EXPECT_FALSE(context->arm());
  kernel().submit = {-EINVAL};
  submit_reads(1);
  EXPECT_TRUE(readable());
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_FALSE(context->arm());
  EXPECT_FALSE(readable());

  kernel().submit = {-EAGAIN};
  kernel().at_once = true;
  submit_reads(1);
  EXPECT_TRUE(readable(2000));
  EXPECT_EQ(reap_all().size(), 1U);
}

// Case 117.
TEST_F(libaio_submit, leaves_nothing_of_an_earlier_use_in_an_iocb) {
  open(65536, 1);
  submit({&read(4096, {512, 512})});
  kernel().complete_next(1024);
  EXPECT_EQ(reap().size(), 1U);
  submit({&flush()});
  const iocb& used = kernel().last().copy;
  EXPECT_EQ(kernel().accepted[0].object, kernel().last().object);
  EXPECT_EQ(used.aio_lio_opcode, IO_CMD_FDSYNC);
  EXPECT_EQ(used.u.c.buf, nullptr);
  EXPECT_EQ(used.u.c.nbytes, 0U);
  EXPECT_EQ(used.u.c.offset, 0);
  EXPECT_EQ(used.aio_rw_flags, 0U);
  EXPECT_EQ(used.aio_reqprio, 0);
  kernel().complete_next(0);
  EXPECT_EQ(reap().size(), 1U);
}

// Case 117: resubmission after exhaustion uses the vectors as they were given.
TEST_F(libaio_submit, submits_a_deferred_write_whole) {
  open();
  transfer& work = write(0, {512, 1024, 512});
  const std::vector<iovec> given(work.buffers.begin(), work.buffers.end());
  kernel().submit = {-EAGAIN};
  submit({&work});
  kernel().at_once = true;
  ASSERT_EQ(reap_all().size(), 1U);
  ASSERT_EQ(kernel().accepted.size(), 1U);
  ASSERT_EQ(kernel().accepted[0].buffers.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(work.buffers[i].iov_base, given[i].iov_base);
    EXPECT_EQ(work.buffers[i].iov_len, given[i].iov_len);
    EXPECT_EQ(kernel().accepted[0].buffers[i].iov_base, given[i].iov_base);
    EXPECT_EQ(kernel().accepted[0].buffers[i].iov_len, given[i].iov_len);
  }
}

TEST_F(libaio_submit, never_gives_the_kernel_a_write_for_a_read_only_image) {
  file.emplace(4096U);
  image.emplace(file->path(), pvring::aio::file_options{.read_only = true});
  context.emplace(*image, pvring::aio::context_options{});
  submit({&write(0), &make(operation::discard, 0, {}), &make(operation::write_zeroes, 0, {})});
  EXPECT_TRUE(kernel().accepted.empty());
  const auto done = reap();
  ASSERT_EQ(done.size(), 3U);
  for (const auto& [work, error] : done) {
    EXPECT_EQ(error, -EROFS);
  }
}

}  // namespace
}  // namespace seam
