// SPDX-License-Identifier: MIT
// How completions are found, and what their results mean.
#include <algorithm>
#include <set>

#include "fixture.hpp"

namespace seam {
namespace {

class libaio_completion : public libaio_seam {};
class libaio_reaping : public libaio_seam, public testing::WithParamInterface<reap_mode> {};

INSTANTIATE_TEST_SUITE_P(both, libaio_reaping,
                         testing::Values(reap_mode::user_space, reap_mode::system_call),
                         [](const auto& mode) {
                           return mode.param == reap_mode::user_space ? "user_space"
                                                                      : "system_call";
                         });

TEST_P(libaio_reaping, reports_every_transfer_once) {
  open(65536, 8, GetParam());
  EXPECT_EQ(context->reaps_by(), GetParam());
  for (int round = 0; round < 20; ++round) {
    submit_reads(8);
    std::set<transfer*> seen;
    for (int i = 0; i < 8; ++i) {
      kernel().complete_next(512);
      for (const auto& [work, error] : reap()) {
        EXPECT_EQ(error, 0);
        EXPECT_TRUE(seen.insert(work).second);
      }
    }
    EXPECT_EQ(seen.size(), 8U);
    EXPECT_EQ(context->in_flight(), 0U);
  }
}

TEST_P(libaio_reaping, costs_a_call_only_where_it_has_to_ask) {
  open(65536, 8, GetParam());
  kernel().at_once = true;
  submit_reads(8);
  EXPECT_EQ(reap().size(), 8U);
  EXPECT_EQ(kernel().getevents_calls, GetParam() == reap_mode::user_space ? 0U : 1U);
  EXPECT_TRUE(reap().empty());
  EXPECT_EQ(kernel().getevents_calls, GetParam() == reap_mode::user_space ? 0U : 1U);
}

// Case 110: the kernel's ring has any number of places.
TEST_P(libaio_reaping, wraps_where_the_ring_does_not_have_a_power_of_two_of_places) {
  kernel().extra_places = 127 - 8 - 1;
  open(65536, 8, GetParam());
  kernel().at_once = true;
  for (int round = 0; round < 100; ++round) {
    submit_reads(5);
    ASSERT_EQ(reap().size(), 5U);
  }
}

// Case 111.
TEST_P(libaio_reaping, takes_more_events_than_one_call_returns) {
  open(256 * 512, 256, GetParam());
  kernel().at_once = true;
  submit_reads(256);
  EXPECT_EQ(reap().size(), 256U);
  EXPECT_EQ(context->in_flight(), 0U);
}

TEST_P(libaio_reaping, arms_with_work_when_something_is_complete) {
  open(65536, 8, GetParam());
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
  context->disarm();
  EXPECT_EQ(reap().size(), 1U);
}

TEST_P(libaio_reaping, is_woken_at_most_once_by_a_signal_that_comes_late) {
  open(65536, 8, GetParam());
  submit_reads(1);
  kernel().late_signals = true;
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_FALSE(context->arm());
  EXPECT_FALSE(readable());
  kernel().signal(kernel().accepted[0]);
  EXPECT_TRUE(readable());
  EXPECT_TRUE(reap().empty());
  EXPECT_FALSE(context->arm());
  EXPECT_FALSE(readable());
  const std::uint64_t calls = context->counters().other_calls.get();
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(context->arm());
  }
  EXPECT_EQ(context->counters().other_calls.get(), calls);
}

TEST_P(libaio_reaping, reads_the_descriptor_once_per_sleep) {
  open(65536, 8, GetParam());
  for (int round = 0; round < 10; ++round) {
    submit_reads(4);
    for (int i = 0; i < 4; ++i) {
      kernel().complete_next(512);
    }
    EXPECT_EQ(reap().size(), 4U);
    EXPECT_FALSE(context->arm());
    context->disarm();
  }
  EXPECT_EQ(context->counters().other_calls.get(), 10U);
}

TEST_F(libaio_completion, is_not_kept_awake_by_signals_that_nobody_explains) {
  open(65536, 8, reap_mode::system_call);
  submit_reads(1);
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(context->fd(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_TRUE(context->arm());
  EXPECT_TRUE(reap().empty());
  EXPECT_FALSE(context->arm());
  EXPECT_FALSE(readable());
  kernel().complete_next(512);
  EXPECT_EQ(reap_all().size(), 1U);
}

TEST_P(libaio_reaping, ignores_events_that_are_not_about_its_iocbs) {
  open(65536, 8, GetParam());
  submit_reads(1);
  iocb foreign{};
  kernel().post(&foreign, 512);
  EXPECT_TRUE(reap().empty());
  kernel().complete_next(512);
  kernel().post(kernel().accepted[0].object, 512);  // and once more
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_TRUE(reap().empty());
  EXPECT_EQ(context->in_flight(), 0U);
  submit_reads(8);  // nothing was freed twice
  EXPECT_EQ(context->in_flight(), 8U);
}

// Case 110.
TEST_F(libaio_completion, asks_the_kernel_when_the_ring_is_none_that_it_knows) {
  const auto reaps_by = [&] {
    open();
    kernel().at_once = true;
    submit_reads(3);
    EXPECT_EQ(reap_all().size(), 3U);
    const reap_mode found = context->reaps_by();
    context.reset();
    fake::current = std::make_unique<fake::kernel>();
    return found;
  };
  EXPECT_EQ(reaps_by(), reap_mode::user_space);
  kernel().magic = 0xa10a10a2;
  EXPECT_EQ(reaps_by(), reap_mode::system_call);
  kernel().incompat_features = 1;
  EXPECT_EQ(reaps_by(), reap_mode::system_call);
  kernel().header_length = 40;
  EXPECT_EQ(reaps_by(), reap_mode::system_call);
}

// Cases 110, 113.
TEST_F(libaio_completion, never_delivers_an_event_without_an_object) {
  open();
  submit_reads(3);
  kernel().complete_next(512);
  kernel().post(nullptr, 0);
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 2U);
  EXPECT_EQ(context->reaps_by(), reap_mode::system_call);
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  EXPECT_EQ(context->in_flight(), 0U);
}

// Case 113.
TEST_F(libaio_completion, does_not_take_an_error_of_getevents_for_a_count) {
  open(65536, 8, reap_mode::system_call);
  kernel().at_once = true;
  submit_reads(2);
  kernel().getevents = {-EFAULT, -EINTR, -EINTR};
  EXPECT_TRUE(reap().empty());
  EXPECT_EQ(reap().size(), 2U);  // behind the two interruptions
  EXPECT_EQ(kernel().getevents_calls, 4U);
}

TEST_F(libaio_completion, passes_the_kernels_error_on) {
  open();
  submit({&read(0), &write(512)});
  kernel().complete_next(-EIO);
  kernel().complete_next(-ENOSPC);
  const auto done = reap();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].second, -EIO);
  EXPECT_EQ(done[1].second, -ENOSPC);
}

