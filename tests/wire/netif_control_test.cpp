// SPDX-License-Identifier: MIT
// Our control ring against Xen's public header: structs, numbers, the ring's size, and each side
// reading what the other wrote.
#include <gtest/gtest.h>
#include <xen/grant_table.h>
#include <xen/io/netif.h>
#include <xen/xen.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "pvring/protocol/netif_control.hpp"
#include "pvring/protocol/ring_page.hpp"
#include "pvring/ring/shared_access.hpp"

namespace {

namespace netif = pvring::protocol::netif;
namespace type = netif::control_type;

static_assert(type::get_hash_flags == XEN_NETIF_CTRL_TYPE_GET_HASH_FLAGS);
static_assert(type::set_hash_flags == XEN_NETIF_CTRL_TYPE_SET_HASH_FLAGS);
static_assert(type::set_hash_key == XEN_NETIF_CTRL_TYPE_SET_HASH_KEY);
static_assert(type::get_hash_mapping_size == XEN_NETIF_CTRL_TYPE_GET_HASH_MAPPING_SIZE);
static_assert(type::set_hash_mapping_size == XEN_NETIF_CTRL_TYPE_SET_HASH_MAPPING_SIZE);
static_assert(type::set_hash_mapping == XEN_NETIF_CTRL_TYPE_SET_HASH_MAPPING);
static_assert(type::set_hash_algorithm == XEN_NETIF_CTRL_TYPE_SET_HASH_ALGORITHM);
static_assert(type::get_grant_mapping_size == XEN_NETIF_CTRL_TYPE_GET_GREF_MAPPING_SIZE);
static_assert(type::add_grant_mapping == XEN_NETIF_CTRL_TYPE_ADD_GREF_MAPPING);
static_assert(type::delete_grant_mapping == XEN_NETIF_CTRL_TYPE_DEL_GREF_MAPPING);
static_assert(static_cast<int>(netif::control_status::success) == XEN_NETIF_CTRL_STATUS_SUCCESS);
static_assert(static_cast<int>(netif::control_status::not_supported) ==
              XEN_NETIF_CTRL_STATUS_NOT_SUPPORTED);
static_assert(static_cast<int>(netif::control_status::invalid_parameter) ==
              XEN_NETIF_CTRL_STATUS_INVALID_PARAMETER);
static_assert(static_cast<int>(netif::control_status::buffer_overflow) ==
              XEN_NETIF_CTRL_STATUS_BUFFER_OVERFLOW);
static_assert(netif::hash_flag(netif::hash_type::ipv4) == XEN_NETIF_CTRL_HASH_TYPE_IPV4);
static_assert(netif::hash_flag(netif::hash_type::ipv4_tcp) == XEN_NETIF_CTRL_HASH_TYPE_IPV4_TCP);
static_assert(netif::hash_flag(netif::hash_type::ipv6) == XEN_NETIF_CTRL_HASH_TYPE_IPV6);
static_assert(netif::hash_flag(netif::hash_type::ipv6_tcp) == XEN_NETIF_CTRL_HASH_TYPE_IPV6_TCP);
static_assert(netif::grant_read_only == XEN_NETIF_CTRLF_GREF_readonly);

static_assert(sizeof(netif::control_request_layout) == sizeof(xen_netif_ctrl_request));
static_assert(offsetof(netif::control_request_layout, data) ==
              offsetof(xen_netif_ctrl_request, data));
static_assert(sizeof(netif::control_response_layout) == sizeof(xen_netif_ctrl_response));
static_assert(offsetof(netif::control_response_layout, status) ==
              offsetof(xen_netif_ctrl_response, status));
static_assert(offsetof(netif::control_response_layout, data) ==
              offsetof(xen_netif_ctrl_response, data));
static_assert(sizeof(netif::grant_entry_layout) == sizeof(xen_netif_gref));
static_assert(offsetof(netif::grant_entry_layout, flags) == offsetof(xen_netif_gref, flags));
static_assert(offsetof(netif::grant_entry_layout, status) == offsetof(xen_netif_gref, status));
static_assert(netif::control_wire::slot_bytes == sizeof(xen_netif_ctrl_sring_entry));
static_assert(pvring::protocol::ring_header_bytes == offsetof(xen_netif_ctrl_sring, ring));
static_assert(pvring::protocol::ring_slots(4096, netif::control_wire::slot_bytes) ==
              __CONST_RING_SIZE(xen_netif_ctrl, 4096));

struct one_slot {
  alignas(8) std::array<std::byte, sizeof(xen_netif_ctrl_sring_entry)> bytes{};
};

TEST(NetifControlWire, BothSidesReadARequestAlike) {
  one_slot slot;
  const xen_netif_ctrl_request theirs{0x1234, XEN_NETIF_CTRL_TYPE_SET_HASH_MAPPING, {7, 8, 9}};
  std::memcpy(slot.bytes.data(), &theirs, sizeof theirs);
  netif::control_wire::request ours;
  netif::control_wire::fetch(pvring::ring::slot_source(slot.bytes.data()), ours);
  EXPECT_EQ(ours.id, 0x1234);
  EXPECT_EQ(ours.type, type::set_hash_mapping);
  EXPECT_EQ(ours.data[0].echo(), 7U);
  EXPECT_EQ(ours.data[1].echo(), 8U);
  EXPECT_EQ(ours.data[2].echo(), 9U);
  one_slot back;
  netif::control_wire::store_request(pvring::ring::slot_sink(back.bytes.data()), ours);
  EXPECT_EQ(std::memcmp(back.bytes.data(), &theirs, sizeof theirs), 0);
}

TEST(NetifControlWire, BothSidesReadAResponseAlike) {
  one_slot slot;
  netif::control_wire::store(pvring::ring::slot_sink(slot.bytes.data()),
                             {0x4321, type::get_grant_mapping_size},
                             {netif::control_status::invalid_parameter, 512});
  xen_netif_ctrl_response theirs{};
  std::memcpy(&theirs, slot.bytes.data(), sizeof theirs);
  EXPECT_EQ(theirs.id, 0x4321);
  EXPECT_EQ(theirs.type, XEN_NETIF_CTRL_TYPE_GET_GREF_MAPPING_SIZE);
  EXPECT_EQ(theirs.status, XEN_NETIF_CTRL_STATUS_INVALID_PARAMETER);
  EXPECT_EQ(theirs.data, 512U);
}

}  // namespace
