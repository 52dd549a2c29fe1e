// SPDX-License-Identifier: MIT
// The pass of a block queue, against scripted surroundings: what is answered when, in which order,
// with what, and how many calls it took.
#include "pvring/blk/queue.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "queue_fixture.hpp"

namespace {

using namespace pvring;
using namespace pvring::test;
using wire::abi;
namespace operation = wire::operation;

constexpr std::int16_t okay = 0;
constexpr std::int16_t error = -1;
constexpr std::int16_t not_supported = -2;

template <class Q>
class every_queue : public testing::Test {
 protected:
  Q made;
};
using combinations = testing::Types<queue_under_test<abi::x86_64, grant::batched_copy>,
                                    queue_under_test<abi::x86_64, grant::map_each>,
                                    queue_under_test<abi::x86_64, grant::persistent_pool>,
                                    queue_under_test<abi::x86_32, grant::batched_copy>,
                                    queue_under_test<abi::x86_32, grant::map_each>,
                                    queue_under_test<abi::x86_32, grant::persistent_pool>>;
TYPED_TEST_SUITE(every_queue, combinations);

TYPED_TEST(every_queue, answers_with_id_operation_and_status_of_the_request) {
  auto& t = this->made;
  for (const std::uint64_t id :
       {std::uint64_t{0}, std::uint64_t{0x1122334455667788}, ~std::uint64_t{0}}) {
    const auto read = t.answer_to(make_request(operation::read, id, 8, {page(1), page(2, 3, 5)}));
    EXPECT_EQ(read.id, id);
    EXPECT_EQ(read.operation, operation::read);
    EXPECT_EQ(read.status, okay);
    const auto write = t.answer_to(make_request(operation::write, id, 16, {page(3)}));
    EXPECT_EQ(write.id, id);
    EXPECT_EQ(write.operation, operation::write);
    EXPECT_EQ(write.status, okay);
  }
  ASSERT_GE(t.engine.history.size(), 2U);
  EXPECT_EQ(t.engine.history[0].offset, 8U * 512);
  EXPECT_EQ(t.engine.history[0].length, 4096U + 3 * 512);
  EXPECT_EQ(t.engine.history[1].first_byte, 3);
}

// Case 23.
TYPED_TEST(every_queue, says_not_supported_to_unknown_operations_and_touches_nothing) {
  auto& t = this->made;
  t.device.discard_granularity = 0;
  t.device.flush = false;
  t.device.max_indirect_segments = 0;
  for (const std::uint8_t op : std::initializer_list<std::uint8_t>{2, 3, 4, 5, 6, 7, 200, 255}) {
    const auto answer = t.answer_to(make_request(op, 0x1122334455667788, 0, {page(1)}));
    EXPECT_EQ(answer.id, 0x1122334455667788U);
    EXPECT_EQ(answer.operation, op) << "an operation that is not offered is echoed as it was sent";
    EXPECT_EQ(answer.status, not_supported);
  }
  EXPECT_TRUE(t.engine.history.empty());
  EXPECT_TRUE(t.mapper.maps.empty());
  EXPECT_TRUE(t.mapper.copy_calls.empty());
}

// Cases 29, 41: each malformed request is answered once, at once, and the queue loses no room.
TYPED_TEST(every_queue, answers_a_ring_full_of_malformed_requests_and_then_a_good_one) {
  auto& t = this->made;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t id = 0; id < t.front->size(); ++id) {
      t.put(id % 2 == 0 ? make_request(operation::write, id, 0, {})
                        : make_request(operation::read, id, 0, {page(1, 5, 2)}));
    }
    t.pass();
    const auto answers = t.responses();
    ASSERT_EQ(answers.size(), t.front->size());
    for (std::uint64_t id = 0; id < answers.size(); ++id) {
      EXPECT_EQ(answers[id].id, id);
      EXPECT_EQ(answers[id].status, error);
    }
  }
  EXPECT_EQ(t.answer_to(make_request(operation::read, 5, 0, {page(1)})).status, okay);
  EXPECT_EQ(t.queue().counters().refused.get(), 3 * t.front->size());
}