// Case 114.
TEST_F(libaio_completion, pads_a_read_inside_the_partial_last_sector) {
  open(320);
  EXPECT_EQ(image->size(), 512U);
  submit({&read(0)});
  kernel().perform_next();
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
  EXPECT_EQ(requests[0].data[0], std::string(320, 'a') + std::string(192, '\0'));
  EXPECT_EQ(kernel().accepted.size(), 1U);
}

TEST_F(libaio_completion, pads_across_buffers) {
  open(1024 + 100);
  submit({&read(0, {512, 512, 256, 256})});
  kernel().perform_next();
  ASSERT_EQ(reap_all().size(), 1U);
  EXPECT_EQ(requests[0].data[1], std::string(512, 'a'));
  EXPECT_EQ(requests[0].data[2], std::string(100, 'a') + std::string(156, '\0'));
  EXPECT_EQ(requests[0].data[3], std::string(256, '\0'));
}

// Case 114.
TEST_F(libaio_completion, does_not_read_zeroes_where_the_image_has_shrunk) {
  open(4096);
  ASSERT_EQ(::truncate(file->path().c_str(), 1000), 0);
  submit({&read(0, {4096}), &read(512), &read(1024), &read(0)});
  kernel().result = nullptr;
  while (kernel().completed < kernel().accepted.size()) {
    kernel().perform_next();
    reap();
  }
  EXPECT_EQ(requests[0].work.error, -EIO);
  EXPECT_EQ(requests[1].work.error, -EIO);
  EXPECT_EQ(requests[2].work.error, -EIO);
  EXPECT_EQ(requests[3].work.error, 0);
}

