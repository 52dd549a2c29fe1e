// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <thread>

#include "emulated_fixture.hpp"

namespace pvring::platform::test {
namespace {

class EmulatedGrants : public EmulatedMachine {
 public:
  static char at(const mapping& pages, std::size_t page) {
    return static_cast<char>(pages.address[page * page_size]);
  }

  emulated_grants grants = dom0.open_grants(64);
};

class EmulatedGrantsDeathTest : public EmulatedGrants {};

TEST_F(EmulatedGrants, MapsPagesSideBySideInTheOrderAsked) {
  const auto r = grant_pages(5);
  const std::vector<grant_reference> order{r[4], r[1], r[2], r[0], r[1]};
  const map_result mapped = grants.map(guest_id, order, access::read_write);
  ASSERT_EQ(mapped.error, 0);
  ASSERT_EQ(mapped.pages.count, 5U);
  EXPECT_EQ(at(mapped.pages, 0), 'e');
  EXPECT_EQ(at(mapped.pages, 1), 'b');
  EXPECT_EQ(at(mapped.pages, 2), 'c');
  EXPECT_EQ(at(mapped.pages, 3), 'a');
  EXPECT_EQ(at(mapped.pages, 4), 'b');
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
}

TEST_F(EmulatedGrants, AMapIsTheGuestsOwnMemory) {
  const auto r = grant_pages(1);
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  ASSERT_EQ(mapped.error, 0);
  mapped.pages.address[7] = std::byte{'x'};
  EXPECT_EQ(memory[7], std::byte{'x'});
  memory[8] = std::byte{'y'};
  EXPECT_EQ(mapped.pages.address[8], std::byte{'y'});
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
}

TEST_F(EmulatedGrants, FramesThatFollowOneAnotherAreOneSystemCall) {
  const auto r = grant_pages(8);
  map_result mapped = grants.map(guest_id, r, access::read_write);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_EQ(grants.counters().system_calls.get(), 1U);
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_EQ(grants.counters().system_calls.get(), 2U);

  // Two runs: one call to reserve, one for each run.
  std::vector<grant_reference> two_runs(r.begin() + 4, r.end());
  two_runs.insert(two_runs.end(), r.begin(), r.begin() + 4);
  mapped = grants.map(guest_id, two_runs, access::read_write);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_EQ(grants.counters().system_calls.get(), 5U);
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_EQ(grants.counters().map_calls.get(), 2U);
  EXPECT_EQ(grants.counters().pages_mapped.get(), 16U);
  EXPECT_EQ(grants.counters().pages_unmapped.get(), 16U);
  EXPECT_EQ(grants.counters().hypercalls.get(), 4U);
}

TEST_F(EmulatedGrants, AMapWithOneBadReferenceMapsNothing) {
  // Cases 46, 49, 60: a failing entry at any place, again and again, leaves nothing behind.
  const auto r = grant_pages(3);
  const std::vector<grant_reference> never_granted{r[0], 4000, r[2]};
  const std::vector<grant_reference> out_of_range{r[0], r[1], 0xffff'ffff};
  const std::vector<grant_reference> first{9999, r[1], r[2]};
  for (int i = 0; i < 10'000; ++i) {
    for (const auto& references : {never_granted, out_of_range, first}) {
      const map_result mapped = grants.map(guest_id, references, access::read_write);
      ASSERT_EQ(mapped.error, EINVAL);
      ASSERT_FALSE(mapped.pages);
    }
  }
  EXPECT_EQ(grants.mapped_pages(), 0U);
  EXPECT_EQ(grants.counters().map_failures.get(), 30'000U);
  for (const grant_reference reference : r) {
    EXPECT_FALSE(guest.is_mapped(reference));
    EXPECT_TRUE(guest.end_grant(reference));
  }
}

TEST_F(EmulatedGrants, AnEmptyMapAnUnknownDomainAndReferenceZeroAreRefused) {
  const auto r = grant_pages(1);
  const std::vector<grant_reference> zero{0};
  EXPECT_EQ(grants.map(guest_id, {}, access::read_only).error, EINVAL);
  EXPECT_EQ(grants.map(77, r, access::read_only).error, EINVAL);
  EXPECT_EQ(grants.map(guest_id, zero, access::read_only).error, EINVAL);
}

TEST_F(EmulatedGrants, OnlyTheDomainThatWasGrantedMaps) {
  const auto r = grant_pages(1);
  emulated driver_domain{machine, 7};
  emulated_grants others = driver_domain.open_grants(8);
  EXPECT_EQ(others.map(guest_id, r, access::read_only).error, EINVAL);
  char local = 0;
  copy_operation op = piece(&local, r[0], 0, 1);
  EXPECT_EQ(others.copy(guest_id, direction::from_peer, {&op, 1}), 0);
  EXPECT_EQ(op.status, grant_status::permission_denied);
  EXPECT_EQ(local, 0);
}

TEST_F(EmulatedGrants, AReadOnlyGrantRefusesWriting) {
  const auto r = grant_pages(1, access::read_only);
  EXPECT_EQ(grants.map(guest_id, r, access::read_write).error, EINVAL);
  char local = 'x';
  copy_operation op = piece(&local, r[0], 0, 1);
  EXPECT_EQ(grants.copy(guest_id, direction::to_peer, {&op, 1}), 0);
  EXPECT_EQ(op.status, grant_status::permission_denied);
  EXPECT_EQ(memory[0], std::byte{'a'});
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, {&op, 1}), 0);
  EXPECT_EQ(op.status, grant_status::okay);
  EXPECT_EQ(local, 'a');
  const map_result mapped = grants.map(guest_id, r, access::read_only);
  EXPECT_EQ(mapped.error, 0);
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
}

TEST_F(EmulatedGrantsDeathTest, WritingToAReadOnlyMapFaults) {
  const auto r = grant_pages(2);
  const std::vector<grant_reference> scattered{r[1], r[0]};
  const map_result mapped = grants.map(guest_id, scattered, access::read_only);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(mapped.pages.address + page_size) = 'x', "");
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
}

TEST_F(EmulatedGrantsDeathTest, AnUnmappedPageIsGone) {
  const auto r = grant_pages(1);
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  ASSERT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(mapped.pages.address) = 'x', "");
}

