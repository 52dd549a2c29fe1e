// SPDX-License-Identifier: MIT
#include "pvring/platform/emulated/fault_plan.hpp"

#include "emulated_fixture.hpp"

namespace pvring::platform::test {
namespace {

class FaultPlan : public EmulatedMachine {
 public:
  void SetUp() override { dom0.set_faults(&plan); }

  fault_plan plan;
};

TEST_F(FaultPlan, FailsTheMapsItNames) {
  plan.fail_map(2, ENOMEM, 2);
  emulated_grants grants = dom0.open_grants(8);
  const auto r = grant_pages(1);
  const map_result first = grants.map(guest_id, r, access::read_write);
  EXPECT_EQ(first.error, 0);
  EXPECT_EQ(grants.map(guest_id, r, access::read_write).error, ENOMEM);
  EXPECT_EQ(grants.map(guest_id, r, access::read_write).error, ENOMEM);
  const map_result fourth = grants.map(guest_id, r, access::read_write);
  EXPECT_EQ(fourth.error, 0);
  plan.busy(1);
  EXPECT_EQ(grants.map(guest_id, r, access::read_write).error, EAGAIN);
  plan.fail_unmap(1, EIO);
  EXPECT_EQ(grants.unmap(first.pages), EIO);
  EXPECT_EQ(grants.unmap(first.pages), 0);
  EXPECT_EQ(grants.unmap(fourth.pages), 0);
  EXPECT_EQ(grants.counters().map_failures.get(), 3U);
}

TEST_F(FaultPlan, FailsACopyAsAWhole) {
  plan.fail_copy(1, EFAULT);
  plan.fail_copy_after(3, 1, ENOMEM);
  emulated_grants grants = dom0.open_grants(8);
  const auto r = grant_pages(1);
  std::array<char, 2> local{};
  std::array<copy_operation, 2> ops{piece(&local[0], r[0], 0, 1), piece(&local[1], r[0], 0, 1)};
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), EFAULT);
  EXPECT_EQ(local[0], 0);
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), 0);
  EXPECT_EQ(local[1], 'a');
  local = {};
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), ENOMEM);
  EXPECT_EQ(local[0], 'a');
  EXPECT_EQ(local[1], 0);
  EXPECT_EQ(ops[1].status, grant_status::okay) << "after a failed call a status says nothing";
}

TEST_F(FaultPlan, GivesStatusesToReferencesAndOperations) {
  emulated_grants grants = dom0.open_grants(8);
  const auto r = grant_pages(3);
  plan.fail_reference(r[1], grant_status::general_error, 1);
  plan.fail_operation(6, grant_status::bad_copy_argument);
  std::array<char, 3> local{};
  std::array<copy_operation, 3> ops{piece(&local[0], r[0], 0, 1), piece(&local[1], r[1], 0, 1),
                                    piece(&local[2], r[2], 0, 1)};
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), 0);
  EXPECT_EQ(ops[0].status, grant_status::okay);
  EXPECT_EQ(ops[1].status, grant_status::general_error);
  EXPECT_EQ(ops[2].status, grant_status::okay);
  EXPECT_EQ(local, (std::array<char, 3>{'a', 0, 'c'}));
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), 0);
  EXPECT_EQ(ops[1].status, grant_status::okay);
  EXPECT_EQ(ops[2].status, grant_status::bad_copy_argument);
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), 0);
  EXPECT_EQ(ops[2].status, grant_status::okay);
}

TEST_F(FaultPlan, TryAgainIsRetriedABoundedNumberOfTimes) {
  // Case 61: no retry for permanent errors, a bounded one for this.
  emulated_grants grants = dom0.open_grants(8);
  const auto r = grant_pages(1);
  char local = 0;
  copy_operation op = piece(&local, r[0], 0, 1);
  plan.try_again(3);
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, {&op, 1}), 0);
  EXPECT_EQ(op.status, grant_status::okay);
  EXPECT_EQ(local, 'a');
  EXPECT_EQ(grants.counters().copy_retries.get(), 3U);
  plan.try_again(fault_plan::for_ever);
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, {&op, 1}), 0);
  EXPECT_EQ(op.status, grant_status::try_again);
  plan.try_again(0);
  plan.fail_reference(r[0], grant_status::bad_reference);
  const std::uint64_t before = grants.counters().copy_retries.get();
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, {&op, 1}), 0);
  EXPECT_EQ(op.status, grant_status::bad_reference);
  EXPECT_EQ(grants.counters().copy_retries.get(), before);
}

TEST_F(FaultPlan, DelaysCalls) {
  emulated_grants grants = dom0.open_grants(8);
  const auto r = grant_pages(1);
  plan.delay(std::chrono::milliseconds(5));
  const auto start = std::chrono::steady_clock::now();
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(10));
}

TEST_F(FaultPlan, FailsBinds) {
  plan.fail_bind(1, EMFILE);
  emulated_events front = guest.open_events();
  emulated_events back = dom0.open_events();
  const port p = front.alloc_unbound(0);
  expect_system_error(EMFILE, "port " + std::to_string(p), [&] { (void)back.bind(guest_id, p); });
  EXPECT_NO_THROW((void)back.bind(guest_id, p));
}

TEST_F(FaultPlan, IsSharedByAPlatformsHandlesAndMayBeOnesOwn) {
  plan.fail_map(2, ENOMEM);
  emulated_grants one = dom0.open_grants(8);
  emulated_grants two = dom0.open_grants(8);
  const auto r = grant_pages(1);
  const map_result first = one.map(guest_id, r, access::read_write);
  EXPECT_EQ(first.error, 0);
  EXPECT_EQ(two.map(guest_id, r, access::read_write).error, ENOMEM);
  fault_plan own;
  own.fail_map(1, EAGAIN);
  two.set_faults(&own);
  EXPECT_EQ(two.map(guest_id, r, access::read_write).error, EAGAIN);
  two.set_faults(nullptr);
  const map_result last = two.map(guest_id, r, access::read_write);
  EXPECT_EQ(last.error, 0);
  EXPECT_EQ(one.unmap(first.pages), 0);
  EXPECT_EQ(two.unmap(last.pages), 0);
}

TEST(InFlightRegistry, KnowsWhatOverlaps) {
  in_flight_registry registry(2);
  const std::vector<char> memory(100'000);
  const auto at = [&](std::size_t offset) { return memory.data() + offset; };
  registry.begin(at(1000), 100);
  registry.begin(at(1000), 100);
  registry.begin(at(5000), 1);
  EXPECT_EQ(registry.dropped(), 1U);
  EXPECT_EQ(registry.in_flight(), 2U);
  EXPECT_FALSE(registry.unmapping(at(0), 1000));
  EXPECT_FALSE(registry.unmapping(at(1100), 1000));
  EXPECT_TRUE(registry.unmapping(at(1099), 1));
  registry.end(at(1000), 100);
  EXPECT_TRUE(registry.unmapping(at(0), 1001));
  registry.end(at(1000), 100);
  registry.end(at(1000), 100);
  EXPECT_FALSE(registry.unmapping(at(0), 100000));
  EXPECT_EQ(registry.violations(), 2U);
}

}  // namespace
}  // namespace pvring::platform::test