TEST_F(libaio_completion, does_not_read_zeroes_where_a_write_had_filled_the_last_sector) {
  open(320);
  kernel().at_once = true;
  submit({&write(0)});
  ASSERT_EQ(reap_all().size(), 1U);
  EXPECT_EQ(image->file_bytes(), 512U);
  ASSERT_EQ(::truncate(file->path().c_str(), 320), 0);
  submit({&read(0)});
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, -EIO);
}

// Case 114.
TEST_F(libaio_completion, continues_a_short_read_from_where_it_stopped) {
  open(65536);
  transfer& work = read(1024, {1024, 2048, 1024});
  const std::vector<iovec> given(work.buffers.begin(), work.buffers.end());
  submit({&work});
  kernel().complete_next(1024 + 512);
  EXPECT_TRUE(reap().empty());
  ASSERT_EQ(kernel().accepted.size(), 2U);  // the rest of the second buffer
  EXPECT_EQ(kernel().last().copy.u.c.offset, 1024 + 1536);
  ASSERT_EQ(kernel().last().buffers.size(), 1U);
  EXPECT_EQ(kernel().last().buffers[0].iov_base, static_cast<char*>(given[1].iov_base) + 512);
  EXPECT_EQ(kernel().last().buffers[0].iov_len, 1536U);
  kernel().complete_next(1536);
  EXPECT_TRUE(reap().empty());
  ASSERT_EQ(kernel().accepted.size(), 3U);  // the third
  EXPECT_EQ(kernel().last().copy.u.c.offset, 1024 + 3072);
  kernel().complete_next(1024);
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
  EXPECT_EQ(context->counters().continuations.get(), 1U);
  for (std::size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(work.buffers[i].iov_base, given[i].iov_base);
    EXPECT_EQ(work.buffers[i].iov_len, given[i].iov_len);
  }
}

TEST_F(libaio_completion, gives_up_a_read_that_makes_no_progress) {
  open();
  submit({&read(0, {4096})});
  kernel().complete_next(1024);
  reap();
  kernel().complete_next(0);
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, -EIO);
}

// Case 114.
TEST_F(libaio_completion, continues_a_short_write_once_then_reports_no_space) {
  open();
  submit({&write(0, {8192})});
  kernel().complete_next(4096);
  EXPECT_TRUE(reap().empty());
  EXPECT_EQ(kernel().last().copy.u.c.offset, 4096);
  EXPECT_EQ(kernel().last().copy.u.c.nbytes, 4096U);
  kernel().complete_next(0);
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, -ENOSPC);
}

TEST_F(libaio_completion, reports_what_the_kernel_says_about_the_rest_of_a_write) {
  open();
  submit({&write(0, {8192}), &write(8192, {8192})});
  kernel().complete_next(4096);
  kernel().complete_next(4096);
  EXPECT_TRUE(reap().empty());
  kernel().complete_next(-EDQUOT);
  kernel().complete_next(512);
  const auto done = reap();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].second, -EDQUOT);
  EXPECT_EQ(done[1].second, -EIO);
}

TEST_F(libaio_completion, completes_a_write_whose_rest_succeeds) {
  open();
  submit({&write(0, {4096, 4096})});
  kernel().complete_next(6000);
  EXPECT_TRUE(reap().empty());
  kernel().complete_next(2192);
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
}

TEST_F(libaio_completion, takes_no_more_than_it_asked_for) {
  open();
  submit({&read(0)});
  kernel().complete_next(100000);
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
  EXPECT_EQ(requests[0].work.done, 512U);
}