TEST_F(EmulatedGrants, UnmapsOnlyWholeMaps) {
  // Case 53.
  const auto r = grant_pages(4);
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_EQ(grants.unmap({mapped.pages.address, 3}), EINVAL);
  EXPECT_EQ(grants.unmap({mapped.pages.address, 5}), EINVAL);
  EXPECT_EQ(grants.unmap({mapped.pages.address + page_size, 3}), EINVAL);
  EXPECT_EQ(grants.unmap({nullptr, 0}), EINVAL);
  EXPECT_EQ(grants.mapped_pages(), 4U);
  EXPECT_EQ(at(mapped.pages, 3), 'd');
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_EQ(grants.unmap(mapped.pages), EINVAL);
}

TEST_F(EmulatedGrants, KeepsToItsQuota) {
  emulated_grants few = dom0.open_grants(3);
  const auto r = grant_pages(4);
  EXPECT_EQ(few.map(guest_id, r, access::read_write).error, ENOSPC);
  const map_result two = few.map(guest_id, std::span(r).first(2), access::read_write);
  EXPECT_EQ(two.error, 0);
  EXPECT_EQ(few.map(guest_id, std::span(r).first(2), access::read_write).error, ENOSPC);
  const map_result one = few.map(guest_id, std::span(r).first(1), access::read_write);
  EXPECT_EQ(one.error, 0);
  EXPECT_EQ(few.unmap(two.pages), 0);
  EXPECT_EQ(few.unmap(one.pages), 0);
  expect_system_error(EINVAL, "at most", [&] { (void)dom0.open_grants(std::size_t{1} << 40); });
}

