// SPDX-License-Identifier: MIT
// What must hold between our block structs and Xen's, for either ABI: same_layout compares offsets
// and sizes when compiled, blkif_wire_checks lets one side read what the other wrote.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pvring/protocol/blkif.hpp"
#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/protocol/ring_page.hpp"
#include "pvring/ring/shared_access.hpp"

namespace wire_test {

namespace blkif = pvring::protocol::blkif;

template <class Vendor, class Ours>
struct same_layout {
  using v_request = typename Vendor::request;
  using o_request = typename Ours::request;
  static_assert(sizeof(o_request) == sizeof(v_request));
  static_assert(offsetof(o_request, operation) == offsetof(v_request, operation));
  static_assert(sizeof(o_request::operation) == sizeof(v_request::operation));
  static_assert(offsetof(o_request, nr_segments) == offsetof(v_request, nr_segments));
  static_assert(sizeof(o_request::nr_segments) == sizeof(v_request::nr_segments));
  static_assert(offsetof(o_request, handle) == offsetof(v_request, handle));
  static_assert(sizeof(o_request::handle) == sizeof(v_request::handle));
  static_assert(offsetof(o_request, id) == offsetof(v_request, id));
  static_assert(sizeof(o_request::id) == sizeof(v_request::id));
  static_assert(offsetof(o_request, sector_number) == offsetof(v_request, sector_number));
  static_assert(sizeof(o_request::sector_number) == sizeof(v_request::sector_number));
  static_assert(offsetof(o_request, seg) == offsetof(v_request, seg));
  static_assert(sizeof(o_request::seg) == sizeof(v_request::seg));

  using v_segment = typename Vendor::segment;
  static_assert(sizeof(blkif::segment) == sizeof(v_segment));
  static_assert(offsetof(blkif::segment, gref) == offsetof(v_segment, gref));
  static_assert(sizeof(blkif::segment::gref) == sizeof(v_segment::gref));
  static_assert(offsetof(blkif::segment, first_sect) == offsetof(v_segment, first_sect));
  static_assert(sizeof(blkif::segment::first_sect) == sizeof(v_segment::first_sect));
  static_assert(offsetof(blkif::segment, last_sect) == offsetof(v_segment, last_sect));
  static_assert(sizeof(blkif::segment::last_sect) == sizeof(v_segment::last_sect));

  using v_discard = typename Vendor::discard_request;
  using o_discard = typename Ours::discard_request;
  static_assert(sizeof(o_discard) == sizeof(v_discard));
  static_assert(offsetof(o_discard, operation) == offsetof(v_discard, operation));
  static_assert(offsetof(o_discard, flag) == offsetof(v_discard, flag));
  static_assert(sizeof(o_discard::flag) == sizeof(v_discard::flag));
  static_assert(offsetof(o_discard, handle) == offsetof(v_discard, handle));
  static_assert(offsetof(o_discard, id) == offsetof(v_discard, id));
  static_assert(offsetof(o_discard, sector_number) == offsetof(v_discard, sector_number));
  static_assert(offsetof(o_discard, nr_sectors) == offsetof(v_discard, nr_sectors));
  static_assert(sizeof(o_discard::nr_sectors) == sizeof(v_discard::nr_sectors));

  using v_indirect = typename Vendor::indirect_request;
  using o_indirect = typename Ours::indirect_request;
  static_assert(offsetof(o_indirect, operation) == offsetof(v_indirect, operation));
  static_assert(offsetof(o_indirect, indirect_op) == offsetof(v_indirect, indirect_op));
  static_assert(sizeof(o_indirect::indirect_op) == sizeof(v_indirect::indirect_op));
  static_assert(offsetof(o_indirect, nr_segments) == offsetof(v_indirect, nr_segments));
  static_assert(sizeof(o_indirect::nr_segments) == sizeof(v_indirect::nr_segments));
  static_assert(offsetof(o_indirect, id) == offsetof(v_indirect, id));
  static_assert(offsetof(o_indirect, sector_number) == offsetof(v_indirect, sector_number));
  static_assert(offsetof(o_indirect, handle) == offsetof(v_indirect, handle));
  static_assert(offsetof(o_indirect, indirect_grefs) == offsetof(v_indirect, indirect_grefs));
  static_assert(sizeof(o_indirect::indirect_grefs) == sizeof(v_indirect::indirect_grefs));

  using v_response = typename Vendor::response;
  using o_response = typename Ours::response;
  static_assert(sizeof(o_response) == sizeof(v_response));
  static_assert(offsetof(o_response, id) == offsetof(v_response, id));
  static_assert(sizeof(o_response::id) == sizeof(v_response::id));
  static_assert(offsetof(o_response, operation) == offsetof(v_response, operation));
  static_assert(sizeof(o_response::operation) == sizeof(v_response::operation));
  static_assert(offsetof(o_response, status) == offsetof(v_response, status));
  static_assert(sizeof(o_response::status) == sizeof(v_response::status));