// Case 114.
TEST_F(libaio_completion, submits_again_what_came_back_with_eagain) {
  open();
  submit({&read(0), &read(512)});
  kernel().complete_next(-EAGAIN);
  EXPECT_TRUE(reap().empty());
  EXPECT_EQ(kernel().accepted.size(), 2U);  // not at once: the other one is still to make room
  kernel().complete_next(512);
  EXPECT_EQ(reap().size(), 1U);
  ASSERT_EQ(kernel().accepted.size(), 3U);
  EXPECT_EQ(kernel().last().object, kernel().accepted[0].object);
  kernel().complete_next(512);
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
}

TEST_F(libaio_completion, does_not_spin_on_eagain_in_results) {
  open();
  kernel().at_once = true;
  int times = 4;
  kernel().result = [&](const fake::call&) -> std::optional<long> {
    return times-- > 0 ? std::optional<long>(-EAGAIN) : std::nullopt;
  };
  submit_reads(1);
  const auto start = std::chrono::steady_clock::now();
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(15));
}

TEST_F(libaio_completion, splits_what_has_more_buffers_than_one_call_takes) {
  open(4096 * 512);
  kernel().at_once = true;
  transfer& work = write(0, std::vector<std::size_t>(4096, 512));
  for (std::size_t i = 0; i < 4096; ++i) {
    requests[0].data[i].assign(512, static_cast<char>(i));
  }
  submit({&work});
  const auto done = reap_all();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
  ASSERT_EQ(kernel().accepted.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(kernel().accepted[i].buffers.size(), 1024U);
    EXPECT_EQ(kernel().accepted[i].copy.u.c.offset, static_cast<long long>(i * 1024 * 512));
  }
  EXPECT_EQ(context->counters().continuations.get(), 0U);
  EXPECT_EQ(context->counters().transfers.get(), 1U);
}

TEST_F(libaio_completion, fails_a_split_transfer_whose_later_piece_is_refused) {
  open(2048 * 512);
  submit({&read(0, std::vector<std::size_t>(2048, 512))});
  kernel().complete_next(1024 * 512);
  kernel().submit = {-EFAULT};
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, -EFAULT);
  EXPECT_EQ(context->in_flight(), 0U);
}

TEST_F(libaio_completion, completes_a_transfer_of_nothing) {
  open();
  submit({&read(0, {})});
  EXPECT_TRUE(kernel().accepted.empty());
  const auto done = reap();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, 0);
}

TEST_F(libaio_completion, finds_completions_that_arrive_while_one_is_handled) {
  open();
  submit_reads(3);
  kernel().complete_next(512);
  std::size_t seen = 0;
  const auto handle = [&](transfer&, int) noexcept {
    if (++seen == 1) {
      kernel().complete_next(512);
      kernel().complete_next(512);
    }
  };
  context->reap(handle);
  if (seen < 3) {
    EXPECT_TRUE(context->arm());
    context->reap(handle);
  }
  EXPECT_EQ(seen, 3U);
}

TEST_F(libaio_completion, lets_the_transfer_be_reused_while_it_is_reported) {
  open();
  std::vector<std::unique_ptr<transfer>> owned;
  std::array<char, 512> room{};
  iovec buffer{room.data(), room.size()};
  for (int i = 0; i < 4; ++i) {
    owned.push_back(std::make_unique<transfer>());
    owned.back()->length = 512;
    owned.back()->buffers = {&buffer, 1};
  }
  std::vector<transfer*> batch;
  for (const auto& one : owned) {
    batch.push_back(one.get());
  }
  kernel().submit = {2, -EINVAL, -EINVAL};
  submit(batch);
  kernel().complete_next(512);
  kernel().complete_next(512);
  context->reap([&](transfer& work, int) noexcept {
    std::erase_if(owned, [&](const auto& one) { return one.get() == &work; });
  });
  EXPECT_TRUE(owned.empty());
  EXPECT_EQ(context->in_flight(), 0U);
}

}  // namespace
}  // namespace seam