TEST_F(EmulatedGrants, AGrantCannotBeEndedWhileMapped) {
  const auto r = grant_pages(2);
  const map_result first = grants.map(guest_id, r, access::read_write);
  const map_result again = grants.map(guest_id, std::span(r).first(1), access::read_only);
  EXPECT_FALSE(guest.end_grant(r[0]));
  EXPECT_EQ(grants.unmap(first.pages), 0);
  EXPECT_TRUE(guest.is_mapped(r[0]));
  EXPECT_FALSE(guest.end_grant(r[0]));
  EXPECT_TRUE(guest.end_grant(r[1]));
  EXPECT_EQ(grants.unmap(again.pages), 0);
  EXPECT_FALSE(guest.is_mapped(r[0]));
  EXPECT_TRUE(guest.end_grant(r[0]));
  EXPECT_EQ(grants.map(guest_id, r, access::read_write).error, EINVAL);
}

TEST_F(EmulatedGrants, ManyMapsInAnyOrderStayApart) {
  const auto r = grant_pages(26);
  emulated_grants many = dom0.open_grants(1024);
  std::vector<std::pair<mapping, std::size_t>> live;
  unsigned random = 1;
  for (int i = 0; i < 5'000; ++i) {
    random = random * 1664525 + 1013904223;
    if (live.size() < 300 && (random >> 16) % 2 == 0) {
      const std::size_t first = (random >> 20) % 24;
      const map_result mapped =
          many.map(guest_id, std::span(r).subspan(first, 1 + (random >> 8) % 2), access::read_only);
      ASSERT_EQ(mapped.error, 0);
      live.emplace_back(mapped.pages, first);
    } else if (!live.empty()) {
      const std::size_t which = (random >> 10) % live.size();
      ASSERT_EQ(at(live[which].first, 0), static_cast<char>('a' + live[which].second));
      ASSERT_EQ(many.unmap(live[which].first), 0);
      live[which] = live.back();
      live.pop_back();
    }
  }
  for (const auto& [pages, first] : live) {
    EXPECT_EQ(many.unmap(pages), 0);
  }
  EXPECT_EQ(many.mapped_pages(), 0U);
  for (const grant_reference reference : r) {
    EXPECT_TRUE(guest.end_grant(reference));
  }
}

TEST_F(EmulatedGrants, CopiesBothWays) {
  const auto r = grant_pages(2);
  std::array<char, 300> local{};
  std::array<copy_operation, 2> ops{piece(local.data(), r[0], 100, 100),
                                    piece(local.data() + 100, r[1], 3996, 100)};
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), 0);
  EXPECT_EQ(local[0], 'a');
  EXPECT_EQ(local[99], 'a');
  EXPECT_EQ(local[100], 'b');
  EXPECT_EQ(local[199], 'b');
  EXPECT_EQ(local[200], 0);
  local.fill('z');
  EXPECT_EQ(grants.copy(guest_id, direction::to_peer, ops), 0);
  EXPECT_EQ(memory[99], std::byte{'a'});
  EXPECT_EQ(memory[100], std::byte{'z'});
  EXPECT_EQ(memory[199], std::byte{'z'});
  EXPECT_EQ(memory[200], std::byte{'a'});
  EXPECT_EQ(memory[2 * page_size - 1], std::byte{'z'});
  EXPECT_EQ(grants.counters().copy_bytes.get(), 400U);
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 2U);
}

TEST_F(EmulatedGrants, EachOperationHasItsOwnStatus) {
  // Cases 51, 61.
  const auto r = grant_pages(2);
  const auto read_only = grant_pages(1, access::read_only, 'r');
  std::array<char, 5> local{'1', '2', '3', '4', '5'};
  std::array<copy_operation, 5> ops{piece(&local[0], r[0], 0, 1), piece(&local[1], 4000, 0, 1),
                                    piece(&local[2], read_only[0], 0, 1),
                                    piece(&local[3], 1'000'000, 0, 1),
                                    piece(&local[4], r[1], 0, 1)};
  EXPECT_EQ(grants.copy(guest_id, direction::to_peer, ops), 0);
  EXPECT_EQ(ops[0].status, grant_status::okay);
  EXPECT_EQ(ops[1].status, grant_status::bad_reference);
  EXPECT_EQ(ops[2].status, grant_status::permission_denied);
  EXPECT_EQ(ops[3].status, grant_status::bad_reference);
  EXPECT_EQ(ops[4].status, grant_status::okay);
  EXPECT_EQ(memory[0], std::byte{'r'});
  EXPECT_EQ(grants.copy(99, direction::to_peer, ops), 0);
  for (const copy_operation& op : ops) {
    EXPECT_EQ(op.status, grant_status::bad_domain);
  }
}

