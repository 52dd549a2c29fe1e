// SPDX-License-Identifier: MIT
// What a ring accepts as a protocol: crippled twins of a good one, each refused for one reason.
#include "pvring/ring/protocol.hpp"

#include <gtest/gtest.h>

#include <type_traits>

#include "ping_protocol.hpp"
#include "pvring/protocol/blkif_abi.hpp"

namespace {

namespace blkif = pvring::protocol::blkif;
using pvring::ring::back_protocol;
using pvring::ring::front_protocol;
using pvring::ring::slot_sink;
using pvring::ring::slot_source;

static_assert(back_protocol<ping_protocol> && front_protocol<ping_protocol>);
static_assert(back_protocol<blkif::wire<blkif::abi::x86_64>> &&
              front_protocol<blkif::wire<blkif::abi::x86_64>>);
static_assert(back_protocol<blkif::wire<blkif::abi::x86_32>> &&
              front_protocol<blkif::wire<blkif::abi::x86_32>>);
static_assert(!back_protocol<int> && !front_protocol<int>);

struct throwing_fetch : ping_protocol {
  static void fetch(slot_source slot, request& into) { ping_protocol::fetch(slot, into); }
};
static_assert(!back_protocol<throwing_fetch> && front_protocol<throwing_fetch>);

struct fetch_by_pointer : ping_protocol {
  static void fetch(const void*, request&) noexcept {}
};
static_assert(!back_protocol<fetch_by_pointer>);

struct refusing_fetch : ping_protocol {
  static bool fetch(slot_source, request&) noexcept { return false; }
};
static_assert(!back_protocol<refusing_fetch>);

struct throwing_store : ping_protocol {
  static void store(slot_sink slot, const echo& to, status s) { ping_protocol::store(slot, to, s); }
};
static_assert(!back_protocol<throwing_store> && front_protocol<throwing_store>);

struct store_without_status : ping_protocol {
  static void store(slot_sink, const echo&) noexcept {}
};
static_assert(!back_protocol<store_without_status>);

struct throwing_response : ping_protocol {
  static response fetch_response(slot_source slot) { return ping_protocol::fetch_response(slot); }
};
static_assert(!front_protocol<throwing_response> && back_protocol<throwing_response>);

struct other_response : ping_protocol {
  static int fetch_response(slot_source) noexcept { return 0; }
};
static_assert(!front_protocol<other_response>);

struct without_slot_bytes {
  using request = ping_protocol::request;
  using echo = ping_protocol::echo;
  using status = ping_protocol::status;
  static void fetch(slot_source, request&) noexcept {}
  static void store(slot_sink, const echo&, status) noexcept {}
};
static_assert(!back_protocol<without_slot_bytes>);

}  // namespace
