// SPDX-License-Identifier: MIT
// Ring arithmetic by example; tests/model has all of an 8-bit index.
#include "pvring/ring/index.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace {

using pvring::ring::crossed;
using pvring::ring::reachable;

static_assert(!crossed<std::uint32_t>(5, 5, 5));
static_assert(crossed<std::uint32_t>(5, 6, 6));
static_assert(!crossed<std::uint32_t>(5, 6, 5));
static_assert(!crossed<std::uint32_t>(5, 6, 7));
static_assert(crossed<std::uint32_t>(0xfffffffeU, 2, 0));
static_assert(crossed<std::uint32_t>(0xfffffffeU, 2, 0xffffffffU));
static_assert(!crossed<std::uint32_t>(0xfffffffeU, 2, 0xfffffffeU));
static_assert(crossed<std::uint32_t>(0x7ffffffeU, 0x80000001U, 0x80000000U));

static_assert(reachable<std::uint32_t>(1, 32) == 1);
static_assert(reachable<std::uint32_t>(8, 32) == 8);
static_assert(reachable<std::uint32_t>(40, 32) == 32);
static_assert(reachable<std::uint32_t>(0, 32) == 1);
static_assert(reachable<std::uint32_t>(8, 0) == 1);

}  // namespace