// Case 24: the refused segment's neighbours in the request are untouched as well.
TYPED_TEST(every_queue, maps_and_copies_nothing_of_a_request_with_a_bad_segment) {
  auto& t = this->made;
  EXPECT_EQ(t.answer_to(make_request(operation::write, 1, 0, {page(1), page(2, 1, 0)})).status,
            error);
  EXPECT_EQ(t.answer_to(make_request(operation::write, 1, 0, {page(1, 0, 255)})).status, error);
  EXPECT_EQ(t.answer_to(make_request(operation::read, 1, 993, {page(1)})).status, error);
  EXPECT_TRUE(t.mapper.maps.empty());
  EXPECT_TRUE(t.mapper.copy_calls.empty());
}

// Case 26.
TYPED_TEST(every_queue, takes_0_1_11_and_12_segments_as_the_format_says) {
  auto& t = this->made;
  for (const std::size_t segments : {0UL, 1UL, 11UL, 12UL}) {
    std::vector<wire::segment> list;
    for (std::size_t i = 0; i < segments; ++i) {
      list.push_back(page(static_cast<std::uint32_t>(i + 1)));
    }
    EXPECT_EQ(t.answer_to(make_request(operation::read, 9, 0, list)).status,
              segments == 1 || segments == 11 ? okay : error);
  }
}

// Case 42, 46: a request whose pages cannot be had is answered exactly once, and the next one
// works.
TYPED_TEST(every_queue, answers_once_when_grants_fail_and_goes_on) {
  auto& t = this->made;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(
        t.answer_to(make_request(operation::write, 3, 0, {page(1), page(999), page(2)})).status,
        error);
  }
  EXPECT_EQ(t.answer_to(make_request(operation::write, 4, 0, {page(1), page(2)})).status, okay);
  t.queue().clear();
  EXPECT_EQ(t.mapper.mapped_pages, 0U);
}

TYPED_TEST(every_queue, fails_only_the_request_whose_io_failed) {
  auto& t = this->made;
  for (std::uint64_t id = 0; id < 4; ++id) {
    t.put(make_request(operation::write, id, id * 8, {page(static_cast<std::uint32_t>(id + 1))}));
  }
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 4U);
  t.engine.complete(2, -EIO);
  t.engine.complete_all();
  t.pass();
  const auto answers = t.responses();
  ASSERT_EQ(answers.size(), 4U);
  for (const auto& answer : answers) {
    EXPECT_EQ(answer.status, answer.id == 2 ? error : okay);
  }
}

// Case 98: counters go back to zero whatever fails.
TYPED_TEST(every_queue, has_nothing_in_flight_after_1000_requests_of_which_half_failed) {
  auto& t = this->made;
  std::size_t answered = 0;
  for (std::uint64_t id = 0; id < 1000; ++id) {
    t.put(
        make_request(id % 3 == 0 ? operation::read : operation::write, id, 0, {page(1), page(2)}));
    t.pass();
    while (!t.engine.flying.empty()) {
      t.engine.complete(0, id % 2 == 0 ? -EIO : 0);
    }
    t.pass();
    answered += t.responses().size();
  }
  EXPECT_EQ(answered, 1000U);
  EXPECT_EQ(t.queue().leases(), 0U);
  t.queue().stop();
  t.pass();
  EXPECT_TRUE(t.queue().idle());
}

