// SPDX-License-Identifier: MIT
// A queue that continues where a killed one stopped: what is done again, in which order, and what
// is refused before anything is done. The predecessor is the journal and the ring that it left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "queue_fixture.hpp"

namespace {

using namespace pvring;
using namespace pvring::test;
using testing::ElementsAre;
using testing::HasSubstr;
using wire::abi;
namespace operation = wire::operation;

constexpr std::int16_t okay = 0;
constexpr std::int16_t error = -1;

template <class Q>
class taken_over : public testing::Test {
 protected:
  taken_over() { made.take_over = true; }

  /// The journal of a predecessor that took what is in the ring, each into the place after the
  /// next.
  ring::shared_journal::bind<wire::request> took(const std::vector<wire::request>& requests) {
    ring::shared_journal::bind<wire::request> out(made.journal_bytes(), made.front->size());
    out.begin({}, 0);
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
      made.put(requests[i]);
      out.record(place_of(i), i, requests[i]);
    }
    out.commit(static_cast<std::uint32_t>(requests.size()));
    return out;
  }
  static std::uint32_t place_of(std::uint32_t index) { return (2 * index + 3) % 16; }

  std::vector<std::uint64_t> sectors() const {
    std::vector<std::uint64_t> out;
    for (const auto& one : made.engine.history) {
      out.push_back(one.offset / 512);
    }
    return out;
  }
  /// Lets everything complete; the status that each request was answered with.
  std::map<std::uint64_t, std::int16_t> finish() {
    std::map<std::uint64_t, std::int16_t> out;
    for (int i = 0; i < 8; ++i) {
      made.pass();
      made.engine.complete_all();
      for (const auto& one : made.responses()) {
        EXPECT_TRUE(out.emplace(one.id, one.status).second) << one.id << " was answered twice";
      }
    }
    return out;
  }
  std::string refusal() {
    try {
      (void)made.queue();
    } catch (const configuration_error& refused) {
      return refused.what();
    }
    return "";
  }
  static wire::request write(std::uint64_t id) {
    return make_request(operation::write, id, id * 8, {page(static_cast<std::uint32_t>(id))});
  }

  Q made;
};
using strategies =
    testing::Types<queue_under_test<abi::x86_64, grant::batched_copy, ring::shared_journal>,
                   queue_under_test<abi::x86_64, grant::persistent_pool, ring::shared_journal>,
                   queue_under_test<abi::x86_32, grant::map_each, ring::shared_journal>>;
TYPED_TEST_SUITE(taken_over, strategies);

TYPED_TEST(taken_over, does_again_in_ring_order_what_nobody_has_seen_an_answer_of) {
  auto& t = this->made;
  auto before = this->took({this->write(1), this->write(2), this->write(3), this->write(4)});
  // The third was answered, where the first had been; the second too, but that was not published.
  const auto answer = [&](std::uint32_t request, std::uint32_t at) {
    using protocol = typename TypeParam::protocol_type;
    std::byte* const slot =
        t.bytes().data() + pvring::protocol::ring_header_bytes + at * protocol::slot_bytes;
    protocol::store(ring::slot_sink(slot), protocol::echo_of(this->write(request + 1), true),
                    wire::status::okay);
    before.answered(this->place_of(request), at);
  };
  answer(2, 0);
  before.publish(1);
  answer(1, 1);
  t.pass();
  EXPECT_THAT(this->sectors(), ElementsAre(8, 16, 32));
  EXPECT_EQ(t.queue().counters().redone.get(), 3U);
  EXPECT_EQ(t.queue().counters().requests.get(), 0U);
  EXPECT_THAT(this->finish(), ElementsAre(std::pair(1, okay), std::pair(2, okay),
                                          std::pair(3, okay), std::pair(4, okay)))
      << "three of it, and the one that the predecessor gave";
}

TYPED_TEST(taken_over, takes_new_requests_behind_the_old_ones) {
  auto& t = this->made;
  (void)this->took({this->write(1), this->write(2)});
  t.put(this->write(3));
  t.engine.room = 1;
  t.pass();
  EXPECT_THAT(this->sectors(), ElementsAre(8)) << "no more room";
  EXPECT_THAT(this->finish(),
              ElementsAre(std::pair(1, okay), std::pair(2, okay), std::pair(3, okay)));
  EXPECT_THAT(this->sectors(), ElementsAre(8, 16, 24));
}

TYPED_TEST(taken_over, has_the_data_from_the_frontends_pages) {
  auto& t = this->made;
  (void)this->took({this->write(7), make_request(operation::read, 9, 0, {page(20)})});
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 2U);
  while (!t.engine.flying.empty()) {
    if (t.engine.flying[0].kind == aio::operation::write) {
      EXPECT_EQ(t.engine.flying[0].first_byte, 7);
    }
    t.engine.complete(0, 0, 0x5c);
  }
  t.pass();
  if constexpr (!TypeParam::queue_type::strategy_type::mapped) {
    EXPECT_EQ(t.mapper.peer[20].bytes[0], std::byte{0x5c});
  }
}

TYPED_TEST(taken_over, looks_at_an_indirect_requests_segments_anew) {
  auto& t = this->made;
  std::vector<wire::segment> segments(20, page(5));
  const auto good = t.make_indirect(operation::write, 1, 0, segments, 299);
  segments[13] = page(5, 7, 0);
  const auto changed = t.make_indirect(operation::write, 2, 200, segments, 300);
  (void)this->took({good, changed});
  EXPECT_THAT(this->finish(), ElementsAre(std::pair(1, okay), std::pair(2, error)))
      << "its pages are the frontend's to write, also while nobody serves it";
  ASSERT_EQ(t.engine.history.size(), 1U);
  EXPECT_EQ(t.engine.history[0].length, 20U * 4096);
}

