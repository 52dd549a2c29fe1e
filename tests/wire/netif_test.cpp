// SPDX-License-Identifier: MIT
// Our network protocol against Xen's public header: structs, numbers, ring sizes, and each side
// reading what the other wrote.
#include <gtest/gtest.h>
#include <xen/grant_table.h>
#include <xen/io/netif.h>
#include <xen/xen.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "pvring/protocol/netif_abi.hpp"
#include "pvring/protocol/ring_page.hpp"
#include "pvring/ring/shared_access.hpp"

namespace {

namespace netif = pvring::protocol::netif;

static_assert(netif::tx_flag::csum_blank == NETTXF_csum_blank);
static_assert(netif::tx_flag::data_validated == NETTXF_data_validated);
static_assert(netif::tx_flag::more_data == NETTXF_more_data);
static_assert(netif::tx_flag::extra_info == NETTXF_extra_info);
static_assert(netif::rx_flag::data_validated == NETRXF_data_validated);
static_assert(netif::rx_flag::csum_blank == NETRXF_csum_blank);
static_assert(netif::rx_flag::more_data == NETRXF_more_data);
static_assert(netif::rx_flag::extra_info == NETRXF_extra_info);
static_assert(netif::rx_flag::gso_prefix == NETRXF_gso_prefix);
static_assert(netif::extra_type::none == XEN_NETIF_EXTRA_TYPE_NONE);
static_assert(netif::extra_type::gso == XEN_NETIF_EXTRA_TYPE_GSO);
static_assert(netif::extra_type::multicast_add == XEN_NETIF_EXTRA_TYPE_MCAST_ADD);
static_assert(netif::extra_type::multicast_delete == XEN_NETIF_EXTRA_TYPE_MCAST_DEL);
static_assert(netif::extra_type::hash == XEN_NETIF_EXTRA_TYPE_HASH);
static_assert(netif::extra_type::end == XEN_NETIF_EXTRA_TYPE_MAX);
static_assert(netif::extra_more == XEN_NETIF_EXTRA_FLAG_MORE);
static_assert(netif::gso_type::none == XEN_NETIF_GSO_TYPE_NONE);
static_assert(netif::gso_type::tcpv4 == XEN_NETIF_GSO_TYPE_TCPV4);
static_assert(netif::gso_type::tcpv6 == XEN_NETIF_GSO_TYPE_TCPV6);
static_assert(netif::hash_algorithm::none == XEN_NETIF_CTRL_HASH_ALGORITHM_NONE);
static_assert(netif::hash_algorithm::toeplitz == XEN_NETIF_CTRL_HASH_ALGORITHM_TOEPLITZ);
static_assert(netif::hash_type::ipv4 == _XEN_NETIF_CTRL_HASH_TYPE_IPV4);
static_assert(netif::hash_type::ipv4_tcp == _XEN_NETIF_CTRL_HASH_TYPE_IPV4_TCP);
static_assert(netif::hash_type::ipv6 == _XEN_NETIF_CTRL_HASH_TYPE_IPV6);
static_assert(netif::hash_type::ipv6_tcp == _XEN_NETIF_CTRL_HASH_TYPE_IPV6_TCP);
static_assert(static_cast<int>(netif::status::okay) == NETIF_RSP_OKAY);
static_assert(static_cast<int>(netif::status::error) == NETIF_RSP_ERROR);
static_assert(static_cast<int>(netif::status::dropped) == NETIF_RSP_DROPPED);
static_assert(static_cast<int>(netif::status::null) == NETIF_RSP_NULL);
static_assert(netif::slots_min == XEN_NETIF_NR_SLOTS_MIN);
static_assert(netif::max_packet_bytes == XEN_NETIF_MAX_TX_SIZE);

static_assert(sizeof(netif::tx_request_layout) == sizeof(netif_tx_request));
static_assert(offsetof(netif::tx_request_layout, gref) == offsetof(netif_tx_request, gref));
static_assert(offsetof(netif::tx_request_layout, offset) == offsetof(netif_tx_request, offset));
static_assert(offsetof(netif::tx_request_layout, flags) == offsetof(netif_tx_request, flags));
static_assert(offsetof(netif::tx_request_layout, id) == offsetof(netif_tx_request, id));
static_assert(offsetof(netif::tx_request_layout, size) == offsetof(netif_tx_request, size));
static_assert(sizeof(netif::tx_response_layout) == sizeof(netif_tx_response));
static_assert(offsetof(netif::tx_response_layout, status) == offsetof(netif_tx_response, status));
static_assert(sizeof(netif::rx_request_layout) == sizeof(netif_rx_request));
static_assert(offsetof(netif::rx_request_layout, id) == offsetof(netif_rx_request, id));
static_assert(offsetof(netif::rx_request_layout, gref) == offsetof(netif_rx_request, gref));
static_assert(sizeof(netif::rx_response_layout) == sizeof(netif_rx_response));
static_assert(offsetof(netif::rx_response_layout, id) == offsetof(netif_rx_response, id));
static_assert(offsetof(netif::rx_response_layout, offset) == offsetof(netif_rx_response, offset));
static_assert(offsetof(netif::rx_response_layout, flags) == offsetof(netif_rx_response, flags));
static_assert(offsetof(netif::rx_response_layout, status) == offsetof(netif_rx_response, status));
static_assert(sizeof(netif::extra_info_layout) == sizeof(netif_extra_info));
static_assert(offsetof(netif::extra_info_layout, data) == offsetof(netif_extra_info, u));
static_assert(sizeof(netif::gso_layout) == sizeof(netif_extra_info::u.gso));
static_assert(sizeof(netif::hash_layout) == sizeof(netif_extra_info::u.hash));
static_assert(netif::tx_wire::slot_bytes == sizeof(netif_tx_sring_entry));
static_assert(netif::rx_wire::slot_bytes == sizeof(netif_rx_sring_entry));
static_assert(pvring::protocol::ring_header_bytes == offsetof(netif_tx_sring, ring));
static_assert(pvring::protocol::ring_header_bytes == offsetof(netif_rx_sring, ring));

class one_slot {
 public:
  template <class T>
  void vendor_writes(const T& from) {
    bytes_.fill(std::byte{0xee});
    std::memcpy(bytes_.data(), &from, sizeof from);
  }
  template <class T>
  [[nodiscard]] T vendor_reads() const {
    T to;
    std::memcpy(&to, bytes_.data(), sizeof to);
    return to;
  }
  [[nodiscard]] pvring::ring::slot_source source() {
    return pvring::ring::slot_source(bytes_.data());
  }
  [[nodiscard]] pvring::ring::slot_sink sink() { return pvring::ring::slot_sink(bytes_.data()); }