// Cases 16, 20, 22: more than a ring holds is a protocol error, told once; exactly full is legal;
// so it is near the wrap.
TYPED_TEST(every_queue, stops_for_good_when_the_producer_index_is_impossible) {
  for (const std::uint32_t start : {0U, 0xfffffff0U, 0x7ffffff0U}) {
    for (const std::uint32_t beyond : {33U, 34U, 0x80000000U, 0xffffffffU}) {
      TypeParam t(1, start);
      for (std::uint64_t id = 0; id < 3; ++id) {
        t.put(make_request(operation::read, id, 0, {page(1)}));
      }
      t.pass();
      *reinterpret_cast<std::uint32_t*>(t.bytes().data()) = start + beyond;
      t.pass();
      EXPECT_EQ(t.queue().broken(), protocol_error::request_producer_overrun) << beyond;
      EXPECT_FALSE(t.queue().idle()) << "three reads are in flight";
      t.engine.complete_all();
      t.pass();
      EXPECT_TRUE(t.queue().idle());
      EXPECT_EQ(t.queue().counters().requests.get(), 3U);
      EXPECT_EQ(t.pass(), 0U) << "no spin";
    }
    TypeParam full(1, start);
    for (std::uint64_t id = 0; id < 32; ++id) {
      full.put(make_request(operation::read, id, 0, {page(1)}));
    }
    full.pass();
    EXPECT_EQ(full.queue().broken(), protocol_error::none);
    EXPECT_EQ(full.engine.flying.size(), 32U);
    full.engine.complete_all();
    full.pass();
  }
}

// Case 83: completion inside submission sees the request as taken, and the frontend is asked for
// the next one.
TYPED_TEST(every_queue, answers_in_the_same_pass_what_completes_at_once) {
  auto& t = this->made;
  t.engine.complete_at_once = true;
  t.put(make_request(operation::read, 1, 0, {page(1)}));
  t.pass();
  EXPECT_EQ(t.responses().size(), 1U);
  EXPECT_EQ(t.events.notified, 1);
}

// Case 14: no byte but those of the three fields is written, under either ABI.
TYPED_TEST(every_queue, writes_nothing_but_the_fields_of_a_response) {
  auto& t = this->made;
  t.put(make_request(operation::read, 0x0102030405060708, 0, {page(1)}));
  auto slot = t.bytes().subspan(64, TypeParam::protocol_type::slot_bytes);
  t.pass();  // the request is private by now
  std::fill(slot.begin(), slot.end(), std::byte{0xee});
  t.engine.complete_all();
  t.pass();
  for (std::size_t i = 0; i < slot.size(); ++i) {
    const bool field = i < 9 || i == 10 || i == 11;  // id, operation, status; byte 9 is a hole
    EXPECT_EQ(slot[i] == std::byte{0xee}, !field) << i;
  }
}

TYPED_TEST(every_queue, expands_indirect_requests_and_echoes_the_inner_operation) {
  auto& t = this->made;
  std::vector<wire::segment> segments;
  for (std::uint32_t i = 0; i < 100; ++i) {
    segments.push_back(page(i + 1));
  }
  const auto answer = t.answer_to(t.make_indirect(operation::write, 7, 16, segments));
  EXPECT_EQ(answer.operation, operation::write);
  EXPECT_EQ(answer.status, okay);
  ASSERT_EQ(t.engine.history.size(), 1U);
  EXPECT_EQ(t.engine.history[0].length, 100U * 4096);
  EXPECT_EQ(t.engine.history[0].buffers, 1U) << "pages in a row are one buffer";
}

// Cases 28, 127.
TYPED_TEST(every_queue, refuses_bad_indirect_requests_before_any_data_page_is_touched) {
  auto& t = this->made;
  const std::vector<wire::segment> one{page(1)};
  for (const std::uint8_t inner :
       {operation::flush, operation::discard, operation::indirect, std::uint8_t{200}}) {
    const auto answer = t.answer_to(t.make_indirect(inner, 1, 0, one));
    EXPECT_EQ(answer.operation, inner) << "the frontend compares with the inner operation";
    EXPECT_EQ(answer.status, error);
  }
  for (const int count : {0, 257, 513, 4097, 0xffff}) {
    auto request = t.make_indirect(operation::read, 1, 0, one);
    request.nr_segments = untrusted(static_cast<std::uint16_t>(count));
    EXPECT_EQ(t.answer_to(request).status, error) << count;
  }
  EXPECT_TRUE(t.mapper.maps.empty());
  EXPECT_TRUE(t.mapper.copy_calls.empty());
  EXPECT_EQ(t.answer_to(t.make_indirect(operation::read, 1, 0, {page(1, 3, 2)})).status, error);
  EXPECT_EQ(t.answer_to(t.make_indirect(operation::read, 1, 999, one)).status, error);
  auto bad_page = t.make_indirect(operation::read, 1, 0, one);
  bad_page.indirect_grefs[0] = 12345;
  EXPECT_EQ(t.answer_to(bad_page).status, error);
  EXPECT_EQ(t.answer_to(t.make_indirect(operation::read, 1, 0, one)).status, okay);
}

