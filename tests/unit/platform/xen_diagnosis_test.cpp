// SPDX-License-Identifier: MIT
#include "pvring/platform/xen/diagnosis.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "pvring/platform/xen.hpp"

namespace pvring::platform {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(XenDiagnosis, SaysThatThereIsNoXenWhateverTheError) {
  for (const int error : {ENOENT, EACCES, ENODEV}) {
    EXPECT_THAT(detail::remedy_for(detail::grant_node, error, false),
                AllOf(HasSubstr("not a Xen host"), HasSubstr("/proc/xen"),
                      HasSubstr("/sys/hypervisor/type")));
    EXPECT_THAT(detail::store_remedy_for("/run/socket", error, false), HasSubstr("not a Xen host"));
  }
}

TEST(XenDiagnosis, NamesTheModuleToLoad) {
  EXPECT_THAT(detail::remedy_for(detail::grant_node, ENOENT, true),
              HasSubstr("modprobe xen-gntdev"));
  EXPECT_THAT(detail::remedy_for(detail::event_node, ENOENT, true),
              HasSubstr("modprobe xen-evtchn"));
  EXPECT_THAT(detail::remedy_for(detail::share_node, ENODEV, true),
              HasSubstr("modprobe xen-gntalloc"));
}

TEST(XenDiagnosis, NamesTheRightThatIsMissing) {
  EXPECT_THAT(
      detail::remedy_for(detail::grant_node, EACCES, true),
      AllOf(HasSubstr("right to read and write"), HasSubstr("root"), Not(HasSubstr("modprobe"))));
  EXPECT_THAT(detail::store_remedy_for("/run/socket", EACCES, true),
              AllOf(HasSubstr("right to connect to /run/socket"), HasSubstr("/dev/xen/xenbus")));
}

TEST(XenDiagnosis, NamesTheLimitOfDescriptors) {
  EXPECT_THAT(detail::remedy_for(detail::event_node, EMFILE, true), HasSubstr("ulimit"));
}

TEST(XenDiagnosis, SaysHowTheStoreIsReached) {
  EXPECT_THAT(detail::store_remedy_for("/run/socket", ENOENT, true),
              AllOf(HasSubstr("/run/socket"), HasSubstr("start xenstored"), HasSubstr("xenfs")));
}

TEST(XenDiagnosis, NamesTheNodeAndKeepsTheError) {
  try {
    detail::refuse_open(detail::grant_node, EACCES, true);
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EACCES);
    EXPECT_THAT(error.what(), HasSubstr("/dev/xen/gntdev"));
  }
}

// The real libraries, on a machine that most likely has no Xen.
TEST(XenPlatform, RefusesToOpenWithoutXenByOneMessage) {
  if (detail::is_xen_host()) {
    GTEST_SKIP() << "this is a Xen host";
  }
  xen host;
  const auto message_of = [](auto&& open) -> std::string {
    try {
      open();
    } catch (const std::system_error& error) {
      return error.what();
    }
    return "no exception";
  };
  EXPECT_THAT(message_of([&] { (void)host.open_grants(1); }),
              AllOf(HasSubstr("/dev/xen/gntdev"), HasSubstr("not a Xen host")));
  EXPECT_THAT(message_of([&] { (void)host.open_events(); }),
              AllOf(HasSubstr("/dev/xen/evtchn"), HasSubstr("not a Xen host")));
  EXPECT_THAT(message_of([&] { (void)host.open_store(); }),
              AllOf(HasSubstr("store"), HasSubstr("not a Xen host")));
}

}  // namespace
}  // namespace pvring::platform
