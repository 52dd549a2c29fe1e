// SPDX-License-Identifier: MIT
#include "pvring/xenbus/toolstack.hpp"

#include <gtest/gtest.h>

#include <string>

#include "scripted_store.hpp"

namespace pvring::xenbus {
namespace {

struct Toolstack : testing::Test {
  test::store_tree tree;
  test::scripted_store store{tree};
  device_description disk =
      describe_vbd({2, 3, "vbd", 51712}, {.parameters = "disk.img", .read_only = true});
};

TEST_F(Toolstack, MakesBothDirectoriesInOneTransaction) {
  const device_path path = create_device(store, disk);
  EXPECT_EQ(tree.commits, 1);
  EXPECT_EQ(tree.get(path.backend() + "/frontend"), path.frontend());
  EXPECT_EQ(tree.get(path.backend() + "/frontend-id"), "3");
  EXPECT_EQ(tree.get(path.backend() + "/online"), "1");
  EXPECT_EQ(tree.get(path.backend() + "/state"), "1");
  EXPECT_EQ(tree.get(path.backend() + "/type"), "vbd");
  EXPECT_EQ(tree.get(path.backend() + "/params"), "disk.img");
  EXPECT_EQ(tree.get(path.backend() + "/mode"), "r");
  EXPECT_EQ(tree.get(path.backend() + "/device-type"), "disk");
  EXPECT_EQ(tree.get(path.backend() + "/removable"), "0");
  EXPECT_EQ(tree.get(path.backend() + "/discard-enable"), "1");
  EXPECT_EQ(tree.get(path.frontend() + "/backend"), path.backend());
  EXPECT_EQ(tree.get(path.frontend() + "/backend-id"), "2");
  EXPECT_EQ(tree.get(path.frontend() + "/state"), "1");
  EXPECT_EQ(tree.get(path.frontend() + "/virtual-device"), "51712");
}

TEST_F(Toolstack, EachEndOwnsItsDirectoryAndTheOtherMayRead) {
  const device_path path = create_device(store, disk);
  int checked = 0;
  for (const auto& [name, node] : tree.content) {
    const bool backend = test::detail::at_or_below(name, path.backend());
    if (backend || test::detail::at_or_below(name, path.frontend())) {
      EXPECT_EQ(node.permissions.owner, backend ? 2 : 3) << name;
      EXPECT_EQ(node.permissions.reader, std::optional<domain_id>(backend ? 3 : 2)) << name;
      ++checked;
    }
  }
  EXPECT_GT(checked, 10);
}

TEST_F(Toolstack, FlagsOfABlockDeviceAreWritten) {
  const device_path path = create_device(
      store,
      describe_vbd({0, 3, "vbd", 768}, {.removable = true, .cdrom = true, .discard = false}));
  EXPECT_EQ(tree.get(path.backend() + "/mode"), "w");
  EXPECT_EQ(tree.get(path.backend() + "/device-type"), "cdrom");
  EXPECT_EQ(tree.get(path.frontend() + "/device-type"), "cdrom");
  EXPECT_EQ(tree.get(path.backend() + "/removable"), "1");
  EXPECT_EQ(tree.get(path.backend() + "/discard-enable"), "0");
}

TEST_F(Toolstack, AFrontendFindsItsDiskWhoeverServesIt) {
  const device_path path = create_device(store, describe_vbd({0, 3, "vbd-other", 51712}, {}));
  EXPECT_EQ(path.backend(), "/local/domain/0/backend/vbd-other/3/51712");
  EXPECT_EQ(path.frontend(), "/local/domain/3/device/vbd/51712");
  EXPECT_EQ(tree.get(path.backend() + "/frontend"), path.frontend());
  EXPECT_EQ(tree.get(path.frontend() + "/backend"), path.backend());
  EXPECT_EQ(resolve_from_backend(store, path.identity()).frontend(), path.frontend());
}

TEST_F(Toolstack, NothingOfAnEarlierDeviceStaysBehind) {
  const device_path path = create_device(store, disk);
  tree.put(path.frontend() + "/ring-ref0", "100");
  tree.put(path.backend() + "/sectors", "1");
  (void)create_device(store, disk);
  EXPECT_FALSE(tree.has(path.frontend() + "/ring-ref0"));
  EXPECT_FALSE(tree.has(path.backend() + "/sectors"));
}

TEST_F(Toolstack, UnplugWritesOfflineAndClosingInOneTransaction) {
  const device_path path = create_device(store, disk);
  request_unplug(store, path);
  EXPECT_EQ(tree.commits, 2);
  EXPECT_EQ(tree.get(path.backend() + "/online"), "0");
  EXPECT_EQ(tree.get(path.backend() + "/state"), "5");
}

TEST_F(Toolstack, UnplugOfNothingMakesNothing) {
  request_unplug(store, device_path(disk.identity));
  EXPECT_TRUE(tree.content.empty());
}

TEST_F(Toolstack, RemoveTakesBothDirectories) {
  const device_path path = create_device(store, disk);
  force_remove(store, path);
  EXPECT_FALSE(tree.has(path.backend()));
  EXPECT_FALSE(tree.has(path.frontend()));
  EXPECT_NO_THROW(force_remove(store, path));
}

TEST_F(Toolstack, AnotherTypeGetsItsOwnNodes) {
  const device_path path = create_device(store, {{0, 3, "vif", 0},
                                                 {{"mac", "00:16:3e:00:00:01"}},
                                                 {{"handle", "0"}, {"mac", "00:16:3e:00:00:01"}}});
  EXPECT_EQ(path.backend(), "/local/domain/0/backend/vif/3/0");
  EXPECT_EQ(tree.get(path.frontend() + "/handle"), "0");
  EXPECT_EQ(tree.get(path.backend() + "/mac"), "00:16:3e:00:00:01");
}

}  // namespace
}  // namespace pvring::xenbus