TYPED_TEST(every_queue, expands_indirect_requests_by_mapping_where_the_platform_does_not_copy) {
  auto& t = this->made;
  if constexpr (!std::is_same_v<TypeParam, queue_under_test<abi::x86_64, grant::batched_copy>> &&
                !std::is_same_v<TypeParam, queue_under_test<abi::x86_32, grant::batched_copy>>) {
    t.mapper.copies = false;
    const auto answer =
        t.answer_to(t.make_indirect(operation::read, 7, 16, {page(1), page(2, 1, 1)}));
    EXPECT_EQ(answer.status, okay);
    EXPECT_EQ(t.engine.history.at(0).length, 4096U + 512);
    t.queue().clear();
    EXPECT_EQ(t.mapper.mapped_pages, 0U);
  }
}

TYPED_TEST(every_queue, shares_the_tables_of_indirect_requests_among_all_slots) {
  auto& t = this->made;
  t.grants.budget_bytes = 256 * 4096 * 3;
  t.grants.quota_pages = 256 * 3;
  std::vector<wire::segment> segments;
  for (std::uint32_t i = 0; i < 256; ++i) {
    segments.push_back(page(i + 1, 0, 0));
  }
  for (std::uint64_t id = 0; id < 32; ++id) {
    t.put(t.make_indirect(operation::read, id, 0, segments));
  }
  std::set<std::uint64_t> answered;
  for (int i = 0; i < 200 && answered.size() < 32; ++i) {
    t.pass();
    t.engine.complete_all();
    for (const auto& answer : t.responses()) {
      EXPECT_EQ(answer.status, okay);
      EXPECT_TRUE(answered.insert(answer.id).second);
    }
  }
  EXPECT_EQ(answered.size(), 32U);
}

TYPED_TEST(every_queue, answers_a_barrier_whose_pages_cannot_be_had_and_goes_on) {
  auto& t = this->made;
  t.device.barrier = true;
  t.put(make_request(operation::write_barrier, 1, 0, {page(999)}));
  t.put(make_request(operation::write, 2, 0, {page(1)}));
  for (int i = 0; i < 6; ++i) {
    t.pass();
    t.engine.complete_all();
  }
  const auto answers = t.responses();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].status, error);
  EXPECT_EQ(answers[1].status, okay);
  t.queue().stop();
  t.pass();
  EXPECT_TRUE(t.queue().idle());
}

TYPED_TEST(every_queue, answers_reads_when_it_reaps_before_it_takes) {
  auto& t = this->made;
  t.reap_after_submit = false;
  for (std::uint64_t id = 0; id < 8; ++id) {
    t.put(make_request(id % 2 == 0 ? operation::read : operation::write, id, 0, {page(1)}));
    t.pass();
    t.engine.complete_all();
  }
  t.pass();
  t.pass();
  EXPECT_EQ(t.responses().size(), 8U);
  EXPECT_EQ(t.engine.history.size(), 8U);
}