TEST_F(EmulatedGrants, OneMalformedOperationRefusesTheCall) {
  // Case 56: validate before batching.
  const auto r = grant_pages(1);
  char local = 'x';
  for (const auto& [offset, length] :
       {std::pair{0, 0}, {0, 4097}, {4095, 2}, {4096, 1}, {65535, 1}}) {
    std::array<copy_operation, 2> ops{piece(&local, r[0], 0, 1),
                                      piece(&local, r[0], static_cast<std::uint16_t>(offset),
                                            static_cast<std::uint16_t>(length))};
    EXPECT_EQ(grants.copy(guest_id, direction::to_peer, ops), EINVAL) << offset << ' ' << length;
  }
  EXPECT_EQ(memory[0], std::byte{'a'});
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 0U);
  EXPECT_EQ(grants.counters().copy_failures.get(), 5U);
}

TEST_F(EmulatedGrants, LocalMemoryThatIsNotThereFailsTheCall) {
  const auto r = grant_pages(1);
  copy_operation op = piece(nullptr, r[0], 0, 1);
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, {&op, 1}), EFAULT);
  EXPECT_EQ(grants.copy(guest_id, direction::to_peer, {&op, 1}), EFAULT);
  char local = 0;
  std::array<copy_operation, 2> ops{piece(&local, r[0], 0, 1), op};
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), EFAULT);
}

TEST_F(EmulatedGrants, CountsSystemCallsAndHypercallsOfCopies) {
  const auto r = grant_pages(1);
  alignas(page_size) static std::array<char, 2 * page_size> local;
  std::vector<copy_operation> ops(2500, piece(local.data(), r[0], 0, 8));
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), 0);
  EXPECT_EQ(grants.batch_limit(), 1024U);
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 3U);
  EXPECT_EQ(grants.counters().copy_operations.get(), 2500U);
  EXPECT_EQ(grants.counters().hypercalls.get(), 157U);  // ceil(2500 / 16)
  // Twelve that cross a local page are twenty-four operations for the hypervisor.
  ops.assign(12, piece(local.data() + 4090, r[0], 0, 8));
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, ops), 0);
  EXPECT_EQ(grants.counters().hypercalls.get(), 159U);
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, {}), 0);
  EXPECT_EQ(grants.counters().copy_system_calls.get(), 4U);
}

TEST_F(EmulatedGrants, AHostWithoutGrantCopySaysSo) {
  const emulated_host old =
      emulated_host::create({.domains = 1, .pages_per_domain = 16, .grant_copy = false});
  emulated platform{old};
  emulated_grants handle = platform.open_grants(1);
  EXPECT_FALSE(handle.has_copy());
  EXPECT_TRUE(grants.has_copy());
  EXPECT_EQ(handle.copy(1, direction::from_peer, {}), EOPNOTSUPP);
}

TEST_F(EmulatedGrants, MapsThatAreLeftAreReportedAndUnmapped) {
  const auto r = grant_pages(3);
  {
    emulated_grants careless = dom0.open_grants(8);
    EXPECT_EQ(careless.map(guest_id, r, access::read_write).error, 0);
    EXPECT_EQ(careless.map(guest_id, std::span(r).first(1), access::read_write).error, 0);
    EXPECT_EQ(machine.leaked_pages(), 0U);
  }
  EXPECT_EQ(machine.leaked_pages(), 4U);
  for (const grant_reference reference : r) {
    EXPECT_TRUE(guest.end_grant(reference));
  }
}

