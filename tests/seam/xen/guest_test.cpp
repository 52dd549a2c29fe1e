// SPDX-License-Identifier: MIT
// The granting side: pages and ports, and that all of it is taken back.
#include <cerrno>

#include "fixture.hpp"

namespace seam {
namespace {

TEST_F(xen_seam, a_guest_shares_pages_and_takes_them_back) {
  xen_guest guest(4);
  const shared_range two = guest.share(2, access::read_write);
  const shared_range one = guest.share(1, access::read_only);
  ASSERT_NE(two.memory, nullptr);
  EXPECT_THAT(two.references, ElementsAre(100, 101));
  EXPECT_THAT(one.references, ElementsAre(102));
  using share = std::pair<std::uint32_t, bool>;
  EXPECT_THAT(machine().shares.shares, ElementsAre(share(4, true), share(4, false)));
  EXPECT_EQ(guest.unshare(two), 0);
  EXPECT_EQ(guest.unshare(two), EINVAL);
  EXPECT_EQ(machine().shares.shared.size(), 1U);
  machine().shares.unshare = {ENOMEM};
  EXPECT_EQ(guest.unshare(one), ENOMEM);
  EXPECT_EQ(guest.unshare(one), 0);
}

TEST_F(xen_seam, a_guest_takes_back_what_is_left_and_then_closes) {
  {
    xen_guest guest(4);
    (void)guest.share(2, access::read_write);
  }
  EXPECT_TRUE(machine().shares.shared.empty());
  EXPECT_EQ(machine().order[2], "unshare");
  EXPECT_THAT(machine().order, testing::Contains("close gntalloc"));
  EXPECT_THAT(machine().order, testing::Contains("close evtchn"));
}

TEST_F(xen_seam, a_guest_that_may_grant_no_more_is_told_what_to_raise) {
  xen_guest guest(4);
  machine().shares.share = {ENOSPC};
  EXPECT_EQ(thrown_by([&] { (void)guest.share(7, access::read_write); }), ENOSPC);
  EXPECT_THAT(said, AllOf(HasSubstr("7 pages"), HasSubstr("domain 4"),
                          HasSubstr("/sys/module/xen_gntalloc/parameters/limit")));
  EXPECT_EQ(thrown_by([&] { (void)guest.share(0, access::read_write); }), EINVAL);
}

TEST_F(xen_seam, a_guest_offers_ports_and_kicks) {
  xen_guest guest(4);
  const port p = guest.offer_port();
  guest.notify(p);
  EXPECT_THAT(machine().events.notified, ElementsAre(p));
}

TEST_F(xen_seam, a_guest_without_its_device_says_which) {
  machine().shares.open = {ENOENT};
  EXPECT_EQ(thrown_by([] { xen_guest guest(4); }), ENOENT);
  EXPECT_THAT(said, HasSubstr("/dev/xen/gntalloc"));
}

}  // namespace
}  // namespace seam