// Case 116: Linux tells nobody of a failed flush and flushes no more, so writes are refused: those
// it does tell of.
TYPED_TEST(every_queue, refuses_writes_after_a_flush_has_failed) {
  auto& t = this->made;
  EXPECT_EQ(t.answer_to(make_request(operation::write, 1, 0, {page(1)})).status, okay);
  t.put(make_request(operation::flush, 2, 0, {}));
  t.pass();
  t.engine.complete(0, -EIO);
  t.pass();
  EXPECT_EQ(t.responses().at(0).status, error);
  EXPECT_EQ(t.answer_to(make_request(operation::write, 3, 0, {page(1)})).status, error);
  EXPECT_EQ(t.answer_to(t.make_indirect(operation::write, 4, 0, {page(1)})).status, error);
  EXPECT_EQ(t.answer_to(make_request(operation::flush, 5, 0, {page(1)})).status, error);
  EXPECT_EQ(t.answer_to(make_request(operation::read, 6, 0, {page(1)})).status, okay);
}

// Case 116: the storage forgets what it lost and says that all is well.
TYPED_TEST(every_queue, never_reports_a_flush_as_done_after_one_has_failed) {
  auto& t = this->made;
  t.put(make_request(operation::flush, 1, 0, {}));
  t.put(make_request(operation::flush, 2, 0, {}));
  t.pass();
  t.engine.complete(0, -EIO);
  t.engine.complete(0, 0);  // was under way as well
  t.pass();
  const auto both = t.responses();
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].status, error);
  EXPECT_EQ(both[1].status, error);
  EXPECT_EQ(t.answer_to(make_request(operation::flush, 3, 0, {})).status, error);
}

TYPED_TEST(every_queue, runs_no_write_that_was_waiting_when_a_flush_failed) {
  auto& t = this->made;
  t.device.barrier = true;
  t.put(make_request(operation::flush, 1, 0, {}));
  t.put(make_request(operation::write_barrier, 2, 0, {page(1)}));
  t.put(make_request(operation::write, 3, 8, {page(2)}));
  t.put(make_request(operation::flush, 4, 0, {}));
  t.put(make_request(operation::read, 5, 8, {page(3)}));
  t.pass();
  ASSERT_EQ(t.engine.history.size(), 1U) << "the rest waits behind the barrier";
  t.engine.complete(0, -EIO);
  t.pass();
  t.pass();
  t.engine.complete_all();
  t.pass();
  std::map<std::uint64_t, std::int16_t> status;
  for (const auto& answer : t.responses()) {
    status[answer.id] = answer.status;
  }
  EXPECT_EQ(status, (std::map<std::uint64_t, std::int16_t>{
                        {1, error}, {2, error}, {3, error}, {4, error}, {5, okay}}));
  EXPECT_EQ(t.engine.history.size(), 2U) << "the flush and the read";
}

using copying = queue_under_test<abi::x86_64, grant::batched_copy>;

TEST(copying_queue, needs_one_call_each_way_one_submission_and_one_notification_for_32_requests) {
  copying t;
  t.engine.complete_at_once = true;
  for (std::uint64_t id = 0; id < 32; ++id) {
    t.put(make_request(id % 2 == 0 ? operation::read : operation::write, id, id * 8,
                       {page(static_cast<std::uint32_t>(id + 1))}));
  }
  t.pass();
  EXPECT_EQ(t.responses().size(), 32U);
  EXPECT_EQ(t.mapper.copy_calls.size(), 2U);
  EXPECT_EQ(t.engine.batches, (std::vector<std::size_t>{32}));
  EXPECT_EQ(t.events.notified, 1);
}

TEST(copying_queue, reads_the_segments_of_all_indirect_requests_with_one_more_call) {
  copying t;
  t.engine.complete_at_once = true;
  for (std::uint32_t id = 0; id < 8; ++id) {
    t.put(t.make_indirect(operation::read, id, 0, {page(id + 1), page(id + 20)}, 290 + id));
  }
  t.pass();
  EXPECT_EQ(t.responses().size(), 8U);
  EXPECT_EQ(t.mapper.copy_calls.size(), 2U);
  EXPECT_EQ(t.mapper.copy_calls[0].size(), 8U);
  EXPECT_EQ(t.mapper.copy_calls[0][0].length, 16) << "two segments, not the whole page";
}

