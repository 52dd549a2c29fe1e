// SPDX-License-Identifier: MIT
// A grant handle: maps, unmaps and copies pages that another domain granted. One queue owns one
// handle, so nothing here is called from two threads.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "../base/error.hpp"

namespace pvring::platform {

/// Names a page in the granting domain's table.
using grant_reference = std::uint32_t;

/// Bytes of a granted page, whatever page size guest and host use.
inline constexpr std::size_t page_size = 4096;

enum class access : std::uint8_t { read_only, read_write };

/// Which way a copy goes, seen from the backend.
enum class direction : std::uint8_t { from_peer, to_peer };

/// Grant status of a copied piece; the numbers are Xen's (xen/grant_table.h, GNTST_*).
namespace grant_status {
inline constexpr std::int16_t okay = 0;
inline constexpr std::int16_t general_error = -1;
inline constexpr std::int16_t bad_domain = -2;
inline constexpr std::int16_t bad_reference = -3;
inline constexpr std::int16_t permission_denied = -8;
inline constexpr std::int16_t bad_copy_argument = -10;
inline constexpr std::int16_t try_again = -12;
}  // namespace grant_status

/// One piece of a grant copy: `length` bytes between `local` and `offset` in the granted page. The
/// piece lies in one granted page and in one local page (a piece that crosses a local page costs
/// two operations and two pins).
struct copy_operation {
  std::byte* local = nullptr;
  grant_reference reference = 0;
  std::uint16_t offset = 0;
  std::uint16_t length = 0;
  std::int16_t status = grant_status::okay;  ///< out
  std::uint32_t owner = 0;  ///< the caller's own mark; the platform leaves it alone
};

/// Pages mapped by one call: contiguous, and unmapped only as a whole.
struct mapping {
  std::byte* address = nullptr;
  std::uint32_t count = 0;

  [[nodiscard]] explicit operator bool() const noexcept { return address != nullptr; }
};

/// A mapping, or the errno (positive) that says why there is none.
struct map_result {
  mapping pages;
  int error = 0;
};

/// A grant handle.
///
/// - `has_copy()`: whether the platform copies at all; probed once, when the handle was opened.
/// - `map(domain, references, access)`: all references or none, one protection.
///   Errors: EINVAL (a bad reference or no permission), ENOMEM, EAGAIN, ENOSPC (over the handle's
///   quota).
/// - `unmap(mapping)`: whole, with the address and count that it was mapped with; 0, or errno.
///   No I/O may be in flight on its pages.
/// - `copy(domain, direction, operations)`: one call; 0, or an errno when the call failed as a
/// whole: then nothing
///   is known to have been copied, whatever the statuses say. After 0 each operation has its own
///   status. `try_again` is retried a bounded number of times inside.
/// - `batch_limit()`: operations that one call carries without being split into several system
/// calls.
///
/// Each of map, unmap and copy is a system call or more; nothing else is.
template <class M>
concept grant_mapper =
    requires(M& m, const M& c, domain_id domain, std::span<const grant_reference> references,
             mapping pages, std::span<copy_operation> operations) {
      { c.has_copy() } noexcept -> std::same_as<bool>;
      { m.map(domain, references, access::read_write) } noexcept -> std::same_as<map_result>;
      { m.unmap(pages) } noexcept -> std::same_as<int>;
      { m.copy(domain, direction::to_peer, operations) } noexcept -> std::same_as<int>;
      { c.batch_limit() } noexcept -> std::same_as<std::size_t>;
    };

}  // namespace pvring::platform
