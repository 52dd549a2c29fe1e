// SPDX-License-Identifier: MIT
// Mapping and unmapping: what the library is asked, what becomes of its errors, and the quota.
#include <sys/mman.h>

#include <array>
#include <cerrno>

#include "fixture.hpp"

namespace seam {
namespace {

class xen_grants_seam : public xen_seam {
 public:
  xen_grants_seam() { grant({1, 2, 3, 4, 5, 6}); }

  static map_result map(xen_grants& grants, std::vector<grant_reference> references,
                        access how = access::read_write) {
    return grants.map(7, references, how);
  }
};

TEST_F(xen_grants_seam, maps_all_references_by_one_call) {
  xen_grants grants(8);
  const map_result result = map(grants, {3, 1, 2});
  ASSERT_EQ(result.error, 0);
  EXPECT_EQ(result.pages.count, 3U);
  EXPECT_EQ(result.pages.address[0], std::byte{'3'});
  EXPECT_EQ(result.pages.address[2 * page_size], std::byte{'2'});
  ASSERT_EQ(machine().grants.maps.size(), 1U);
  EXPECT_EQ(machine().grants.maps[0].domain, 7U);
  EXPECT_THAT(machine().grants.maps[0].references, ElementsAre(3, 1, 2));
  EXPECT_EQ(grants.unmap(result.pages), 0);
}

// Case 52: the protection is what was asked for.
TEST_F(xen_grants_seam, maps_with_the_protection_asked_for) {
  xen_grants grants(8);
  const map_result writable = map(grants, {1});
  const map_result constant = map(grants, {2}, access::read_only);
  EXPECT_EQ(machine().grants.maps[0].protection, PROT_READ | PROT_WRITE);
  EXPECT_EQ(machine().grants.maps[1].protection, PROT_READ);
  EXPECT_EQ(grants.unmap(writable.pages), 0);
  EXPECT_EQ(grants.unmap(constant.pages), 0);
}

// Case 53.
TEST_F(xen_grants_seam, unmaps_with_the_address_and_count_of_the_map) {
  xen_grants grants(8);
  const map_result three = map(grants, {1, 2, 3});
  const map_result one = map(grants, {4});
  EXPECT_EQ(grants.unmap(three.pages), 0);
  EXPECT_EQ(grants.unmap(one.pages), 0);
  using unmap = std::pair<void*, std::uint32_t>;
  EXPECT_THAT(machine().grants.unmaps,
              ElementsAre(unmap(three.pages.address, 3U), unmap(one.pages.address, 1U)));
}

TEST_F(xen_grants_seam, asks_nobody_to_unmap_what_is_no_map) {
  xen_grants grants(8);
  const map_result result = map(grants, {1, 2, 3});
  EXPECT_EQ(grants.unmap({result.pages.address, 2}), EINVAL);
  EXPECT_EQ(grants.unmap({result.pages.address + page_size, 2}), EINVAL);
  EXPECT_EQ(grants.unmap({result.pages.address + page_size, 3}), EINVAL);
  EXPECT_EQ(grants.unmap({}), EINVAL);
  EXPECT_EQ(grants.unmap({nullptr, 1}), EINVAL);
  EXPECT_THAT(machine().grants.unmaps, IsEmpty());
  EXPECT_EQ(grants.unmap(result.pages), 0);
  EXPECT_EQ(grants.unmap(result.pages), EINVAL);
  EXPECT_EQ(machine().grants.unmaps.size(), 1U);
}

// Case 60: the kernel keeps no quota.
TEST_F(xen_grants_seam, keeps_the_quota_itself) {
  xen_grants grants(3);
  EXPECT_EQ(map(grants, {1, 2, 3, 4}).error, ENOSPC);
  const map_result two = map(grants, {1, 2});
  EXPECT_EQ(map(grants, {3, 4}).error, ENOSPC);
  EXPECT_EQ(machine().grants.maps.size(), 1U);
  const map_result third = map(grants, {3});
  EXPECT_EQ(grants.mapped_pages(), 3U);
  EXPECT_EQ(grants.unmap(two.pages), 0);
  EXPECT_EQ(grants.mapped_pages(), 1U);
  const map_result again = map(grants, {4, 5});
  EXPECT_EQ(again.error, 0);
  EXPECT_EQ(grants.unmap(again.pages), 0);
  EXPECT_EQ(grants.unmap(third.pages), 0);
}

TEST_F(xen_grants_seam, a_failed_map_takes_nothing_of_the_quota) {
  xen_grants grants(2);
  EXPECT_EQ(map(grants, {1, 99}).error, EINVAL);
  machine().grants.map = {ENOMEM};
  EXPECT_EQ(map(grants, {1, 2}).error, ENOMEM);
  const map_result both = map(grants, {1, 2});
  EXPECT_EQ(both.error, 0);
  EXPECT_EQ(grants.unmap(both.pages), 0);
  EXPECT_EQ(grants.counters().map_calls.get(), 3U);
  EXPECT_EQ(grants.counters().map_failures.get(), 2U);
  EXPECT_EQ(grants.counters().pages_mapped.get(), 2U);
}

TEST_F(xen_grants_seam, a_failed_unmap_keeps_the_map) {
  xen_grants grants(2);
  const map_result both = map(grants, {1, 2});
  machine().grants.unmap = {ENOMEM};
  EXPECT_EQ(grants.unmap(both.pages), ENOMEM);
  EXPECT_EQ(grants.mapped_pages(), 2U);
  EXPECT_EQ(grants.counters().pages_unmapped.get(), 0U);
  EXPECT_EQ(grants.unmap(both.pages), 0);
  EXPECT_EQ(grants.counters().unmap_calls.get(), 2U);
  EXPECT_EQ(grants.counters().pages_unmapped.get(), 2U);
}

TEST_F(xen_grants_seam, no_references_are_no_map) {
  xen_grants grants(2);
  EXPECT_EQ(map(grants, {}).error, EINVAL);
  EXPECT_THAT(machine().grants.maps, IsEmpty());
}

TEST_F(xen_grants_seam, a_signal_only_repeats_a_call) {
  xen_grants grants(2);
  machine().grants.map = {EINTR, EINTR};
  const map_result one = map(grants, {1});
  EXPECT_EQ(one.error, 0);
  EXPECT_EQ(machine().grants.maps.size(), 3U);
  machine().grants.unmap = {EINTR};
  EXPECT_EQ(grants.unmap(one.pages), 0);
  EXPECT_EQ(machine().grants.unmaps.size(), 2U);
  EXPECT_EQ(grants.counters().map_calls.get(), 1U);
  EXPECT_EQ(grants.counters().hypercalls.get(), 5U);
}

TEST_F(xen_grants_seam, a_failure_without_a_reason_is_a_failure) {
  xen_grants grants(2);
  machine().grants.status = nullptr;
  machine().grants.map = {-1};
  EXPECT_NE(map(grants, {1}).error, 0);
}

TEST_F(xen_grants_seam, the_handle_is_closed_before_its_logger_and_after_its_maps) {
  {
    xen_grants grants(4);
    (void)map(grants, {1, 2});
    (void)map(grants, {3});
  }
  EXPECT_THAT(machine().order, ElementsAre("open gntdev", "unmap", "unmap", "close gntdev"));
  EXPECT_TRUE(machine().grants.mapped.empty());
  EXPECT_THAT(messages(), testing::Contains(AllOf(HasSubstr("2 maps"), HasSubstr("3 pages"))));
  EXPECT_THAT(messages(), testing::Contains("gnttab: last words"));
}

TEST_F(xen_grants_seam, a_handle_that_is_moved_from_closes_nothing) {
  xen_grants first(4);
  const map_result one = map(first, {1});
  xen_grants second(std::move(first));
  EXPECT_EQ(second.unmap(one.pages), 0);
  second = xen_grants(4);
  EXPECT_THAT(machine().order, ElementsAre("open gntdev", "unmap", "open gntdev", "close gntdev"));
}

TEST_F(xen_grants_seam, a_quota_that_no_handle_can_have_is_refused) {
  EXPECT_EQ(thrown_by([] { xen_grants grants(std::size_t{1} << 40); }), EINVAL);
  EXPECT_THAT(said, HasSubstr("1099511627776"));
}

// A guest that sends bad references at will.
TEST_F(xen_grants_seam, the_librarys_messages_are_rate_limited) {
  xen_grants grants(4);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(map(grants, {99}).error, EINVAL);
  }
  EXPECT_EQ(messages().size(), 5U);
  EXPECT_THAT(messages()[0], AllOf(HasSubstr("gnttab"), HasSubstr("mmap failed"),
                                   HasSubstr("errno " + std::to_string(EINVAL))));
}

TEST_F(xen_grants_seam, what_the_library_chats_about_is_dropped) {
  xen_grants grants(4);
  fake::say(machine().grants.logger, XTL_DEBUG, -1, "gnttab", "about to map");
  fake::say(machine().grants.logger, XTL_PROGRESS, -1, nullptr, "half done");
  EXPECT_THAT(messages(), IsEmpty());
  fake::say(machine().grants.logger, XTL_CRITICAL, -1, nullptr, "%s",
            std::string(1000, 'x').c_str());
  ASSERT_EQ(messages().size(), 1U);
  EXPECT_LT(messages()[0].size(), 300U);
}

TEST_F(xen_grants_seam, a_sink_does_not_change_the_error) {
  xen_grants grants(4);
  pvring::log::set_sink([](pvring::log::level, std::string_view) noexcept { errno = ENOTTY; });
  EXPECT_EQ(map(grants, {99}).error, EINVAL);
}

TEST_F(xen_grants_seam, a_device_that_cannot_be_opened_is_named_with_what_helps) {
  machine().grants.open = {ENOENT, EACCES};
  EXPECT_EQ(thrown_by([] { xen_grants grants(1); }), ENOENT);
  EXPECT_THAT(said, AllOf(HasSubstr("/dev/xen/gntdev"), HasSubstr("Xen")));
  EXPECT_EQ(thrown_by([] { xen_grants grants(1); }), EACCES);
  EXPECT_THAT(machine().order, IsEmpty());
}

}  // namespace
}  // namespace seam
