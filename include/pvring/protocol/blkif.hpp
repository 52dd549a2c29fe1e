// SPDX-License-Identifier: MIT
// The block protocol on the wire (xen/io/blkif.h): operations, statuses, and the layouts of both
// ABIs. Plain structs and numbers; blkif_abi.hpp reads and writes them in a ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pvring::protocol::blkif {

/// Operations by their numbers on the wire; 4 is reserved, and a peer may send any other number
/// too.
namespace operation {
inline constexpr std::uint8_t read = 0;
inline constexpr std::uint8_t write = 1;
inline constexpr std::uint8_t write_barrier = 2;
inline constexpr std::uint8_t flush = 3;
inline constexpr std::uint8_t discard = 5;
inline constexpr std::uint8_t indirect = 6;
}  // namespace operation

enum class status : std::int16_t { okay = 0, error = -1, not_supported = -2 };

/// Ring sectors are 512 bytes, whatever `sector-size` says.
inline constexpr std::uint32_t sector_bytes = 512;
inline constexpr std::uint8_t sectors_per_page = 8;
inline constexpr std::uint8_t last_sector_of_page = sectors_per_page - 1;

/// Segments in a request's own slot.
inline constexpr std::uint16_t max_direct_segments = 11;
/// Grant references of segment pages in an indirect request.
inline constexpr std::uint16_t max_indirect_pages = 8;
inline constexpr std::uint16_t segments_per_indirect_page = 512;
/// Segments that the format can express.
inline constexpr std::uint16_t max_indirect_segments =
    max_indirect_pages * segments_per_indirect_page;

/// `flag` of a discard request.
inline constexpr std::uint8_t discard_secure = 1;

/// Bits of the `info` node.
namespace info {
inline constexpr unsigned cdrom = 1;
inline constexpr unsigned removable = 2;
inline constexpr unsigned read_only = 4;
}  // namespace info

/// A part of a granted page, in sectors of 512 bytes, both ends included.
struct segment {
  std::uint32_t gref;
  std::uint8_t first_sect;
  std::uint8_t last_sect;
  std::uint8_t reserved[2];
};
static_assert(sizeof(segment) == 8);

/// Which layout a frontend writes; `native` is that of a 64-bit host, on x86 and on arm.
enum class abi : std::uint8_t { x86_64, x86_32, native = x86_64 };

/// The value of the `protocol` node that selects an ABI.
[[nodiscard]] constexpr std::string_view to_string(abi which) noexcept {
  return which == abi::x86_32 ? "x86_32-abi" : "x86_64-abi";
}

/// A 64-bit number where the ABI aligns it to 4 bytes.
struct split_u64 {
  std::uint32_t low;
  std::uint32_t high;
};

/// The layouts of one ABI. \tparam U64 a 64-bit number with the ABI's alignment
template <class U64>
struct layouts {
  struct request {
    std::uint8_t operation;
    std::uint8_t nr_segments;
    std::uint16_t handle;
    U64 id;
    U64 sector_number;
    segment seg[max_direct_segments];
  };
  struct discard_request {
    std::uint8_t operation;
    std::uint8_t flag;
    std::uint16_t handle;
    U64 id;
    U64 sector_number;
    U64 nr_sectors;
  };
  struct indirect_request {
    std::uint8_t operation;
    std::uint8_t indirect_op;
    std::uint16_t nr_segments;
    U64 id;
    U64 sector_number;
    std::uint16_t handle;
    std::uint32_t indirect_grefs[max_indirect_pages];
  };
  struct response {
    U64 id;
    std::uint8_t operation;
    std::int16_t status;
  };
};
using x86_64_layouts = layouts<std::uint64_t>;
using x86_32_layouts = layouts<split_u64>;

}  // namespace pvring::protocol::blkif