TEST_F(EmulatedGrants, UnmappingPagesInFlightIsRefusedAndRecorded) {
  // Case 58.
  in_flight_registry in_flight;
  grants.set_in_flight(&in_flight);
  const auto r = grant_pages(2);
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  in_flight.begin(mapped.pages.address + page_size + 512, 512);
  EXPECT_EQ(grants.unmap(mapped.pages), EBUSY);
  EXPECT_EQ(in_flight.violations(), 1U);
  EXPECT_EQ(at(mapped.pages, 1), 'b');
  in_flight.end(mapped.pages.address + page_size + 512, 512);
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_EQ(in_flight.violations(), 1U);
}

TEST_F(EmulatedGrants, HandlesMoveWithTheirMaps) {
  const auto r = grant_pages(1);
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  emulated_grants moved = std::move(grants);
  grants = dom0.open_grants(1);
  EXPECT_EQ(grants.unmap(mapped.pages), EINVAL);
  EXPECT_EQ(moved.unmap(mapped.pages), 0);
  moved = dom0.open_grants(1);
  EXPECT_EQ(machine.leaked_pages(), 0U);
}

TEST_F(EmulatedGrants, AllHandlesInUseIsAnErrorWithARemedy) {
  std::vector<emulated_grants> all;
  expect_system_error(ENOSPC, "create the host with more", [&] {
    for (int i = 0; i < 100; ++i) {
      all.push_back(dom0.open_grants(1));
    }
  });
  all.clear();
  EXPECT_TRUE(dom0.open_grants(1).has_copy());
}

TEST_F(EmulatedGrants, EndingAGrantAndMappingItNeverBothSucceed) {
  // A map that was granted shows the page that the reference named, whatever the guest does
  // meanwhile.
  std::byte* page = guest.allocate_pages(2);
  std::memset(page, 'o', page_size);
  std::memset(page + page_size, 'm', page_size);
  std::atomic<bool> done{false};
  std::atomic<grant_reference> current{guest.grant(0, page + page_size, access::read_write)};
  std::atomic<std::uint64_t> ended{0};
  std::thread frontend([&] {
    while (!done.load()) {
      const grant_reference r = current.load();
      if (guest.end_grant(r)) {
        ++ended;
        current = guest.grant(0, page + page_size, access::read_write);
      }
    }
  });
  std::uint64_t mapped_times = 0;
  for (int i = 0; i < 500'000 && (mapped_times < 200 || ended.load() < 100); ++i) {
    std::this_thread::yield();
    const grant_reference r = current.load();
    const map_result mapped = grants.map(guest_id, {&r, 1}, access::read_only);
    if (mapped.error == 0) {
      ++mapped_times;
      ASSERT_EQ(at(mapped.pages, 0), 'm');
      ASSERT_EQ(grants.unmap(mapped.pages), 0);
    }
  }
  done = true;
  frontend.join();
  EXPECT_GE(mapped_times, 200U);
  EXPECT_GE(ended.load(), 100U);
}

TEST_F(EmulatedGrants, AGrantThatEndedIsNoLongerCopiedTo) {
  // The guest reuses a page as soon as the grant has ended: a copy under way must be over by then.
  std::byte* page = guest.allocate_pages();
  std::atomic<bool> done{false};
  std::atomic<grant_reference> current{guest.grant(0, page, access::read_write)};
  std::thread backend([&] {
    std::vector<char> local(page_size, 'c');
    while (!done.load()) {
      std::array<copy_operation, 16> ops{};
      ops.fill(piece(local.data(), current.load(), 0, page_size));
      ASSERT_EQ(grants.copy(guest_id, direction::to_peer, ops), 0);
    }
  });
  for (int i = 0; i < 2'000; ++i) {
    const grant_reference r = current.load();
    while (!guest.end_grant(r)) {
    }
    std::memset(page, 'g', page_size);
    std::this_thread::yield();
    ASSERT_TRUE(
        std::all_of(page, page + page_size, [](std::byte b) { return b == std::byte{'g'}; }));
    current = guest.grant(0, page, access::read_write);
  }
  done = true;
  backend.join();
}

}  // namespace
}  // namespace pvring::platform::test
