// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <pvring/aio/detail/storage_probe.hpp>

#include "support.hpp"

namespace aio_test {
namespace {

namespace detail = pvring::aio::detail;

// Case 58.
TEST(storage_probe, distrusts_file_systems_behind_a_network_or_another_process) {
  for (const std::uint64_t magic : {0x6969UL, 0x517BUL, 0xFF534D42UL, 0xFE534D42UL, 0x00C36400UL,
                                    0x65735546UL, 0xFFFFFFFFFF534D42UL /* sign-extended */}) {
    EXPECT_TRUE(detail::keeps_buffers(magic)) << std::hex << magic;
  }
  static_assert(detail::keeps_buffers(NFS_SUPER_MAGIC));
  static_assert(detail::keeps_buffers(V9FS_MAGIC));
  static_assert(detail::keeps_buffers(CODA_SUPER_MAGIC));
  static_assert(!detail::keeps_buffers(EXT4_SUPER_MAGIC));
  static_assert(!detail::keeps_buffers(TMPFS_MAGIC));
  static_assert(!detail::keeps_buffers(XFS_SUPER_MAGIC));
  static_assert(!detail::keeps_buffers(BTRFS_SUPER_MAGIC));
}

// Case 58.
TEST(storage_probe, distrusts_block_devices_behind_a_network) {
  static_assert(detail::is_network_device("/sys/devices/virtual/block/nbd3"));
  static_assert(detail::is_network_device("/sys/devices/virtual/block/nbd3/nbd3p1"));
  static_assert(detail::is_network_device("/sys/devices/rbd/0/block/rbd0"));
  static_assert(detail::is_network_device("/sys/devices/virtual/block/drbd1"));
  static_assert(detail::is_network_device(
      "/sys/devices/platform/host2/session1/target2:0:0/2:0:0:1/block/sdb"));
  static_assert(detail::is_network_device("/sys/devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1"));
  static_assert(!detail::is_network_device(
      "/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/block/sda"));
  static_assert(!detail::is_network_device("/sys/devices/virtual/block/loop0"));
  EXPECT_TRUE(detail::device_keeps_buffers(makedev(4095, 77)))
      << "what is not known is not trusted";
}

TEST(storage_probe, reads_numbers_of_attributes) {
  const temporary_directory dir;
  EXPECT_EQ(detail::number_in(dir.file("ones", 3, '1'), 7), 111U);
  EXPECT_EQ(detail::number_in(dir.file("empty", 0), 7), 7U);
  EXPECT_EQ(detail::number_in(dir.path() + "/missing", 7), 7U);
}

}  // namespace
}  // namespace aio_test
