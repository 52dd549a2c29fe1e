// SPDX-License-Identifier: MIT
// Case 58: mapped pages may be I/O buffers only where nothing below the image holds on to one after
// its completion. The machines here are trees that look like sysfs.
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include <pvring/aio/detail/lent_buffers.hpp>

#include "support.hpp"

namespace aio_test {
namespace {

namespace detail = pvring::aio::detail;
using detail::file_place;

constexpr std::uint64_t zfs_magic = 0x2FC12FC1;
constexpr std::uint64_t overlay_magic = 0x794C7630;

class lent_buffers : public testing::Test {
 protected:
  static std::string number(dev_t device) {
    return std::to_string(major(device)) + ":" + std::to_string(minor(device));
  }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = sys_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << '\n';
  }

  /// A block device at a path below sysfs.
  dev_t device(const std::string& path, unsigned high, unsigned low) {
    const dev_t number_of = makedev(high, low);
    std::filesystem::create_directories(sys_ + path + "/slaves");
    write(path + "/dev", number(number_of));
    std::filesystem::create_directories(sys_ + "/dev/block");
    std::filesystem::create_symlink("../.." + path, sys_ + "/dev/block/" + number(number_of));
    return number_of;
  }
  dev_t partition(const std::string& path, unsigned high, unsigned low) {
    const dev_t number_of = device(path, high, low);
    std::filesystem::remove(sys_ + path + "/slaves");  // only whole disks have one
    write(path + "/partition", "1");
    return number_of;
  }
  void member(const std::string& of, const std::string& path) const {
    std::filesystem::create_symlink(sys_ + path,
                                    sys_ + of + "/slaves/" + path.substr(path.rfind('/') + 1));
  }

  [[nodiscard]] detail::lent_buffers probe() const {
    return detail::lent_buffers(sys_, [this](const std::string& path) -> std::optional<file_place> {
      const auto found = files_.find(path);
      return found == files_.end() ? std::nullopt : std::optional(found->second);
    });
  }
  [[nodiscard]] bool keeps(dev_t device) const { return probe().below_device(device); }
  [[nodiscard]] bool keeps(const file_place& file, bool direct) const {
    return probe().below_file(file, direct);
  }

  temporary_directory dir_;
  std::string sys_ = dir_.path() + "/sys";
  std::map<std::string, file_place> files_;