  // Slots hold either, and begin where Xen's begin.
  static_assert(sizeof(o_request) == sizeof(typename Vendor::slot));
  static_assert(pvring::protocol::ring_header_bytes == offsetof(typename Vendor::ring, ring));
  using indices = pvring::protocol::ring_indices<>;
  using v_ring = typename Vendor::ring;
  static_assert(offsetof(indices, req_prod) == offsetof(v_ring, req_prod));
  static_assert(offsetof(indices, req_event) == offsetof(v_ring, req_event));
  static_assert(offsetof(indices, rsp_prod) == offsetof(v_ring, rsp_prod));
  static_assert(offsetof(indices, rsp_event) == offsetof(v_ring, rsp_event));
  static_assert(sizeof(indices::req_prod) == sizeof(v_ring::req_prod));
  static constexpr bool value = true;
};

/// Xen's structs and ours, each reading what the other wrote, in one slot.
template <class Vendor, class Wire>
class wire_pair {
 public:
  static_assert(Wire::slot_bytes == sizeof(typename Vendor::slot));

  wire_pair() { slot_.fill(std::byte{0xee}); }

  template <class T>
  void vendor_writes(const T& from) {
    std::memcpy(slot_.data(), &from, sizeof from);
  }
  template <class T>
  [[nodiscard]] T vendor_reads() const {
    T to;
    std::memcpy(&to, slot_.data(), sizeof to);
    return to;
  }
  [[nodiscard]] blkif::request we_read() {
    blkif::request to{};
    Wire::fetch(pvring::ring::slot_source(slot_.data()), to);
    return to;
  }
  void we_write(const blkif::request& from) {
    Wire::store_request(pvring::ring::slot_sink(slot_.data()), from);
  }
  void we_answer(const blkif::echo& to, blkif::status status) {
    Wire::store(pvring::ring::slot_sink(slot_.data()), to, status);
  }
  [[nodiscard]] typename Wire::response we_read_response() {
    return Wire::fetch_response(pvring::ring::slot_source(slot_.data()));
  }

