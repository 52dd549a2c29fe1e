// SPDX-License-Identifier: MIT
// What every I/O engine has to do, as a GoogleTest suite. Instantiate it with a setup of your
// engine; see below.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "../../aio/engine.hpp"
#include "../../wait/served.hpp"

namespace pvring::testing {

/// A default-constructible type that names an engine and owns a fresh, writable image of at least 2
/// MiB.
///
///     struct my_setup {
///       using engine = my_engine;
///       my_engine::image& image();
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(mine, engine_conformance, my_setup);
///
/// What only the storage can bring about is played where the setup has a way to bring it about;
/// without, the test of it passes and has shown nothing. All are called while nothing is in flight:
///
/// - `fail_next_flush()`: the next flush that reaches the storage fails;
/// - `shorten_next(std::uint64_t bytes)`: the next read or write that reaches the storage transfers
///   no more than its first `bytes` bytes, and says so;
/// - `complete_backwards()`: from now on the newest transfer of those in flight completes first.
template <class S>
concept engine_setup =
    std::default_initializable<S> && aio::engine<typename S::engine> && requires(S& s) {
      { s.image() } -> std::same_as<typename S::engine::image&>;
    };

template <engine_setup Rig>
class engine_conformance : public ::testing::Test {
 protected:
  using engine_type = typename Rig::engine;
  using context_type = typename engine_type::context;
  static constexpr std::uint64_t unit = 4096;  // what every engine can transfer

  /// A transfer with its buffers.
  struct request {
    struct freer {
      void operator()(char* p) const noexcept { std::free(p); }
    };
    aio::transfer work;
    std::vector<iovec> buffers;
    std::unique_ptr<char, freer> room;
    int reports = 0;

    [[nodiscard]] std::string_view data() const { return {room.get(), work.length}; }
  };

  request& make(aio::operation kind, std::uint64_t offset, std::uint64_t length, char fill = 0,
                std::size_t pieces = 1) {
    request& r = requests_.emplace_back();
    r.work.kind = kind;
    r.work.offset = offset;
    r.work.length = length;
    if (kind == aio::operation::read || kind == aio::operation::write) {
      r.room.reset(static_cast<char*>(std::aligned_alloc(unit, (length + unit - 1) / unit * unit)));
      std::memset(r.room.get(), fill, length);
      for (std::size_t i = 0; i < pieces; ++i) {
        r.buffers.push_back({r.room.get() + i * (length / pieces), length / pieces});
      }
      r.work.buffers = r.buffers;
    }
    return r;
  }
  request& make(aio::operation kind) { return make(kind, 0, 0); }

  context_type& open(std::uint32_t capacity = 16) {
    return context_.emplace(rig_.image(), aio::context_options{.capacity = capacity});
  }

  request& request_of(const aio::transfer& work) {
    return *std::ranges::find_if(requests_, [&](const request& r) { return &r.work == &work; });
  }

  void submit(const std::vector<request*>& batch) {
    std::vector<aio::transfer*> works;
    for (request* r : batch) {
      works.push_back(&r->work);
    }
    context_->submit(works);
  }

  std::size_t reap() {
    return context_->reap([&](aio::transfer& work, int error) noexcept {
      work.error = error;
      ++request_of(work).reports;
    });
  }

  static bool readable(int fd, int milliseconds) {
    pollfd p{fd, POLLIN, 0};
    int n = 0;
    do {
      n = ::poll(&p, 1, milliseconds);
    } while (n < 0 && errno == EINTR);
    return n == 1;
  }

  /// Sleeps as a queue would, until it is woken or a deadline has come; false when neither happens.
  template <class Context>
  static bool sleep(Context& context) {
    constexpr std::chrono::milliseconds longest(10000);
    if constexpr (wait::source_with_deadline<Context>) {
      if (const auto at = context.deadline()) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(*at - std::chrono::steady_clock::now());
        const auto nap = std::clamp(left, std::chrono::milliseconds(0), longest);
        return readable(context.fd(), static_cast<int>(nap.count())) || left <= longest;
      }
    }
    return readable(context.fd(), static_cast<int>(longest.count()));
  }