TYPED_TEST(taken_over, trusts_a_request_of_the_journal_no_more_than_one_of_the_ring) {
  (void)this->took({make_request(operation::write, 1, 999, {page(1)}),
                    make_request(operation::read, 2, 0, std::vector(11, page(1, 6, 2))),
                    make_request(200, 3, 0, {page(1)}), this->write(4)});
  EXPECT_THAT(this->finish(), ElementsAre(std::pair(1, error), std::pair(2, error),
                                          std::pair(3, -2), std::pair(4, okay)));
  EXPECT_THAT(this->sectors(), ElementsAre(32));
}

TYPED_TEST(taken_over, answers_what_needs_no_io_in_its_first_pass) {
  auto& t = this->made;
  (void)this->took({make_request(operation::write, 1, 999, {page(1)})});
  t.pass();
  EXPECT_EQ(t.responses().size(), 1U);
  EXPECT_NE(t.events.notified, 0);
}

TYPED_TEST(taken_over, keeps_a_barrier_between_what_was_before_and_behind_it) {
  auto& t = this->made;
  t.device.barrier = true;
  (void)this->took(
      {this->write(1), make_request(operation::write_barrier, 2, 0, {}), this->write(3)});
  t.pass();
  EXPECT_THAT(this->sectors(), ElementsAre(8));
  t.engine.complete_all();
  t.pass();
  t.pass();
  ASSERT_EQ(t.engine.history.size(), 2U);
  EXPECT_EQ(t.engine.history[1].kind, aio::operation::flush);
  EXPECT_EQ(this->finish().size(), 3U);
}

// What was acknowledged may be gone, and no later flush says so.
TYPED_TEST(taken_over, remembers_that_a_flush_had_failed) {
  auto& t = this->made;
  auto before = this->took({this->write(1), make_request(operation::flush, 2, 0, {})});
  before.fail();
  EXPECT_THAT(this->finish(), ElementsAre(std::pair(1, error), std::pair(2, error)));
  EXPECT_TRUE(t.engine.history.empty());
  EXPECT_TRUE(t.device.flush_failed.load());
}

TYPED_TEST(taken_over, leaves_a_journal_for_the_next_one) {
  auto& t = this->made;
  (void)this->took({this->write(1), this->write(2)});
  t.put(this->write(3));
  t.pass();
  t.engine.complete(1);
  t.pass();
  ring::shared_journal::bind<wire::request> next(t.journal_bytes(), t.front->size());
  ASSERT_EQ(next.open({}), ring::journal_finding::usable);
  std::vector<std::uint64_t> ids;
  for (const std::uint32_t place : next.outstanding()) {
    ids.push_back(next.request(place).id);
  }
  EXPECT_THAT(ids, ElementsAre(1, 3));
  (void)this->finish();
}

// --- what is refused before anything is done ---

TYPED_TEST(taken_over, refuses_a_ring_that_cannot_be_the_journals) {
  auto& t = this->made;
  (void)this->took({this->write(1), this->write(2)});
  for (const std::uint32_t producer : {0U, 1U, 33U, 0xffff'ffffU}) {
    *reinterpret_cast<std::uint32_t*>(t.bytes().data()) = producer;
    EXPECT_THAT(this->refusal(), HasSubstr("does not fit its journal")) << producer;
  }
  EXPECT_TRUE(t.engine.history.empty());
  EXPECT_TRUE(t.responses().empty());
}

TYPED_TEST(taken_over, refuses_a_journal_that_is_of_no_use) {
  auto& t = this->made;
  EXPECT_THAT(this->refusal(), HasSubstr("was not finished"));
  ring::shared_journal::bind<wire::request>(t.journal_bytes(), t.front->size())
      .begin(std::as_bytes(std::span("another image", 13)), 0);
  EXPECT_THAT(this->refusal(), HasSubstr("belongs to another connection"));
  auto before = this->took({this->write(1)});
  before.answered(this->place_of(0), 5);
  EXPECT_THAT(this->refusal(), HasSubstr("contradict each other"));
}

// --- what a queue writes down by itself ---

TYPED_TEST(taken_over, is_prepared_by_a_queue_that_learns_of_a_failed_flush) {
  auto& t = this->made;
  t.take_over = false;
  t.put(make_request(operation::flush, 1, 0, {}));
  t.pass();
  t.engine.complete(0, -EIO);
  t.pass();
  ring::shared_journal::bind<wire::request> next(t.journal_bytes(), t.front->size());
  ASSERT_EQ(next.open({}), ring::journal_finding::usable);
  EXPECT_TRUE(next.failed());
  EXPECT_TRUE(next.outstanding().empty());
}

TYPED_TEST(taken_over, is_prepared_by_a_queue_of_a_device_with_a_failed_flush) {
  auto& t = this->made;
  t.take_over = false;
  t.device.flush_failed = true;
  (void)t.queue();
  ring::shared_journal::bind<wire::request> next(t.journal_bytes(), t.front->size());
  ASSERT_EQ(next.open({}), ring::journal_finding::usable);
  EXPECT_TRUE(next.failed());
}

}  // namespace