TEST(copying_queue, takes_no_more_while_requests_wait_for_buffers_and_keeps_their_order) {
  copying t;
  t.device.max_indirect_segments = 0;
  t.grants.budget_bytes = 12 * 4096;
  std::vector<wire::segment> eleven;
  for (std::uint32_t i = 1; i <= 11; ++i) {
    eleven.push_back(page(i));
  }
  for (std::uint64_t id = 0; id < 5; ++id) {
    t.put(make_request(operation::write, id, id * 88, eleven));
  }
  t.pass();
  EXPECT_EQ(t.engine.flying.size(), 1U);
  t.put(make_request(operation::read, 99, 0, {page(1)}));
  t.pass();
  EXPECT_EQ(t.queue().counters().requests.get(), 5U) << "the sixth stays in the ring";
  for (int i = 0; i < 10; ++i) {
    t.engine.complete_all();
    t.pass();
  }
  ASSERT_EQ(t.engine.history.size(), 6U);
  for (std::uint64_t id = 0; id < 5; ++id) {
    EXPECT_EQ(t.engine.history[id].offset, id * 88 * 512);
  }
  EXPECT_EQ(t.responses().size(), 6U);
}

// Case 21.
TEST(copying_queue, takes_no_more_than_its_budget_and_the_rest_later) {
  copying t;
  for (std::uint64_t id = 0; id < 32; ++id) {
    t.put(make_request(operation::read, id, 0, {page(1)}));
  }
  t.pass(5);
  EXPECT_EQ(t.engine.flying.size(), 5U);
  t.pass(5);
  EXPECT_EQ(t.engine.flying.size(), 10U);
  t.pass(1000);
  EXPECT_EQ(t.engine.flying.size(), 32U);
  t.engine.complete_all();
  t.pass();
}

// Case 126: one response, when both the earlier writes are durable and the data is written; a
// failed flush fails it.
TEST(copying_queue, flushes_before_it_writes_the_data_of_a_flush) {
  copying t;
  t.put(make_request(operation::flush, 1, 0, {page(1), page(2)}));
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 1U);
  EXPECT_EQ(t.engine.flying[0].kind, aio::operation::flush);
  t.engine.complete(0);
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 1U);
  EXPECT_EQ(t.engine.flying[0].kind, aio::operation::write);
  EXPECT_TRUE(t.responses().empty());
  t.engine.complete(0);
  t.pass();
  EXPECT_EQ(t.responses().at(0).status, okay);

  t.put(make_request(operation::flush, 2, 0, {page(1)}));
  t.pass();
  t.engine.complete(0, -EIO);
  t.pass();
  EXPECT_EQ(t.responses().at(0).status, error);
  EXPECT_TRUE(t.engine.flying.empty()) << "nothing is written after a flush that failed";
}

TEST(copying_queue, reports_a_failed_flush_as_an_error_and_never_as_not_supported) {
  copying t;
  t.put(make_request(operation::flush, 2, 0, {}));
  t.pass();
  t.engine.complete(0, -EOPNOTSUPP);
  t.pass();
  EXPECT_EQ(t.responses().at(0).status, error);
}

TEST(copying_queue, says_that_discard_is_not_supported_where_the_storage_finds_out_late) {
  copying t;
  t.put(make_discard(1, 0, 8));
  t.pass();
  t.engine.complete(0, -EOPNOTSUPP);
  t.pass();
  EXPECT_EQ(t.responses().at(0).status, not_supported);
}

TEST(copying_queue, ignores_the_secure_flag_of_a_discard_as_it_offers_no_such_thing) {
  copying t;
  EXPECT_EQ(t.answer_to(make_discard(1, 0, 8, wire::discard_secure)).status, okay);
  EXPECT_EQ(t.engine.history.at(0).kind, aio::operation::discard);
}

class barriers : public testing::Test {
 protected:
  barriers() { t.device.barrier = true; }
  copying t;
};