 private:
  alignas(8) std::array<std::byte, 16> bytes_{};
};

TEST(NetifWire, BothSidesReadATransmitRequestAlike) {
  one_slot slot;
  slot.vendor_writes(netif_tx_request{0x80000001U, 0x1234, 0x000f, 0x9abc, 0xdef0});
  netif::tx_slot raw;
  netif::tx_wire::fetch(slot.source(), raw);
  const auto ours = raw.as_request();
  EXPECT_EQ(ours.gref, 0x80000001U);
  EXPECT_EQ(ours.offset.echo(), 0x1234);
  EXPECT_EQ(ours.flags, 0x000f);
  EXPECT_EQ(ours.id, 0x9abc);
  EXPECT_EQ(ours.size.echo(), 0xdef0);
  one_slot back;
  netif::tx_wire::store_request(back.sink(), netif::tx_slot(ours));
  const auto theirs = back.vendor_reads<netif_tx_request>();
  EXPECT_EQ(theirs.gref, 0x80000001U);
  EXPECT_EQ(theirs.offset, 0x1234);
  EXPECT_EQ(theirs.flags, 0x000f);
  EXPECT_EQ(theirs.id, 0x9abc);
  EXPECT_EQ(theirs.size, 0xdef0);
}

TEST(NetifWire, BothSidesReadATransmitResponseAlike) {
  one_slot slot;
  netif::tx_wire::store(slot.sink(), {0x1234}, netif::status::dropped);
  EXPECT_EQ(slot.vendor_reads<netif_tx_response>().id, 0x1234);
  EXPECT_EQ(slot.vendor_reads<netif_tx_response>().status, NETIF_RSP_DROPPED);
  slot.vendor_writes(netif_tx_response{7, NETIF_RSP_NULL});
  EXPECT_EQ(netif::tx_wire::fetch_response(slot.source()).status, NETIF_RSP_NULL);
}

TEST(NetifWire, BothSidesReadAReceiveRequestAndItsResponseAlike) {
  one_slot slot;
  slot.vendor_writes(netif_rx_request{0x1234, 0xffff, 0x80000002U});
  netif::rx_wire::request ours;
  netif::rx_wire::fetch(slot.source(), ours);
  EXPECT_EQ(ours.id, 0x1234);
  EXPECT_EQ(ours.gref, 0x80000002U);
  netif::rx_wire::store_request(slot.sink(), ours);
  EXPECT_EQ(slot.vendor_reads<netif_rx_request>().gref, 0x80000002U);
  netif::rx_wire::store(slot.sink(), {0x4321},
                        {.offset = 2, .flags = NETRXF_more_data, .status = 4000});
  const auto theirs = slot.vendor_reads<netif_rx_response>();
  EXPECT_EQ(theirs.id, 0x4321);
  EXPECT_EQ(theirs.offset, 2);
  EXPECT_EQ(theirs.flags, NETRXF_more_data);
  EXPECT_EQ(theirs.status, 4000);
}

TEST(NetifWire, BothSidesReadExtraInfosAlike) {
  one_slot slot;
  netif_extra_info theirs{};
  theirs.type = XEN_NETIF_EXTRA_TYPE_GSO;
  theirs.flags = XEN_NETIF_EXTRA_FLAG_MORE;
  theirs.u.gso.size = 1448;
  theirs.u.gso.type = XEN_NETIF_GSO_TYPE_TCPV6;
  slot.vendor_writes(theirs);
  netif::tx_slot raw;
  netif::tx_wire::fetch(slot.source(), raw);
  EXPECT_EQ(raw.as_extra().type, netif::extra_type::gso);
  EXPECT_EQ(raw.as_extra().flags, netif::extra_more);
  EXPECT_EQ(raw.as_extra().gso_size(), 1448);
  EXPECT_EQ(raw.as_extra().gso_type(), netif::gso_type::tcpv6);

  netif::rx_wire::store(
      slot.sink(), {0},
      {.is_extra = true,
       .extra = netif::extra_info::of_hash(netif::hash_algorithm::toeplitz,
                                           netif::hash_type::ipv4_tcp, 0x04030201)});
  theirs = slot.vendor_reads<netif_extra_info>();
  EXPECT_EQ(theirs.type, XEN_NETIF_EXTRA_TYPE_HASH);
  EXPECT_EQ(theirs.u.hash.algorithm, XEN_NETIF_CTRL_HASH_ALGORITHM_TOEPLITZ);
  EXPECT_EQ(theirs.u.hash.type, _XEN_NETIF_CTRL_HASH_TYPE_IPV4_TCP);
  for (std::uint8_t i = 0; i < 4; ++i) {
    EXPECT_EQ(theirs.u.hash.value[i], i + 1) << "the lowest byte first";
  }

  netif::tx_wire::store_request(
      slot.sink(), netif::tx_slot(netif::extra_info::of_multicast(true, {1, 2, 3, 4, 5, 6})));
  theirs = slot.vendor_reads<netif_extra_info>();
  EXPECT_EQ(theirs.type, XEN_NETIF_EXTRA_TYPE_MCAST_ADD);
  EXPECT_EQ(theirs.u.mcast.addr[5], 6);
}

}  // namespace