  /// Serves the context as a queue would until nothing is in flight.
  void drain() {
    while (context_->in_flight() != 0) {
      if (reap() == 0 && !context_->arm()) {
        ASSERT_TRUE(sleep(*context_))
            << "nothing woke us, " << context_->in_flight() << " in flight";
      }
    }
    context_->disarm();
  }

  int run(request& r) {
    submit({&r});
    drain();
    EXPECT_EQ(r.reports, 1);
    return r.work.error;
  }

  Rig rig_;
  std::deque<request> requests_;
  std::optional<context_type> context_;
};

TYPED_TEST_SUITE_P(engine_conformance);

TYPED_TEST_P(engine_conformance, describes_its_image) {
  const auto& image = this->rig_.image();
  EXPECT_GE(image.size(), 2U << 20U);
  EXPECT_EQ(image.size() % 512, 0U);
  EXPECT_FALSE(image.read_only());
  EXPECT_FALSE(std::string_view(image.name()).empty());
  EXPECT_GE(image.physical_block_size(), 512U);
  EXPECT_EQ(image.physical_block_size() & (image.physical_block_size() - 1), 0U);
  EXPECT_GE(image.alignment(), 1U);
  EXPECT_LE(image.alignment(), 512U) << "a frontend's sectors have to be possible";
  EXPECT_EQ(image.discard_granularity() % 512, 0U);
}

TYPED_TEST_P(engine_conformance, starts_with_nothing_in_flight) {
  auto& context = this->open(7);
  EXPECT_EQ(context.in_flight(), 0U);
  EXPECT_EQ(context.capacity(), 7U);
  EXPECT_EQ(this->reap(), 0U);
  EXPECT_GE(context.fd(), 0);
  EXPECT_FALSE(context.arm());
  EXPECT_FALSE(this->readable(context.fd(), 0));
  context.submit({});
  EXPECT_EQ(context.in_flight(), 0U);
}

TYPED_TEST_P(engine_conformance, reads_back_what_it_wrote) {
  this->open();
  EXPECT_EQ(this->run(this->make(aio::operation::write, 8192, 8192, 'w')), 0);
  EXPECT_EQ(this->run(this->make(aio::operation::write, 12288, 512, 'x')), 0);
  auto& back = this->make(aio::operation::read, 8192, 8192);
  EXPECT_EQ(this->run(back), 0);
  EXPECT_EQ(back.data(), std::string(4096, 'w') + std::string(512, 'x') + std::string(3584, 'w'));
}

TYPED_TEST_P(engine_conformance, scatters_and_gathers) {
  this->open();
  for (const std::size_t pieces : {2UL, 11UL, 256UL, 1024UL, 1025UL, 4096UL}) {
    const std::uint64_t length = pieces * 512;
    if (length > this->rig_.image().size()) {
      continue;
    }
    auto& out = this->make(aio::operation::write, 0, length, 0, pieces);
    for (std::size_t i = 0; i < pieces; ++i) {
      std::memset(out.buffers[i].iov_base, static_cast<int>(i * 31 + pieces), 512);
    }
    const auto given = out.buffers;
    EXPECT_EQ(this->run(out), 0);
    auto& back = this->make(aio::operation::read, 0, length, 0, pieces);
    EXPECT_EQ(this->run(back), 0);
    EXPECT_EQ(back.data(), out.data());
    for (std::size_t i = 0; i < pieces; ++i) {
      EXPECT_EQ(out.buffers[i].iov_base, given[i].iov_base);
      EXPECT_EQ(out.buffers[i].iov_len, given[i].iov_len);
    }
  }
}

