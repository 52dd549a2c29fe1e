// SPDX-License-Identifier: MIT
// The block protocol's own numbers must fit each other; that they are Xen's is in tests/wire.
#include "pvring/protocol/blkif.hpp"

#include <gtest/gtest.h>

namespace {

namespace blkif = pvring::protocol::blkif;

static_assert(blkif::sectors_per_page * blkif::sector_bytes == 4096);
static_assert(blkif::last_sector_of_page == 7);
static_assert(blkif::max_indirect_segments == 4096);
static_assert(sizeof(blkif::segment) * blkif::segments_per_indirect_page == 4096);
// A slot must hold a response as well as each kind of request.
static_assert(sizeof(blkif::x86_64_layouts::response) <= sizeof(blkif::x86_64_layouts::request));
static_assert(sizeof(blkif::x86_64_layouts::indirect_request) <=
              sizeof(blkif::x86_64_layouts::request));
static_assert(sizeof(blkif::x86_64_layouts::discard_request) <=
              sizeof(blkif::x86_64_layouts::request));
static_assert(sizeof(blkif::x86_32_layouts::response) <= sizeof(blkif::x86_32_layouts::request));
static_assert(sizeof(blkif::x86_32_layouts::indirect_request) <=
              sizeof(blkif::x86_32_layouts::request));
static_assert(sizeof(blkif::x86_32_layouts::discard_request) <=
              sizeof(blkif::x86_32_layouts::request));

}  // namespace
