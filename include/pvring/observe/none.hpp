// SPDX-License-Identifier: MIT
// Observes nothing, and costs nothing: the recorder is empty and its calls compile to no
// instruction. The default.
#pragma once

#include <cstdint>

#include "observer.hpp"

namespace pvring::observe {

struct none {
  using policy_kind = pvring::policy_kind::observer;

  /// Hold it as `[[no_unique_address]]`, and it takes no space either.
  class recorder {
   public:
    static constexpr bool active = false;

    explicit constexpr recorder(std::uint32_t /*slots*/) noexcept {}

    constexpr void stage(std::uint32_t /*slot*/, observe::stage /*reached*/) noexcept {}
    constexpr void published(bool /*notified*/) noexcept {}
    constexpr void pass(std::uint32_t /*taken*/, std::uint32_t /*answered*/) noexcept {}
  };
};

}  // namespace pvring::observe
