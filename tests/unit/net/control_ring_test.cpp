// SPDX-License-Identifier: MIT
// A guest that sets its hashes and keeps its pages mapped through the control ring, answered in
// every case, and one that does everything wrong. Queues are tables here, with a thread or without.
#include "pvring/net/control_ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "pvring/ring/front_ring.hpp"
#include "pvring/wait/served.hpp"
#include "unit/grant/scripted_mapper.hpp"
#include "unit/ring/ring_memory.hpp"

namespace pvring::net {
namespace {

namespace netif = protocol::netif;
namespace type = netif::control_type;
using wire = netif::control_wire;
using netif::control_status;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Counts what is sent, and never fires.
class silent_events {
 public:
  int notified = 0;
  int fd() noexcept { return -1; }
  platform::port bind(domain_id /*domain*/, platform::port remote) { return remote; }
  void unbind(platform::port /*which*/) noexcept {}
  void notify(platform::port /*which*/) noexcept { ++notified; }
  std::optional<platform::port> pending() noexcept { return std::nullopt; }
  void unmask(platform::port /*which*/) noexcept {}
};

/// Shows the peer what was written to a mapped page, as a platform does.
class shared_mapper : public test::scripted_mapper {
 public:
  platform::map_result map(domain_id domain, std::span<const platform::grant_reference> references,
                           platform::access access) noexcept {
    const platform::map_result result = scripted_mapper::map(domain, references, access);
    if (result.pages && access == platform::access::read_write) {
      written_ = references[0];
    }
    return result;
  }
  int unmap(platform::mapping pages) noexcept {
    if (written_) {
      std::memcpy(peer[*written_].bytes.data(), pages.address, platform::page_size);
      written_.reset();
    }
    return scripted_mapper::unmap(pages);
  }

 private:
  std::optional<platform::grant_reference> written_;
};

std::vector<std::uint32_t> first_of(const steering& s, std::size_t count) {
  const std::span<const std::uint32_t> some = std::span(s.mapping).first(count);
  return {some.begin(), some.end()};
}

constexpr platform::grant_reference page_ref = 900;
constexpr platform::port kick = 5;

struct Control : ::testing::Test {
  using ring_under_test = control_ring<shared_mapper, silent_events>;
  static_assert(wait::served<ring_under_test>);

  void connect(bool hashing = true, std::uint32_t mapped = 8, std::uint32_t queues = 4) {
    front.emplace(memory.span());
    mapper.peer[page_ref];
    control_setup setup;
    setup.domain = 3;
    setup.ring = memory.span();
    setup.port = kick;
    setup.queues = queues;
    setup.hashing = hashing;
    setup.mapped_pages = mapped;
    setup.order = [](void* who, std::uint32_t queue, grant::mapping_order& order) noexcept {
      return static_cast<Control*>(who)->take_order(queue, order);
    };
    setup.attention = [](void* who, protocol_error why) noexcept {
      static_cast<Control*>(who)->told.push_back(why);
    };
    setup.who = this;
    table.emplace(queue_mapper, domain_id{3}, mapped);
    control.emplace(setup, shared, mapper, events);
  }

  bool take_order(std::uint32_t queue, grant::mapping_order& order) noexcept {
    ordered_from.push_back(queue);
    if (refuse_orders) {
      return false;
    }
    if (hold_orders) {
      held = &order;
    } else {
      table->perform(order);
      order.finished(order);
    }
    return true;
  }

  void put(std::uint16_t what, std::uint32_t a = 0, std::uint32_t b = 0, std::uint32_t c = 0) {
    wire::request r;
    r.id = ++id;
    r.type = what;
    r.data = {untrusted(a), untrusted(b), untrusted(c)};
    front->put(r);
    (void)front->publish();
  }
  void serve() {
    while (control->service(16) != 0) {
    }
  }
  std::vector<wire::response> answers() {
    std::vector<wire::response> out;
    front->take(128, [&](const wire::response& r) { out.push_back(r); });
    EXPECT_FALSE(front->arm());
    return out;
  }
  // One request, and its answer.
  wire::response ask(std::uint16_t what, std::uint32_t a = 0, std::uint32_t b = 0,
                     std::uint32_t c = 0) {
    put(what, a, b, c);
    serve();
    const auto all = answers();
    EXPECT_EQ(all.size(), 1U);
    if (all.empty()) {
      return {};
    }
    EXPECT_EQ(all[0].id, id);
    EXPECT_EQ(all[0].type, what);
    return all[0];
  }
  control_status status(std::uint16_t what, std::uint32_t a = 0, std::uint32_t b = 0,
                        std::uint32_t c = 0) {
    return static_cast<control_status>(ask(what, a, b, c).status);
  }