// Case 37.
TEST_F(barriers, wait_for_everything_before_and_hold_everything_after) {
  t.put(make_request(operation::write, 1, 0, {page(1)}));
  t.put(make_request(operation::write_barrier, 2, 8, {page(2)}));
  t.put(make_request(operation::write, 3, 16, {page(3)}));
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 1U);
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 1U) << "the barrier waits for the first write";
  t.engine.complete(0);
  for (const auto kind : {aio::operation::flush, aio::operation::write, aio::operation::flush}) {
    t.pass();
    t.pass();
    ASSERT_EQ(t.engine.flying.size(), 1U);
    EXPECT_EQ(t.engine.flying[0].kind, kind);
    t.engine.complete(0);
  }
  t.pass();
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 1U);
  EXPECT_EQ(t.engine.flying[0].first_byte, 3);
  t.engine.complete(0);
  t.pass();
  const auto answers = t.responses();
  ASSERT_EQ(answers.size(), 3U);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i].id, i + 1);
    EXPECT_EQ(answers[i].status, okay);
  }
}

TEST_F(barriers, that_fail_are_answered_with_an_error_and_let_the_rest_go_on) {
  t.put(make_request(operation::write_barrier, 2, 8, {page(2)}));
  t.put(make_request(operation::write, 3, 16, {page(3)}));
  t.pass();
  t.engine.complete(0);  // the flush before
  t.pass();
  t.engine.complete(0, -EIO);  // the data
  t.pass();
  t.pass();
  ASSERT_EQ(t.engine.flying.size(), 1U);
  t.engine.complete(0);
  t.pass();
  const auto answers = t.responses();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].status, error);
  EXPECT_EQ(answers[1].status, okay);
}

TEST_F(barriers, may_be_empty_and_alone) {
  EXPECT_EQ(t.answer_to(make_request(operation::write_barrier, 1, 0, {})).status, okay);
  EXPECT_EQ(t.engine.history.at(0).kind, aio::operation::flush);
}

TEST_F(barriers, wait_for_indirect_requests_before_them_even_bad_ones) {
  t.put(t.make_indirect(operation::write, 1, 0, {page(1, 7, 0)}));
  t.put(make_request(operation::write_barrier, 2, 8, {page(2)}));
  for (int i = 0; i < 8; ++i) {
    t.pass();
    t.engine.complete_all();
  }
  const auto answers = t.responses();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].status, error);
  EXPECT_EQ(answers[1].status, okay);
}

// Case 92, 93: stopped, nothing is taken, and what was taken is finished and answered.
TEST(stopped_queue, finishes_what_it_took_and_leaves_the_rest_in_the_ring) {
  copying t;
  for (std::uint64_t id = 0; id < 5; ++id) {
    t.put(make_request(operation::write, id, 0, {page(1)}));
  }
  t.pass();
  t.queue().stop();
  for (std::uint64_t id = 5; id < 10; ++id) {
    t.put(make_request(operation::write, id, 0, {page(1)}));
  }
  t.pass();
  EXPECT_FALSE(t.queue().idle());
  EXPECT_EQ(t.engine.flying.size(), 5U);
  t.engine.complete(0, -EIO);
  t.engine.complete_all();
  t.pass();
  EXPECT_TRUE(t.queue().idle());
  EXPECT_EQ(t.responses().size(), 5U);
}

TEST(stopped_queue, says_so_once) {
  copying t;
  static int calls = 0;
  calls = 0;
  blk::queue_setup setup{.ring = t.bytes()};
  setup.attention = [](void*, protocol_error why) noexcept {
    calls += why == protocol_error::none ? 1 : 100;
  };
  copying::queue_type queue(setup, {.max_pieces = 256}, t.device, t.mapper, t.events, t.engine);
  queue.service(10);
  EXPECT_EQ(calls, 0);
  queue.stop();
  queue.service(10);
  queue.service(10);
  EXPECT_EQ(calls, 1);
}

}  // namespace
