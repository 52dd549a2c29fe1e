// SPDX-License-Identifier: MIT
// Pages that a backend is to write into are filled before, so that it can be seen afterwards
// whether it wrote anywhere else. Shared by all kinds of frontends.
#pragma once

#include <algorithm>
#include <cstddef>

#include "../platform/grant_mapper.hpp"

namespace pvring::testing {

namespace detail {
inline constexpr std::byte guard{0xa5};
}

inline void set_guard(std::byte* page) noexcept {
  std::fill_n(page, platform::page_size, detail::guard);
}

/// Whether all but `length` bytes from `offset` on are as they were.
/// \pre they lie in the page
[[nodiscard]] inline bool is_guarded(const std::byte* page, std::size_t offset,
                                     std::size_t length) noexcept {
  const auto untouched = [](const std::byte* from, const std::byte* to) {
    return std::all_of(from, to, [](std::byte b) { return b == detail::guard; });
  };
  return untouched(page, page + offset) &&
         untouched(page + offset + length, page + platform::page_size);
}

}  // namespace pvring::testing
