// SPDX-License-Identifier: MIT
#include "pvring/xenbus/device_path.hpp"

#include <gtest/gtest.h>

#include "scripted_store.hpp"

namespace pvring::xenbus {
namespace {

const device_identity disk{0, 3, "vbd", 51712};
const std::string backend = "/local/domain/0/backend/vbd/3/51712";
const std::string frontend = "/local/domain/3/device/vbd/51712";

TEST(DevicePath, TheUsualDirectoriesFollowFromTheIdentity) {
  const device_path path(disk);
  EXPECT_EQ(path.backend(), backend);
  EXPECT_EQ(path.frontend(), frontend);
  EXPECT_EQ(path.identity(), disk);
  EXPECT_EQ(path.name(), "vbd 51712 of domain 3");
}

TEST(DevicePath, ErrorsAreBelowTheirWritersHome) {
  const device_path path({2, 3, "vbd", 51712});
  EXPECT_EQ(path.backend_error(), "/local/domain/2/error/backend/vbd/3/51712/error");
  EXPECT_EQ(path.frontend_error(), "/local/domain/3/error/device/vbd/51712/error");
}

TEST(DevicePath, ATypeThatCannotBePartOfAPathIsRefused) {
  for (const char* const type : {"", "a/b", "a b", "../x"}) {
    EXPECT_THROW(device_path({0, 3, type, 1}), configuration_error) << type;
  }
}

// Case 104.
TEST(DevicePath, APathOfTooFewOrOddPartsIsNoDevice) {
  for (const std::string_view odd : {"",
                                     "/",
                                     "fd",
                                     ":",
                                     "/local",
                                     "/local/domain/0/backend",
                                     "/local/domain/0/backend/vbd",
                                     "/local/domain/0/backend/vbd/3",
                                     "/local/domain/0/backend/vbd/3/",
                                     "/local/domain/0/backend//3/51712",
                                     "local/domain/0/backend/vbd/3/51712",
                                     "/local/domain//backend/vbd/3/51712",
                                     "/local/domain/x/backend/vbd/3/51712",
                                     "/local/domain/0/backend/vbd/-3/51712",
                                     "/local/domain/0/backend/vbd/65536/51712",
                                     "/local/domain/0/backend/vbd/3/51712x",
                                     "/local/domain/0/device/vbd/3/51712",
                                     "/remote/domain/0/backend/vbd/3/1",
                                     "/local/domains/0/backend/vbd/3/51712",
                                     "@introduceDomain"}) {
    EXPECT_EQ(parse_backend_directory(odd), std::nullopt) << odd;
  }
}

TEST(DevicePath, ABackendDirectoryOrANodeBelowItNamesItsDevice) {
  EXPECT_EQ(parse_backend_directory(backend), disk);
  EXPECT_EQ(parse_backend_directory(backend + "/state"), disk);
  EXPECT_EQ(parse_backend_directory("/local/domain/7/backend/qdisk/9/768"),
            (device_identity{7, 9, "qdisk", 768}));
}

struct Links : testing::Test {
  test::store_tree tree;
  test::scripted_store store{tree};
};

TEST_F(Links, WithoutLinksTheUsualPlacesAreTaken) {
  EXPECT_EQ(resolve_from_backend(store, disk).frontend(), frontend);
  EXPECT_EQ(resolve_from_frontend(store, disk).backend(), backend);
}

TEST_F(Links, LinksInTheStoreAreHonoured) {
  tree.put(backend + "/frontend", "/elsewhere/front");
  tree.put(frontend + "/backend", "/elsewhere/back");
  EXPECT_EQ(resolve_from_backend(store, disk).frontend(), "/elsewhere/front");
  EXPECT_EQ(resolve_from_backend(store, disk).backend(), backend);
  EXPECT_EQ(resolve_from_frontend(store, disk).backend(), "/elsewhere/back");
}

// Case 104.
TEST_F(Links, AMalformedLinkIsAnErrorOfThatDeviceOnly) {
  const device_identity other{0, 4, "vbd", 51712};
  for (const std::string_view odd : {"", "fd", ":", "fd:", "/a/", "//", "/a b"}) {
    tree.put(backend + "/frontend", odd);
    tree.put(frontend + "/backend", odd);
    EXPECT_THROW((void)resolve_from_backend(store, disk), node_error) << odd;
    EXPECT_THROW((void)resolve_from_frontend(store, disk), node_error) << odd;
    EXPECT_NO_THROW((void)resolve_from_backend(store, other));
  }
}

TEST_F(Links, AnIdThatContradictsTheDeviceIsAnError) {
  tree.put(backend + "/frontend-id", "3");
  EXPECT_NO_THROW((void)resolve_from_backend(store, disk));
  tree.put(backend + "/frontend-id", "4");
  EXPECT_THROW((void)resolve_from_backend(store, disk), node_error);
  tree.put(frontend + "/backend-id", "1");
  EXPECT_THROW((void)resolve_from_frontend(store, disk), node_error);
}

}  // namespace
}  // namespace pvring::xenbus