 private:
  alignas(8) std::array<std::byte, Wire::slot_bytes> slot_{};
};

template <class Vendor, class Wire>
void direct_requests_agree() {
  wire_pair<Vendor, Wire> pair;
  typename Vendor::request sent{};
  sent.operation = blkif::operation::write;
  sent.nr_segments = blkif::max_direct_segments;
  sent.handle = 0x1234;
  sent.id = 0x1122334455667788U;
  sent.sector_number = 0x99aabbccddeeff00U;
  for (unsigned i = 0; i < blkif::max_direct_segments; ++i) {
    sent.seg[i].gref = 0x80000000U + i;
    sent.seg[i].first_sect = static_cast<std::uint8_t>(i % 8);
    sent.seg[i].last_sect = static_cast<std::uint8_t>(255 - i);
  }
  pair.vendor_writes(sent);
  const blkif::request got = pair.we_read();
  EXPECT_EQ(got.operation, blkif::operation::write);
  EXPECT_EQ(got.nr_segments.echo(), 11U);
  EXPECT_EQ(got.id, 0x1122334455667788U);
  EXPECT_EQ(got.sector_number.echo(), 0x99aabbccddeeff00U);
  for (unsigned i = 0; i < blkif::max_direct_segments; ++i) {
    EXPECT_EQ(got.direct[i].gref, 0x80000000U + i);
    EXPECT_EQ(got.direct[i].first_sect, i % 8);
    EXPECT_EQ(got.direct[i].last_sect, 255 - i);
  }
  wire_pair<Vendor, Wire> back;
  back.we_write(got);
  const auto seen = back.template vendor_reads<typename Vendor::request>();
  EXPECT_EQ(seen.operation, sent.operation);
  EXPECT_EQ(seen.nr_segments, sent.nr_segments);
  EXPECT_EQ(std::uint64_t{seen.id}, std::uint64_t{sent.id});
  EXPECT_EQ(std::uint64_t{seen.sector_number}, std::uint64_t{sent.sector_number});
  for (unsigned i = 0; i < blkif::max_direct_segments; ++i) {
    EXPECT_EQ(std::uint32_t{seen.seg[i].gref}, std::uint32_t{sent.seg[i].gref});
    EXPECT_EQ(seen.seg[i].first_sect, sent.seg[i].first_sect);
    EXPECT_EQ(seen.seg[i].last_sect, sent.seg[i].last_sect);
  }
}

template <class Vendor, class Wire>
void discard_requests_agree() {
  wire_pair<Vendor, Wire> pair;
  typename Vendor::discard_request sent{};
  sent.operation = blkif::operation::discard;
  sent.flag = blkif::discard_secure;
  sent.handle = 0x1234;
  sent.id = 0x1122334455667788U;
  sent.sector_number = 0x99aabbccddeeff00U;
  sent.nr_sectors = 0x0102030405060708U;
  pair.vendor_writes(sent);
  const blkif::request got = pair.we_read();
  EXPECT_EQ(got.operation, blkif::operation::discard);
  EXPECT_EQ(got.flag, blkif::discard_secure);
  EXPECT_EQ(got.id, 0x1122334455667788U);
  EXPECT_EQ(got.sector_number.echo(), 0x99aabbccddeeff00U);
  EXPECT_EQ(got.nr_sectors.echo(), 0x0102030405060708U);
  wire_pair<Vendor, Wire> back;
  back.we_write(got);
  const auto seen = back.template vendor_reads<typename Vendor::discard_request>();
  EXPECT_EQ(seen.operation, sent.operation);
  EXPECT_EQ(seen.flag, sent.flag);
  EXPECT_EQ(std::uint64_t{seen.id}, std::uint64_t{sent.id});
  EXPECT_EQ(std::uint64_t{seen.sector_number}, std::uint64_t{sent.sector_number});
  EXPECT_EQ(std::uint64_t{seen.nr_sectors}, std::uint64_t{sent.nr_sectors});
}

template <class Vendor, class Wire>
void indirect_requests_agree() {
  wire_pair<Vendor, Wire> pair;
  typename Vendor::indirect_request sent{};
  sent.operation = blkif::operation::indirect;
  sent.indirect_op = blkif::operation::write;
  sent.nr_segments = blkif::max_indirect_segments;
  sent.handle = 0x1234;
  sent.id = 0x1122334455667788U;
  sent.sector_number = 0x99aabbccddeeff00U;
  for (unsigned i = 0; i < blkif::max_indirect_pages; ++i) {
    sent.indirect_grefs[i] = 0xf0000000U + i;
  }
  pair.vendor_writes(sent);
  const blkif::request got = pair.we_read();
  EXPECT_EQ(got.operation, blkif::operation::indirect);
  EXPECT_EQ(got.indirect_operation, blkif::operation::write);
  EXPECT_EQ(got.nr_segments.echo(), 4096U);
  EXPECT_EQ(got.id, 0x1122334455667788U);
  EXPECT_EQ(got.sector_number.echo(), 0x99aabbccddeeff00U);
  for (unsigned i = 0; i < blkif::max_indirect_pages; ++i) {
    EXPECT_EQ(got.indirect_grefs[i], 0xf0000000U + i);
  }
  wire_pair<Vendor, Wire> back;
  back.we_write(got);
  const auto seen = back.template vendor_reads<typename Vendor::indirect_request>();
  EXPECT_EQ(seen.operation, sent.operation);
  EXPECT_EQ(seen.indirect_op, sent.indirect_op);
  EXPECT_EQ(std::uint16_t{seen.nr_segments}, std::uint16_t{sent.nr_segments});
  EXPECT_EQ(std::uint64_t{seen.id}, std::uint64_t{sent.id});
  EXPECT_EQ(std::uint64_t{seen.sector_number}, std::uint64_t{sent.sector_number});
  for (unsigned i = 0; i < blkif::max_indirect_pages; ++i) {
    EXPECT_EQ(std::uint32_t{seen.indirect_grefs[i]}, std::uint32_t{sent.indirect_grefs[i]});
  }
}

template <class Vendor, class Wire>
void responses_agree() {
  for (const blkif::status status :
       {blkif::status::okay, blkif::status::error, blkif::status::not_supported}) {
    wire_pair<Vendor, Wire> pair;
    pair.we_answer({0x1122334455667788U, 200}, status);
    const auto seen = pair.template vendor_reads<typename Vendor::response>();
    EXPECT_EQ(std::uint64_t{seen.id}, 0x1122334455667788U);
    EXPECT_EQ(seen.operation, 200U);
    EXPECT_EQ(std::int16_t{seen.status}, static_cast<std::int16_t>(status));

    wire_pair<Vendor, Wire> back;
    back.vendor_writes(seen);
    const auto got = back.we_read_response();
    EXPECT_EQ(got.id, 0x1122334455667788U);
    EXPECT_EQ(got.operation, 200U);
    EXPECT_EQ(got.status, static_cast<std::int16_t>(status));
  }
}

}  // namespace wire_test