TYPED_TEST_P(engine_conformance, takes_a_batch_of_its_whole_capacity) {
  auto& context = this->open(32);
  for (int round = 0; round < 5; ++round) {
    std::vector<typename TestFixture::request*> batch;
    for (std::uint64_t i = 0; i < 32; ++i) {
      batch.push_back(
          &this->make(aio::operation::write, i * 4096, 4096, static_cast<char>('a' + i)));
    }
    this->submit(batch);
    EXPECT_EQ(context.in_flight(), 32U);
    this->drain();
    for (const auto* r : batch) {
      EXPECT_EQ(r->reports, 1);
      EXPECT_EQ(r->work.error, 0);
    }
    EXPECT_EQ(context.in_flight(), 0U);
  }
}

TYPED_TEST_P(engine_conformance, counts_down_as_it_reports) {
  auto& context = this->open(8);
  std::vector<typename TestFixture::request*> batch;
  for (std::uint64_t i = 0; i < 8; ++i) {
    batch.push_back(&this->make(aio::operation::read, i * 4096, 4096));
  }
  this->submit(batch);
  std::size_t left = 8;
  while (left != 0) {
    const std::size_t before = left;
    const std::size_t n = context.reap([&](aio::transfer&, int) noexcept {
      --left;
      EXPECT_EQ(context.in_flight(), left);
    });
    EXPECT_EQ(n, before - left);
    if (n == 0 && !context.arm()) {
      ASSERT_TRUE(this->sleep(context));
    }
  }
}

TYPED_TEST_P(engine_conformance, lets_go_of_a_transfer_before_it_reports_it) {
  this->open(8);
  std::vector<std::unique_ptr<aio::transfer>> owned;
  std::vector<aio::transfer*> batch;
  auto& buffers = this->make(aio::operation::read, 0, 4096);
  for (std::uint64_t i = 0; i < 8; ++i) {
    owned.push_back(std::make_unique<aio::transfer>());
    owned.back()->kind = i % 4 == 3 ? aio::operation::flush : aio::operation::read;
    owned.back()->length = i % 4 == 3 ? 0 : 4096;
    owned.back()->buffers = i % 4 == 3 ? std::span<iovec>() : std::span<iovec>(buffers.buffers);
    batch.push_back(owned.back().get());
  }
  this->context_->submit(batch);
  while (!owned.empty()) {
    const std::size_t n = this->context_->reap([&](aio::transfer& work, int) noexcept {
      std::erase_if(owned, [&](const auto& one) { return one.get() == &work; });
    });
    if (n == 0 && !this->context_->arm()) {
      ASSERT_TRUE(this->sleep(*this->context_));
    }
  }
}

TYPED_TEST_P(engine_conformance, wakes_who_sleeps_after_arming) {
  auto& context = this->open(4);
  for (int round = 0; round < 50; ++round) {
    auto& one = this->make(aio::operation::read, 0, 4096);
    if (round % 2 == 1) {
      EXPECT_FALSE(context.arm());  // and it stays armed across the submission
    }
    this->submit({&one});
    while (one.reports == 0) {
      if (!context.arm()) {
        ASSERT_TRUE(this->sleep(context)) << "slept through a completion";
      }
      this->reap();
    }
    EXPECT_FALSE(context.arm());
    EXPECT_FALSE(this->readable(context.fd(), 0) && (this->reap(), !context.arm()) &&
                 this->readable(context.fd(), 0))
        << "is kept awake by nothing";
    context.disarm();
  }
}

TYPED_TEST_P(engine_conformance, has_work_while_a_completion_is_not_reaped) {
  auto& context = this->open(4);
  auto& one = this->make(aio::operation::read, 0, 4096);
  this->submit({&one});
  while (!context.arm()) {
    ASSERT_TRUE(this->sleep(context));
  }
  EXPECT_TRUE(context.arm()) << "arming takes nothing away";
  this->drain();
  EXPECT_EQ(one.reports, 1);
}

TYPED_TEST_P(engine_conformance, flushes) {
  this->open();
  EXPECT_EQ(this->run(this->make(aio::operation::flush)), 0);
  EXPECT_EQ(this->run(this->make(aio::operation::write, 0, 4096, 'f')), 0);
  auto& first = this->make(aio::operation::flush);
  auto& second = this->make(aio::operation::flush);
  this->submit({&first, &second});
  this->drain();
  EXPECT_EQ(first.reports + second.reports, 2);
  EXPECT_EQ(first.work.error, 0);
  EXPECT_EQ(second.work.error, 0);
}