  void write_words(const std::vector<std::uint32_t>& words) {
    std::memcpy(mapper.peer[page_ref].bytes.data(), words.data(), words.size() * 4);
  }
  void write_list(const std::vector<netif::grant_entry_layout>& list) {
    std::memcpy(mapper.peer[page_ref].bytes.data(), list.data(), list.size() * sizeof list[0]);
  }
  std::uint16_t entry_status(std::size_t index) {
    netif::grant_entry_layout out;
    std::memcpy(&out, mapper.peer[page_ref].bytes.data() + index * sizeof out, sizeof out);
    return out.status;
  }
  void grant(std::initializer_list<platform::grant_reference> references) {
    for (const auto r : references) {
      queue_mapper.peer[r];
    }
  }
  steering published() {
    steering out;
    EXPECT_TRUE(shared.read(out).has_value());
    return out;
  }

  ring_memory memory;
  std::optional<ring::front_ring<wire>> front;
  shared_mapper mapper;
  test::scripted_mapper queue_mapper;
  silent_events events;
  shared_steering shared;
  std::optional<grant::mapped_grants<test::scripted_mapper>> table;
  std::optional<ring_under_test> control;
  std::vector<std::uint32_t> ordered_from;
  std::vector<protocol_error> told;
  grant::mapping_order* held = nullptr;
  bool hold_orders = false;
  bool refuse_orders = false;
  std::uint16_t id = 0;
};

TEST_F(Control, UnknownRequestsAreNotSupported) {
  connect();
  for (const std::uint16_t unknown :
       std::initializer_list<std::uint16_t>{0, 11, 12, 0x7fff, 0xffff}) {
    EXPECT_EQ(status(unknown, 1, 2, 3), control_status::not_supported) << unknown;
  }
  EXPECT_EQ(control->counters().requests.get(), 5U);
  EXPECT_EQ(control->counters().refused.get(), 5U);
  EXPECT_EQ(events.notified, 5);
}

TEST_F(Control, WhatIsNotOfferedIsNotSupported) {
  connect(false, 0);
  for (std::uint16_t t = type::get_hash_flags; t <= type::delete_grant_mapping; ++t) {
    EXPECT_EQ(status(t), control_status::not_supported) << t;
  }
  EXPECT_THAT(ordered_from, IsEmpty());
  EXPECT_THAT(mapper.copy_calls, IsEmpty());
}

TEST_F(Control, FlagsNeedAnAlgorithm) {
  connect();
  EXPECT_EQ(status(type::get_hash_flags), control_status::not_supported);
  EXPECT_EQ(status(type::set_hash_flags, 1), control_status::invalid_parameter);
  EXPECT_EQ(status(type::set_hash_algorithm, 2), control_status::invalid_parameter);
  EXPECT_EQ(status(type::set_hash_algorithm, 1), control_status::success);
  EXPECT_EQ(ask(type::get_hash_flags).data, netif::all_hash_flags);
  EXPECT_FALSE(published().hashes());
  EXPECT_EQ(status(type::set_hash_flags, 16), control_status::invalid_parameter);
  EXPECT_EQ(status(type::set_hash_flags, 15), control_status::success);
  EXPECT_TRUE(published().hashes());
  EXPECT_EQ(status(type::set_hash_algorithm, 0), control_status::success);
  EXPECT_FALSE(published().hashes());
}

TEST_F(Control, KeyIsReadFromThePageThatIsNamed) {
  for (const bool copies : {true, false}) {
    mapper.copies = copies;
    connect();
    write_words({0x04030201, 0x08070605, 0xffffffff});
    EXPECT_EQ(status(type::set_hash_key, page_ref, 6), control_status::success);
    EXPECT_EQ(published().key, (hash_key{1, 2, 3, 4, 5, 6}));
    // A shorter one is filled with zeros, and none clears it.
    EXPECT_EQ(status(type::set_hash_key, page_ref, 1), control_status::success);
    EXPECT_EQ(published().key, hash_key{1});
    EXPECT_EQ(status(type::set_hash_key, 12345, 0), control_status::success);
    EXPECT_EQ(published().key, hash_key{});
    EXPECT_EQ(mapper.mapped_pages, 0U);
  }
}

TEST_F(Control, AKeyThatCannotBeTakenLeavesTheOldOne) {
  connect();
  write_words({7});
  ASSERT_EQ(status(type::set_hash_key, page_ref, 4), control_status::success);
  EXPECT_EQ(status(type::set_hash_key, page_ref, 41), control_status::buffer_overflow);
  EXPECT_EQ(status(type::set_hash_key, page_ref, 0xffffffff), control_status::buffer_overflow);
  EXPECT_EQ(status(type::set_hash_key, 12345, 40), control_status::invalid_parameter);
  mapper.copy_errors = {EINVAL};
  EXPECT_EQ(status(type::set_hash_key, page_ref, 40), control_status::invalid_parameter);
  mapper.copies = false;
  EXPECT_EQ(status(type::set_hash_key, 12345, 40), control_status::invalid_parameter);
  EXPECT_EQ(published().key, hash_key{7});
}

TEST_F(Control, MappingIsSetInPartsAndCheckedWhole) {
  connect();
  EXPECT_EQ(ask(type::get_hash_mapping_size).data, most_hash_mappings);
  write_words({1, 2, 3});
  EXPECT_EQ(status(type::set_hash_mapping, page_ref, 3, 0), control_status::invalid_parameter)
      << "the table has no size yet";
  EXPECT_EQ(status(type::set_hash_mapping_size, 129), control_status::invalid_parameter);
  EXPECT_EQ(status(type::set_hash_mapping_size, 6), control_status::success);
  EXPECT_EQ(status(type::set_hash_mapping, page_ref, 3, 2), control_status::success);
  EXPECT_EQ(status(type::set_hash_mapping, 12345, 0, 6), control_status::success);
  steering now = published();
  EXPECT_EQ(now.mappings, 6U);
  EXPECT_THAT(first_of(now, 6), ElementsAre(0, 0, 1, 2, 3, 0));

  EXPECT_EQ(status(type::set_hash_mapping, page_ref, 3, 4), control_status::invalid_parameter);
  EXPECT_EQ(status(type::set_hash_mapping, page_ref, 3, 126), control_status::buffer_overflow);
  EXPECT_EQ(status(type::set_hash_mapping, page_ref, 0xffffffff, 2),
            control_status::buffer_overflow);
  EXPECT_EQ(status(type::set_hash_mapping, page_ref, 2, 0xffffffff),
            control_status::buffer_overflow);
  EXPECT_EQ(status(type::set_hash_mapping, 12345, 3, 0), control_status::invalid_parameter);
  write_words({0, 4});
  EXPECT_EQ(status(type::set_hash_mapping, page_ref, 2, 0), control_status::invalid_parameter)
      << "there is no queue 4";
  EXPECT_EQ(published(), now) << "nothing of what was refused is left";

  EXPECT_EQ(status(type::set_hash_mapping_size, 2), control_status::success);
  EXPECT_THAT(first_of(published(), 6), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST_F(Control, TheSameAgainIsNotPublishedAgain) {
  connect();
  ASSERT_EQ(status(type::set_hash_algorithm, 1), control_status::success);
  const auto version = shared.version();
  ASSERT_EQ(status(type::set_hash_algorithm, 1), control_status::success);
  EXPECT_EQ(shared.version(), version);
}

TEST_F(Control, ANewConnectionKnowsNothingOfTheLast) {
  connect();
  ASSERT_EQ(status(type::set_hash_algorithm, 1), control_status::success);
  ASSERT_EQ(status(type::set_hash_flags, 3), control_status::success);
  control.reset();
  connect();
  EXPECT_EQ(published(), steering());
}

TEST_F(Control, PagesAreMappedByTheQueueThatIsNamed) {
  connect();
  EXPECT_EQ(ask(type::get_grant_mapping_size, 3).data, 8U);
  EXPECT_EQ(status(type::get_grant_mapping_size, 4), control_status::invalid_parameter);
  grant({10, 11});
  queue_mapper.peer[12].writable = false;
  write_list({{10, 0, 9}, {11, 0, 9}, {12, netif::grant_read_only, 9}});
  EXPECT_EQ(status(type::add_grant_mapping, 2, page_ref, 3), control_status::success);
  EXPECT_THAT(ordered_from, ElementsAre(2));
  EXPECT_EQ(table->size(), 3U);
  EXPECT_NE(table->find(10, true), nullptr);
  EXPECT_EQ(table->find(12, true), nullptr);
  EXPECT_NE(table->find(12, false), nullptr);
  EXPECT_EQ(entry_status(0), 9U) << "adding writes nothing back";
}

TEST_F(Control, AllAreMappedOrNone) {
  connect();
  grant({10, 11});
  write_list({{10, 0, 0}, {99, 0, 0}, {11, 0, 0}});
  EXPECT_EQ(status(type::add_grant_mapping, 0, page_ref, 3), control_status::invalid_parameter);
  EXPECT_TRUE(table->empty());
  EXPECT_EQ(queue_mapper.mapped_pages, 0U);
  write_list({{10, 0, 0}, {11, 2, 0}});
  EXPECT_EQ(status(type::add_grant_mapping, 0, page_ref, 2), control_status::invalid_parameter)
      << "an unknown flag";
}

TEST_F(Control, DeletingSaysOfEachEntryWhetherItIsGone) {
  for (const bool copies : {true, false}) {
    mapper.copies = copies;
    connect();
    grant({10, 11, 12});
    write_list({{10, 0, 0}, {11, 0, 0}, {12, 0, 0}});
    ASSERT_EQ(status(type::add_grant_mapping, 0, page_ref, 3), control_status::success);
    auto* const busy = table->find(11, false);
    table->use(*busy);
    write_list({{10, 7, 9}, {11, 0, 9}, {55, 0, 9}, {12, 0, 9}});
    const auto answer = ask(type::delete_grant_mapping, 0, page_ref, 4);
    EXPECT_EQ(answer.status, static_cast<std::uint32_t>(control_status::success));
    EXPECT_EQ(answer.data, 2U);
    EXPECT_EQ(entry_status(0), 0U);
    EXPECT_EQ(entry_status(1), 2U) << "in use";
    EXPECT_EQ(entry_status(2), 2U) << "was never added";
    EXPECT_EQ(entry_status(3), 0U);
    EXPECT_EQ(table->size(), 1U);
    table->let_go(*busy);
    control.reset();
  }
}

TEST_F(Control, AGuestThatCannotBeToldIsNotToldSuccess) {
  connect();
  grant({10});
  write_list({{10, 0, 0}});
  ASSERT_EQ(status(type::add_grant_mapping, 0, page_ref, 1), control_status::success);
  mapper.copy_errors = {0, EFAULT};  // it can be read, not written
  const auto answer = ask(type::delete_grant_mapping, 0, page_ref, 1);
  EXPECT_EQ(answer.status, static_cast<std::uint32_t>(control_status::invalid_parameter));
  EXPECT_EQ(answer.data, 1U);
}

TEST_F(Control, ListsThatCannotBeReachNoQueue) {
  connect();
  EXPECT_EQ(status(type::add_grant_mapping, 4, page_ref, 1), control_status::invalid_parameter);
  EXPECT_EQ(status(type::add_grant_mapping, 0, page_ref, 513), control_status::invalid_parameter);
  EXPECT_EQ(status(type::delete_grant_mapping, 0, page_ref, 0xffffffff),
            control_status::invalid_parameter);
  EXPECT_EQ(status(type::add_grant_mapping, 0, 12345, 1), control_status::invalid_parameter);
  EXPECT_EQ(status(type::add_grant_mapping, 0, 12345, 0), control_status::success);
  EXPECT_THAT(ordered_from, IsEmpty());
  refuse_orders = true;
  EXPECT_EQ(status(type::add_grant_mapping, 0, page_ref, 1), control_status::invalid_parameter);
  EXPECT_THAT(ordered_from, ElementsAre(0));
}

TEST_F(Control, NothingIsTakenWhileAQueueHasAnOrder) {
  connect();
  hold_orders = true;
  grant({10});
  write_list({{10, 0, 0}});
  put(type::add_grant_mapping, 1, page_ref, 1);
  put(type::get_hash_mapping_size);
  put(type::add_grant_mapping, 1, page_ref, 1);
  serve();
  EXPECT_THAT(answers(), IsEmpty());
  write_list({{77, 0, 0}});  // the first list is a private copy
  ASSERT_NE(held, nullptr);
  table->perform(*held);
  held->finished(*held);
  hold_orders = false;
  serve();
  const auto all = answers();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].id, 1);
  EXPECT_EQ(all[0].status, 0U);
  EXPECT_EQ(all[1].id, 2);
  EXPECT_EQ(all[2].id, 3);
  EXPECT_EQ(all[2].status, 2U);
  EXPECT_NE(table->find(10, false), nullptr);
}

TEST_F(Control, StoppingWaitsForTheOrderThatIsUnderWay) {
  connect();
  hold_orders = true;
  grant({10});
  write_list({{10, 0, 0}});
  put(type::add_grant_mapping, 0, page_ref, 1);
  put(type::get_hash_mapping_size);
  serve();
  control->stop();
  serve();
  EXPECT_FALSE(control->idle());
  EXPECT_THAT(told, IsEmpty());
  table->perform(*held);
  held->finished(*held);
  serve();
  EXPECT_TRUE(control->idle());
  EXPECT_THAT(told, ElementsAre(protocol_error::none));
  EXPECT_EQ(answers().size(), 1U) << "the request behind it is left in the ring";
  EXPECT_EQ(control->position(), 1U);
}

TEST_F(Control, AnImpossibleProducerIndexBreaksTheRing) {
  connect();
  memory.set(ring_memory::req_prod, 200);
  serve();
  EXPECT_EQ(control->broken(), protocol_error::request_producer_overrun);
  EXPECT_TRUE(control->idle());
  EXPECT_THAT(told, ElementsAre(protocol_error::request_producer_overrun, protocol_error::none));
}

TEST_F(Control, WhateverIsAskedIsAnswered) {
  connect();
  grant({10, 11, 12, 13});
  std::mt19937 random(11);
  const auto any = [&]() -> std::uint32_t {
    constexpr std::uint32_t edges[] = {0, 1, 2, 3, 4, 40, 128, 512, page_ref, 0xffffffff};
    return edges[random() % std::size(edges)];
  };
  for (int round = 0; round < 20'000; ++round) {
    for (std::byte& b : std::span(mapper.peer[page_ref].bytes).first(64)) {
      b = static_cast<std::byte>(random() % 14 * (random() % 2));
    }
    (void)ask(static_cast<std::uint16_t>(random() % 12), any(), any(), any());
    ASSERT_LE(table->size(), 8U);
    ASSERT_EQ(queue_mapper.mapped_pages, table->size());
    ASSERT_LE(control->current().mappings, most_hash_mappings);
  }
  EXPECT_GT(control->counters().requests.get(), control->counters().refused.get());
  EXPECT_EQ(mapper.mapped_pages, 0U);
}

// Orders are performed by another thread, as a queue's is.
TEST_F(Control, OrdersGoToAThreadAndComeBack) {
  connect();
  grant({10});
  std::atomic<grant::mapping_order*> order{nullptr};
  std::atomic<bool> stop{false};
  control.reset();
  control_setup setup;
  setup.domain = 3;
  front.emplace(memory.span());
  setup.ring = memory.span();
  setup.port = kick;
  setup.mapped_pages = 8;
  setup.who = &order;
  setup.order = [](void* who, std::uint32_t /*queue*/, grant::mapping_order& what) noexcept {
    static_cast<std::atomic<grant::mapping_order*>*>(who)->store(&what);
    return true;
  };
  control.emplace(setup, shared, mapper, events);
  std::thread queue([&] {
    while (!stop.load()) {
      if (grant::mapping_order* const got = order.exchange(nullptr)) {
        table->perform(*got);
        got->finished(*got);
      } else {
        std::this_thread::yield();
      }
    }
  });
  write_list({{10, 0, 0}});
  for (int round = 0; round < 200; ++round) {
    for (const std::uint16_t what : {type::add_grant_mapping, type::delete_grant_mapping}) {
      put(what, 0, page_ref, 1);
      std::vector<wire::response> got;
      while (got.empty()) {
        (void)control->service(16);
        got = answers();
      }
      EXPECT_EQ(got[0].status, 0U);
    }
  }
  stop.store(true);
  queue.join();
}

}  // namespace
}  // namespace pvring::net
