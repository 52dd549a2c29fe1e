// SPDX-License-Identifier: MIT
#include <set>

#include "emulated_fixture.hpp"

namespace pvring::platform::test {
namespace {

class EmulatedGuest : public EmulatedMachine {};

TEST_F(EmulatedGuest, AllocatesPagesSideBySideAndReusesThem) {
  std::byte* first = guest.allocate_pages(3);
  std::byte* second = guest.allocate_pages();
  EXPECT_TRUE(second >= first + 3 * page_size || second < first);
  guest.free_pages(first, 3);
  expect_system_error(EINVAL, "free already", [&] { guest.free_pages(first); });
  expect_system_error(EINVAL, "no pages of this guest", [&] { guest.free_pages(second + 1); });
  expect_system_error(ENOMEM, "side by side", [&] { (void)guest.allocate_pages(4097); });
  EXPECT_THROW((void)guest.allocate_pages(0), std::system_error);
  guest.free_pages(second);
  EXPECT_NO_THROW((void)guest.allocate_pages(4096)) << "all of it, whatever came before";
}

TEST_F(EmulatedGuest, UsesUpAndRegainsAllItsPages) {
  std::vector<std::byte*> pages;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4096; ++i) {
      pages.push_back(guest.allocate_pages());
    }
    EXPECT_EQ(std::set<std::byte*>(pages.begin(), pages.end()).size(), 4096U);
    expect_system_error(ENOMEM, "free pages", [&] { (void)guest.allocate_pages(); });
    for (std::byte* page : pages) {
      guest.free_pages(page);
    }
    pages.clear();
  }
}

TEST_F(EmulatedGuest, APageThatIsGrantedIsNotFreed) {
  // Case 62.
  std::byte* page = guest.allocate_pages();
  const grant_reference r = guest.grant(0, page, access::read_write);
  expect_system_error(EBUSY, "still granted", [&] { guest.free_pages(page); });
  EXPECT_TRUE(guest.end_grant(r));
  EXPECT_NO_THROW(guest.free_pages(page));
}