TYPED_TEST_P(engine_conformance, refuses_to_read_or_write_beyond_the_end) {
  this->open();
  const std::uint64_t size = this->rig_.image().size();
  EXPECT_LT(this->run(this->make(aio::operation::read, size, 4096)), 0);
  EXPECT_LT(this->run(this->make(aio::operation::read, size - 512, 4096)), 0);
  EXPECT_EQ(this->run(this->make(aio::operation::read, size - 512, 512)), 0);
}

TYPED_TEST_P(engine_conformance, discards_where_it_says_so) {
  this->open();
  const std::uint64_t granularity = this->rig_.image().discard_granularity();
  EXPECT_EQ(this->run(this->make(aio::operation::write, 0, 65536, 'd')), 0);
  if (granularity == 0) {
    EXPECT_EQ(this->run(this->make(aio::operation::discard, 0, 65536)), -EOPNOTSUPP);
  } else {
    EXPECT_EQ(this->run(this->make(aio::operation::discard, 16384, 16384)), 0);
  }
  auto& around = this->make(aio::operation::read, 0, 65536);
  EXPECT_EQ(this->run(around), 0);
  EXPECT_EQ(around.data().substr(0, 16384), std::string(16384, 'd'));
  EXPECT_EQ(around.data().substr(32768), std::string(32768, 'd'));
}

TYPED_TEST_P(engine_conformance, writes_zeroes) {
  this->open();
  EXPECT_EQ(this->run(this->make(aio::operation::write, 0, 16384, 'z')), 0);
  const int error = this->run(this->make(aio::operation::write_zeroes, 512, 8192));
  auto& around = this->make(aio::operation::read, 0, 16384);
  EXPECT_EQ(this->run(around), 0);
  if (error == -EOPNOTSUPP) {
    EXPECT_EQ(around.data(), std::string(16384, 'z'));
  } else {
    EXPECT_EQ(error, 0);
    EXPECT_EQ(around.data(),
              std::string(512, 'z') + std::string(8192, '\0') + std::string(16384 - 8704, 'z'));
  }
}

TYPED_TEST_P(engine_conformance, is_done_with_all_buffers_when_its_context_is_gone) {
  for (int round = 0; round < 5; ++round) {
    auto& context = this->open(16);
    std::vector<typename TestFixture::request*> batch;
    for (std::uint64_t i = 0; i < 16; ++i) {
      batch.push_back(&this->make(i % 2 == 0 ? aio::operation::read : aio::operation::write,
                                  i * 65536, 65536, 'g'));
    }
    this->submit(batch);
    (void)context.arm();
    this->context_.reset();
    this->requests_
        .clear();  // the buffers go: whoever still uses them is found by the address sanitizer
  }
}

TYPED_TEST_P(engine_conformance, serves_several_contexts_on_one_image) {
  auto& first = this->open(4);
  typename TestFixture::context_type second(this->rig_.image(),
                                            aio::context_options{.capacity = 4});
  EXPECT_NE(first.fd(), second.fd());
  EXPECT_EQ(this->run(this->make(aio::operation::write, 4096, 4096, 's')), 0);
  auto& back = this->make(aio::operation::read, 4096, 4096);
  aio::transfer* one = &back.work;
  second.submit({&one, 1});
  while (second.in_flight() != 0) {
    const std::size_t n =
        second.reap([](aio::transfer&, int error) noexcept { EXPECT_EQ(error, 0); });
    if (n == 0 && !second.arm()) {
      ASSERT_TRUE(this->sleep(second));
    }
  }
  EXPECT_EQ(back.data(), std::string(4096, 's'));
}