  // A disk of this machine, and one behind a network.
  static constexpr const char* local_path = "/devices/pci0000:00/0000:00:1f.2/ata1/host0/block/sda";
  static constexpr const char* far_path =
      "/devices/platform/host2/session1/target2:0:0/2:0:0:1/block/sdb";
  const dev_t local_ = device(local_path, 8, 0);
  const dev_t far_ = device(far_path, 8, 16);
};

TEST_F(lent_buffers, are_kept_by_file_systems_behind_a_network_or_another_process) {
  for (const std::uint64_t magic : {0x6969UL, 0x517BUL, 0xFF534D42UL, 0xFE534D42UL, 0x00C36400UL,
                                    0x65735546UL, 0xFFFFFFFFFF534D42UL /* sign-extended */}) {
    EXPECT_TRUE(detail::keeps_buffers(magic)) << std::hex << magic;
    EXPECT_TRUE(keeps({magic, local_, {}}, true)) << std::hex << magic;
    EXPECT_TRUE(keeps({magic, local_, {}}, false)) << std::hex << magic;
  }
  static_assert(detail::keeps_buffers(NFS_SUPER_MAGIC));
  static_assert(detail::keeps_buffers(V9FS_MAGIC));
  static_assert(detail::keeps_buffers(CODA_SUPER_MAGIC));
  static_assert(!detail::keeps_buffers(EXT4_SUPER_MAGIC));
  static_assert(!detail::keeps_buffers(TMPFS_MAGIC));
  static_assert(!detail::keeps_buffers(XFS_SUPER_MAGIC));
  static_assert(!detail::keeps_buffers(BTRFS_SUPER_MAGIC));
}

TEST_F(lent_buffers, are_kept_by_block_devices_behind_a_network) {
  static_assert(detail::is_network_device("/devices/virtual/block/nbd3"));
  static_assert(detail::is_network_device("/devices/rbd/0/block/rbd0"));
  static_assert(detail::is_network_device("/devices/virtual/block/drbd1"));
  EXPECT_TRUE(keeps(far_));
  EXPECT_TRUE(keeps(device("/devices/virtual/block/nbd3", 43, 3)));
  EXPECT_TRUE(keeps(partition("/devices/virtual/block/nbd3/nbd3p1", 43, 4)));
  EXPECT_TRUE(keeps(device("/devices/rbd/0/block/rbd0", 252, 0)));
  EXPECT_TRUE(keeps(device("/devices/virtual/block/drbd1", 147, 1)));
  EXPECT_TRUE(keeps(device("/devices/virtual/net/eth0.5/host4/rport-4:0-0/block/sdc", 8, 32)));
  EXPECT_TRUE(keeps(device("/devices/tcm_loop_0/tcm_loop_adapter_0/host5/block/sdd", 8, 48)));
  EXPECT_TRUE(keeps(device("/devices/platform/vhci_hcd.0/usb3/3-1/host6/block/sde", 8, 64)));
}

TEST_F(lent_buffers, are_free_on_disks_of_this_machine) {
  EXPECT_FALSE(keeps(local_));
  EXPECT_FALSE(keeps(partition(std::string(local_path) + "/sda1", 8, 1)));
  EXPECT_FALSE(keeps(device("/devices/pci0000:00/0000:00:02.0/virtio1/block/vda", 254, 0)));
  EXPECT_FALSE(keeps(device("/devices/vbd-51712/block/xvda", 202, 0)));
  EXPECT_FALSE(keeps(device("/devices/virtual/block/ram0", 1, 0)));
}

TEST_F(lent_buffers, are_kept_where_nothing_is_known_of_the_device) {
  EXPECT_TRUE(keeps(makedev(4095, 77)));
  EXPECT_TRUE(detail::lent_buffers().below_device(makedev(4095, 77)));
  // No hardware, and nothing that shows what is below.
  EXPECT_TRUE(keeps(device("/devices/virtual/block/ublkb0", 259, 90)));
  EXPECT_TRUE(keeps(device("/devices/virtual/block/zd0", 230, 0)));
  EXPECT_TRUE(keeps(device("/devices/virtual/block/etherd!e1.0", 152, 0)));
}

// An ordinary file system over iSCSI, nbd, rbd, drbd: its own type says nothing.
TEST_F(lent_buffers, of_a_direct_file_are_kept_where_the_device_below_keeps_them) {
  const dev_t part = partition(std::string(far_path) + "/sdb1", 8, 17);
  for (const std::uint64_t magic :
       {std::uint64_t{EXT4_SUPER_MAGIC}, std::uint64_t{XFS_SUPER_MAGIC}}) {
    EXPECT_TRUE(keeps({magic, far_, {}}, true));
    EXPECT_TRUE(keeps({magic, part, {}}, true));
    EXPECT_FALSE(keeps({magic, far_, {}}, false)) << "the page cache has a copy";
    EXPECT_FALSE(keeps({magic, local_, {}}, true));
    EXPECT_TRUE(keeps({magic, makedev(9, 99), {}}, true)) << "a device that sysfs does not show";
  }
}

TEST_F(lent_buffers, of_a_direct_file_without_one_device_below_are_free_in_memory_only) {
  const dev_t none = makedev(0, 44);
  EXPECT_FALSE(keeps({TMPFS_MAGIC, none, {}}, true));
  EXPECT_FALSE(keeps({RAMFS_MAGIC, none, {}}, true));
  EXPECT_TRUE(keeps({BTRFS_SUPER_MAGIC, none, {}}, true));
  EXPECT_TRUE(keeps({zfs_magic, none, {}}, true));
  EXPECT_TRUE(keeps({overlay_magic, none, {}}, true));
  EXPECT_TRUE(keeps({0x12345678, none, {}}, true));
  EXPECT_FALSE(keeps({BTRFS_SUPER_MAGIC, none, {}}, false)) << "the page cache has a copy";
}

TEST_F(lent_buffers, of_a_block_device_do_not_depend_on_where_its_node_lies) {
  EXPECT_FALSE(keeps({TMPFS_MAGIC, makedev(0, 6), local_}, true));
  EXPECT_TRUE(keeps({TMPFS_MAGIC, makedev(0, 6), far_}, true));
}

TEST_F(lent_buffers, of_a_loop_device_are_those_of_its_file) {
  const auto loop = [&](unsigned n, const file_place& where) {
    const std::string name = "loop" + std::to_string(n);
    const std::string path = "/devices/virtual/block/" + name;
    const dev_t out = device(path, 7, n * 8);
    write(path + "/loop/backing_file", "/images/" + name);
    files_["/images/" + name] = where;
    return out;
  };
  EXPECT_FALSE(keeps(loop(0, {EXT4_SUPER_MAGIC, local_, {}})));
  EXPECT_TRUE(keeps(loop(1, {EXT4_SUPER_MAGIC, far_, {}}))) << "it may be switched to direct I/O";
  EXPECT_TRUE(keeps(loop(2, {NFS_SUPER_MAGIC, makedev(0, 50), {}})));
  EXPECT_TRUE(keeps(loop(3, {TMPFS_MAGIC, makedev(0, 6), far_}))) << "over a block device";
  EXPECT_TRUE(keeps(loop(4, {overlay_magic, makedev(0, 51), {}})));
  EXPECT_FALSE(keeps(loop(5, {TMPFS_MAGIC, makedev(0, 6), local_})));

  // What a partition's loop device is over is said of the whole device only.
  const std::string disk = "/devices/virtual/block/loop2";
  EXPECT_TRUE(keeps(partition(disk + "/loop2p1", 259, 1)));
  EXPECT_FALSE(keeps(partition("/devices/virtual/block/loop0/loop0p1", 259, 2)));

  files_.erase("/images/loop0");
  EXPECT_TRUE(keeps(makedev(7, 0))) << "its file is not to be found";
  EXPECT_TRUE(keeps(device("/devices/virtual/block/loop9", 7, 72))) << "its file is not shown";
}

TEST_F(lent_buffers, of_a_device_with_members_are_kept_where_one_member_keeps_them) {
  const dev_t dm = device("/devices/virtual/block/dm-0", 253, 0);
  const dev_t md = device("/devices/virtual/block/md127", 9, 127);
  const dev_t on_md = partition("/devices/virtual/block/md127/md127p2", 259, 3);
  const dev_t deep = device("/devices/virtual/block/dm-1", 253, 1);
  partition(std::string(local_path) + "/sda2", 8, 2);
  partition(std::string(far_path) + "/sdb2", 8, 18);
  member("/devices/virtual/block/dm-0", std::string(local_path) + "/sda2");
  member("/devices/virtual/block/md127", local_path);
  member("/devices/virtual/block/dm-1", "/devices/virtual/block/md127/md127p2");
  for (const dev_t one : {dm, md, on_md, deep}) {
    EXPECT_FALSE(keeps(one)) << number(one);
  }
  member("/devices/virtual/block/dm-0", std::string(far_path) + "/sdb2");
  member("/devices/virtual/block/md127", far_path);
  for (const dev_t one : {dm, md, on_md, deep}) {
    EXPECT_TRUE(keeps(one)) << number(one);
  }
}

TEST_F(lent_buffers, of_a_device_whose_members_are_not_shown_are_kept) {
  const dev_t dm = device("/devices/virtual/block/dm-3", 253, 3);
  EXPECT_FALSE(keeps(dm)) << "it has none";
  std::filesystem::remove(sys_ + "/devices/virtual/block/dm-3/slaves");
  EXPECT_TRUE(keeps(dm));
  const dev_t md = device("/devices/virtual/block/md1", 9, 1);
  std::filesystem::create_directories(sys_ + "/devices/virtual/block/md1/slaves/gone");
  EXPECT_TRUE(keeps(md)) << "a member without a number";
  // Members of each other, which only a broken tree has.
  device("/devices/virtual/block/dm-4", 253, 4);
  member("/devices/virtual/block/dm-4", "/devices/virtual/block/dm-4");
  EXPECT_TRUE(keeps(makedev(253, 4)));
}

TEST_F(lent_buffers, of_an_nvme_disk_are_free_on_its_machine_s_own_bus_only) {
  const auto disk = [&](const std::string& above, unsigned n, const char* transport) {
    const std::string controller = above + "/nvme" + std::to_string(n);
    const dev_t out = device(controller + "/nvme" + std::to_string(n) + "n1", 259, 10 * n);
    if (transport != nullptr) {
      write(controller + "/transport", transport);
    }
    return out;
  };
  EXPECT_FALSE(keeps(disk("/devices/pci0000:00/0000:01:00.0/nvme", 1, "pcie")));
  EXPECT_FALSE(keeps(disk("/devices/platform/soc/3cc0.nvme/nvme", 2, "apple-nvme")));
  EXPECT_TRUE(keeps(disk("/devices/virtual/nvme-fabrics/ctl", 3, "tcp")));
  EXPECT_TRUE(keeps(disk("/devices/virtual/nvme-fabrics/ctl", 4, "rdma")));
  EXPECT_TRUE(keeps(disk("/devices/pci0000:00/0000:02:00.0/nvme", 5, nullptr)));
  EXPECT_FALSE(
      keeps(partition("/devices/pci0000:00/0000:01:00.0/nvme/nvme1/nvme1n1/nvme1n1p1", 259, 11)));
}

// The head of several paths lies in no controller.
TEST_F(lent_buffers, of_an_nvme_disk_with_several_paths_are_free_where_all_its_paths_are_local) {
  const std::string system = "/devices/virtual/nvme-subsystem/nvme-subsys0";
  const dev_t head = device(system + "/nvme0n1", 259, 0);
  const dev_t part = partition(system + "/nvme0n1/nvme0n1p1", 259, 1);
  EXPECT_TRUE(keeps(head)) << "no path is shown";
  const auto controller = [&](const std::string& name, const char* transport) {
    const std::string home = "/devices/elsewhere/nvme/" + name;
    write(home + "/transport", transport);
    std::filesystem::create_symlink(sys_ + home, sys_ + system + "/" + name);
  };
  controller("nvme0", "pcie");
  EXPECT_FALSE(keeps(head));
  EXPECT_FALSE(keeps(part));
  controller("nvme1", "tcp");
  EXPECT_TRUE(keeps(head));
  EXPECT_TRUE(keeps(part));
}

}  // namespace
}  // namespace aio_test