TEST_F(EmulatedGuest, ReferencesAreReusedAndRunOut) {
  std::byte* page = guest.allocate_pages();
  std::set<grant_reference> all;
  expect_system_error(ENOSPC, "grants", [&] {
    while (true) {
      all.insert(guest.grant(0, page, access::read_only));
    }
  });
  EXPECT_EQ(all.size(), 4096U - detail::first_grant);
  EXPECT_EQ(*all.begin(), detail::first_grant) << "low references are reserved";
  EXPECT_TRUE(guest.end_grant(*all.begin()));
  EXPECT_FALSE(guest.end_grant(*all.begin())) << "ended already";
  EXPECT_EQ(guest.grant(0, page, access::read_only), *all.begin());
  EXPECT_FALSE(guest.end_grant(0));
  EXPECT_FALSE(guest.end_grant(0xffff'ffff));
  EXPECT_FALSE(guest.is_mapped(0xffff'ffff));
  expect_system_error(EINVAL, "no page",
                      [&] { (void)guest.grant(0, page + 1, access::read_only); });
  expect_system_error(EINVAL, "no page", [&] { (void)guest.grant(0, nullptr, access::read_only); });
}

TEST_F(EmulatedGuest, SeveralObjectsStandForOneDomain) {
  emulated_guest same = machine.domain(guest_id);
  std::byte* page = guest.allocate_pages();
  page[0] = std::byte{'s'};
  const grant_reference r = guest.grant(0, page, access::read_write);
  std::byte* other = same.allocate_pages();
  const grant_reference s = same.grant(0, other, access::read_write);
  EXPECT_NE(r, s);
  EXPECT_TRUE(same.end_grant(r));
  EXPECT_TRUE(guest.end_grant(s));
  expect_system_error(ESRCH, "domain 5", [&] { (void)machine.domain(5); });
  expect_system_error(EEXIST, "domain 3", [&] { (void)machine.create_domain(guest_id); });
}

TEST_F(EmulatedGuest, VanishingTakesGrantsPortsAndNodesButNotMaps) {
  const auto r = grant_pages(2);
  emulated_grants grants = dom0.open_grants(8);
  emulated_events frontend = guest.open_events();
  emulated_events backend = dom0.open_events();
  emulated_store store = dom0.open_store();
  const port front = frontend.alloc_unbound(0);
  const port back = backend.bind(guest_id, front);
  store.write("/local/domain/3/device/vbd/51712/state", "4");
  store.watch("@releaseDomain", "release");
  while (store.next_event()) {
  }
  const map_result mapped = grants.map(guest_id, r, access::read_write);

  guest.vanish();
  EXPECT_FALSE(machine.has_domain(guest_id));
  char local = 0;
  copy_operation op = piece(&local, r[0], 0, 1);
  EXPECT_EQ(grants.copy(guest_id, direction::from_peer, {&op, 1}), 0);
  EXPECT_EQ(op.status, grant_status::bad_domain);
  EXPECT_EQ(grants.map(guest_id, r, access::read_only).error, EINVAL);
  EXPECT_EQ(mapped.pages.address[page_size], std::byte{'b'}) << "the map is still memory";
  mapped.pages.address[0] = std::byte{'x'};
  EXPECT_FALSE(backend.is_bound(back));
  backend.notify(back);
  EXPECT_EQ(store.read("/local/domain/3"), std::nullopt);
  EXPECT_EQ(store.next_event()->token, "release");
  expect_system_error(ESRCH, "gone", [&] { (void)guest.allocate_pages(); });
  expect_system_error(ESRCH, "gone", [&] { (void)guest.grant(0, memory, access::read_only); });
  EXPECT_FALSE(guest.end_grant(r[0]));
  EXPECT_NO_THROW(guest.vanish());
  EXPECT_NO_THROW(machine.destroy_domain(guest_id));
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
}

TEST_F(EmulatedGuest, MemoryOfAGoneDomainIsNotReusedWhileMapped) {
  const auto r = grant_pages(1);
  emulated_grants grants = dom0.open_grants(8);
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  guest.vanish();
  // Three slots are left for three guests; the fourth must wait until the old pages are unmapped.
  std::vector<emulated_guest> guests;
  for (domain_id id = 10; id < 13; ++id) {
    guests.push_back(machine.create_domain(id));
    std::memset(guests.back().allocate_pages(4096), 'n', 4096 * page_size);
  }
  EXPECT_EQ(mapped.pages.address[0], std::byte{'a'});
  expect_system_error(ENOSPC, "domains", [&] { (void)machine.create_domain(13); });
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  emulated_guest reborn = machine.create_domain(guest_id);
  EXPECT_EQ(*reborn.allocate_pages(), std::byte{0}) << "a new guest's memory is zeroed";
}

TEST_F(EmulatedGuest, AnIdMayBeUsedAgainAndStartsAfresh) {
  for (int i = 0; i < 20; ++i) {
    const auto r = grant_pages(3);
    EXPECT_EQ(r[0], detail::first_grant);
    guest.open_store().write("data", std::to_string(i));
    guest.vanish();
    guest = machine.create_domain(guest_id);
    EXPECT_EQ(guest.open_store().read("data"), std::nullopt);
  }
}

TEST(EmulatedHost, OptionsOutOfRangeAreNamed) {
  EXPECT_THROW(
      {
        try {
          (void)emulated_host::create({.domains = 0});
        } catch (const std::invalid_argument& e) {
          EXPECT_NE(std::string_view(e.what()).find("domains is 0"), std::string_view::npos);
          throw;
        }
      },
      std::invalid_argument);
  EXPECT_THROW((void)emulated_host::create({.event_handles = 200, .store_connections = 41}),
               std::invalid_argument);
  EXPECT_NO_THROW((void)emulated_host::create({.domains = 1,
                                               .pages_per_domain = 1,
                                               .grants_per_domain = 9,
                                               .grant_handles = 1,
                                               .event_handles = 1,
                                               .store_connections = 1,
                                               .store_nodes = 64}));
}

TEST(EmulatedHost, HandlesOutliveTheObjectsTheyCameFrom) {
  auto machine = std::make_unique<emulated_host>(emulated_host::create({.domains = 1}));
  emulated_guest guest = machine->create_domain(1);
  emulated_grants grants = emulated{*machine}.open_grants(1);
  machine.reset();
  const grant_reference r = guest.grant(0, guest.allocate_pages(), access::read_write);
  const map_result mapped = grants.map(1, {&r, 1}, access::read_write);
  EXPECT_EQ(mapped.error, 0);
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
}

}  // namespace
}  // namespace pvring::platform::test