// A model beside the engine; several transfers in flight, never two on the same bytes.
TYPED_TEST_P(engine_conformance, agrees_with_a_model) {
  this->open(8);
  constexpr std::size_t regions = 8;
  constexpr std::uint64_t region = 65536;
  std::string model(regions * region, '\0');
  EXPECT_EQ(this->run(this->make(aio::operation::write, 0, model.size(), 0)), 0);
  std::mt19937 random(7);
  const auto pick = [&](std::uint64_t below) {
    return std::uniform_int_distribution<std::uint64_t>(0, below - 1)(random);
  };
  for (int round = 0; round < 60; ++round) {
    this->requests_.clear();
    std::vector<typename TestFixture::request*> batch;
    for (std::uint64_t r = 0; r < regions; ++r) {
      const std::uint64_t start = pick(region / 512);
      const std::uint64_t sectors = 1 + pick(region / 512 - start);
      const std::uint64_t offset = r * region + start * 512;
      const auto kind = pick(2) == 0 ? aio::operation::read : aio::operation::write;
      auto& one = this->make(kind, offset, sectors * 512, static_cast<char>(pick(256)), sectors);
      if (kind == aio::operation::write) {
        model.replace(offset, one.work.length, one.data());
      }
      batch.push_back(&one);
    }
    this->submit(batch);
    this->drain();
    for (const auto* one : batch) {
      ASSERT_EQ(one->work.error, 0);
      ASSERT_EQ(one->data(), std::string_view(model).substr(one->work.offset, one->work.length))
          << "round " << round << ", offset " << one->work.offset;
    }
  }
}

TYPED_TEST_P(engine_conformance,
             finishes_a_transfer_that_the_storage_cut_short_or_calls_it_failed) {
  if constexpr (requires { this->rig_.shorten_next(std::uint64_t{}); }) {
    this->open();
    constexpr std::uint64_t length = 4 * TestFixture::unit;
    for (const std::uint64_t at : {1UL, 512UL, 4096UL, 5000UL, 8192UL, 12288UL, 16383UL}) {
      for (const std::size_t pieces : {1UL, 4UL, 32UL}) {
        EXPECT_EQ(this->run(this->make(aio::operation::write, 0, length, 'o')), 0);
        auto& out =
            this->make(aio::operation::write, 0, length, static_cast<char>('a' + pieces), pieces);
        this->rig_.shorten_next(at);
        const int wrote = this->run(out);
        auto& back = this->make(aio::operation::read, 0, length);
        EXPECT_EQ(this->run(back), 0);
        if (wrote == 0) {
          EXPECT_EQ(back.data(), out.data()) << "written in part, at " << at;
        }
        auto& cut = this->make(aio::operation::read, 0, length, 'r', pieces);
        this->rig_.shorten_next(at);
        const int read = this->run(cut);
        if (read == 0) {
          EXPECT_EQ(cut.data(), back.data()) << "read in part, at " << at;
        }
        if (at % TestFixture::unit == 0) {
          EXPECT_EQ(wrote, 0) << "the rest of it could be transferred";
          EXPECT_EQ(read, 0);
        }
      }
    }
  }
}

TYPED_TEST_P(engine_conformance, never_reports_a_flush_as_done_after_one_has_failed) {
  if constexpr (requires { this->rig_.fail_next_flush(); }) {
    auto& context = this->open();
    EXPECT_EQ(this->run(this->make(aio::operation::write, 0, 4096, 'f')), 0);
    EXPECT_EQ(this->run(this->make(aio::operation::flush)), 0);
    this->rig_.fail_next_flush();
    EXPECT_LT(this->run(this->make(aio::operation::flush)), 0);
    for (int i = 0; i < 3; ++i) {
      EXPECT_LT(this->run(this->make(aio::operation::flush)), 0);
      (void)this->run(this->make(aio::operation::write, 0, 4096, 'g'));
    }
    auto& one = this->make(aio::operation::flush);
    auto& other = this->make(aio::operation::flush);
    this->submit({&one, &other});
    this->drain();
    EXPECT_LT(one.work.error, 0);
    EXPECT_LT(other.work.error, 0);
    EXPECT_EQ(context.in_flight(), 0U);
    // The image remembers, not the context: of another queue, and of a queue that comes later.
    typename TestFixture::context_type second(this->rig_.image(),
                                              aio::context_options{.capacity = 4});
    auto& there = this->make(aio::operation::flush);
    aio::transfer* work = &there.work;
    second.submit({&work, 1});
    while (second.in_flight() != 0) {
      const std::size_t n =
          second.reap([](aio::transfer&, int error) noexcept { EXPECT_LT(error, 0); });
      if (n == 0 && !second.arm()) {
        ASSERT_TRUE(this->sleep(second));
      }
    }
    this->open();
    EXPECT_LT(this->run(this->make(aio::operation::flush)), 0);
  }
}

