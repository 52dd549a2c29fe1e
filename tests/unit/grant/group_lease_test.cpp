// SPDX-License-Identifier: MIT
#include "pvring/grant/group_lease.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "pvring/grant/batched_copy.hpp"
#include "pvring/protocol/netif_abi.hpp"
#include "pvring/ring/back_ring.hpp"
#include "scripted_mapper.hpp"

namespace pvring::test {
namespace {

using wire = protocol::netif::tx_wire;
using lease_type = grant::group_lease<wire, 4>;
using protocol::netif::status;

static_assert(!std::is_copy_constructible_v<lease_type>);
// A proof cannot be made by anybody but a strategy.
static_assert(!std::is_constructible_v<grant::released, grant::lease_state&>);

class GroupLease : public ::testing::Test {
 protected:
  GroupLease() : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, 4096)), &std::free) {
    std::memset(memory_.get(), 0, 4096);
    const std::uint32_t produced = 4;
    std::memcpy(memory_.get(), &produced, sizeof produced);
    ring_.emplace(std::span(memory_.get(), 4096));
  }
  void owe(lease_type& lease, std::size_t count) {
    ring_->take(count, [&](ring::taken<wire>& slot) {
      lease.owe(slot.owe({static_cast<std::uint16_t>(lease.owed())}));
    });
  }
  std::vector<int> answer(lease_type& lease) {
    std::vector<int> given;
    lease.answer_all([](std::size_t index) { return index == 1 ? status::null : status::okay; },
                     [&](ring::answer<wire>&& one) {
                       given.push_back(static_cast<int>(one.status()) * 100 + one.to().id);
                       ring_->respond(std::move(one));
                     });
    return given;
  }
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  std::optional<ring::back_ring<wire>> ring_;
};

TEST_F(GroupLease, answers_every_request_once_and_in_order) {
  lease_type lease;
  owe(lease, 3);
  EXPECT_EQ(lease.owed(), 3U);
  EXPECT_THAT(answer(lease), ::testing::ElementsAre(0, 101, 2));
  EXPECT_EQ(lease.owed(), 0U);
  EXPECT_EQ(ring_->unanswered(), 0U);
  EXPECT_THAT(answer(lease), ::testing::IsEmpty());
}

TEST_F(GroupLease, is_held_until_its_own_proof) {
  scripted_mapper mapper;
  mapper.peer[1];
  grant::batched_copy::bind<scripted_mapper> strategy(mapper, {.domain = 1});
  lease_type lease;
  owe(lease, 2);
  grant::piece piece{.reference = 1, .length = 10};
  iovec buffer{};
  lease.pieces = {&piece, 1};
  lease.storage = {&buffer, 1};
  ASSERT_EQ(strategy.acquire(lease), grant::acquired::queued);
  lease.hold();
  EXPECT_TRUE(lease.holding());
  strategy.finish_acquires([](grant::lease_state&) {});
  const auto settle = [&](const grant::released& proof) { lease.let_go(proof); };
  strategy.release(lease, true, settle);
  strategy.finish_releases(settle);
  EXPECT_FALSE(lease.holding());
  EXPECT_THAT(answer(lease), ::testing::SizeIs(2));
}

TEST_F(GroupLease, gives_up_what_is_owed_when_its_ring_is_gone) {
  lease_type lease;
  owe(lease, 4);
  lease.abandon_all();
  EXPECT_EQ(lease.owed(), 0U);
}

}  // namespace
}  // namespace pvring::test