TYPED_TEST_P(engine_conformance, fails_no_other_transfer_with_a_flush) {
  if constexpr (requires { this->rig_.fail_next_flush(); }) {
    this->open();
    this->rig_.fail_next_flush();
    auto& before = this->make(aio::operation::write, 0, 4096, 'b');
    auto& flush = this->make(aio::operation::flush);
    auto& after = this->make(aio::operation::read, 8192, 4096);
    this->submit({&before, &flush, &after});
    this->drain();
    EXPECT_EQ(before.work.error, 0);
    EXPECT_LT(flush.work.error, 0);
    EXPECT_EQ(after.work.error, 0);
  }
}

TYPED_TEST_P(engine_conformance, reports_each_transfer_with_its_own_result_in_whatever_order) {
  auto& context = this->open(8);
  constexpr bool backwards = requires { this->rig_.complete_backwards(); };
  if constexpr (backwards) {
    this->rig_.complete_backwards();
  }
  const std::uint64_t size = this->rig_.image().size();
  std::vector<typename TestFixture::request*> batch;
  for (std::uint64_t i = 0; i < 8; ++i) {
    batch.push_back(i % 4 == 3 ? &this->make(aio::operation::read, size + i * 4096, 4096)
                               : &this->make(aio::operation::write, i * 4096, 4096,
                                             static_cast<char>('a' + i)));
  }
  std::vector<const aio::transfer*> order;
  this->submit(batch);
  while (context.in_flight() != 0) {
    const std::size_t n = context.reap([&](aio::transfer& work, int error) noexcept {
      order.push_back(&work);
      work.error = error;
    });
    if (n == 0 && !context.arm()) {
      ASSERT_TRUE(this->sleep(context));
    }
  }
  context.disarm();
  ASSERT_EQ(order.size(), batch.size());
  if (backwards) {
    EXPECT_EQ(order.front(), &batch.back()->work) << "the setup does not do what it says";
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(std::ranges::count(order, &batch[i]->work), 1);
    if (i % 4 == 3) {
      EXPECT_LT(batch[i]->work.error, 0);
      continue;
    }
    EXPECT_EQ(batch[i]->work.error, 0);
    auto& back = this->make(aio::operation::read, i * 4096, 4096);
    EXPECT_EQ(this->run(back), 0);
    EXPECT_EQ(back.data(), batch[i]->data());
  }
}

REGISTER_TYPED_TEST_SUITE_P(
    engine_conformance, describes_its_image, starts_with_nothing_in_flight,
    reads_back_what_it_wrote, scatters_and_gathers, takes_a_batch_of_its_whole_capacity,
    counts_down_as_it_reports, lets_go_of_a_transfer_before_it_reports_it,
    wakes_who_sleeps_after_arming, has_work_while_a_completion_is_not_reaped, flushes,
    refuses_to_read_or_write_beyond_the_end, discards_where_it_says_so, writes_zeroes,
    is_done_with_all_buffers_when_its_context_is_gone, serves_several_contexts_on_one_image,
    agrees_with_a_model, finishes_a_transfer_that_the_storage_cut_short_or_calls_it_failed,
    never_reports_a_flush_as_done_after_one_has_failed, fails_no_other_transfer_with_a_flush,
    reports_each_transfer_with_its_own_result_in_whatever_order);

}  // namespace pvring::testing
