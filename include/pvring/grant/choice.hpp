// SPDX-License-Identifier: MIT
// Which strategy runs is decided at connect: what the platform can do is probed, feature-persistent
// is advertised only where it would be used, the frontend's answer is read, and the first strategy
// that can run is taken.
#pragma once

#include <string>
#include <string_view>

#include "strategy.hpp"

namespace pvring::grant {

/// Strategies in order of preference.
template <class... Strategies>
struct first_usable {
  using policy_kind = pvring::policy_kind::grants;
};

namespace detail {
template <class Grants>
struct strategies_of {
  template <class F>
  static bool until(F&& each) {
    return each.template operator()<Grants>();
  }
};
template <class... Strategies>
struct strategies_of<first_usable<Strategies...>> {
  template <class F>
  static bool until(F&& each) {
    return (each.template operator()<Strategies>() || ...);
  }
};
}  // namespace detail

/// A run-time restriction: only the strategy of that name may run; empty for no restriction.
using strategy_name = std::string_view;

/// Whether `name` is a strategy that the composition has.
template <class Grants>
[[nodiscard]] bool offers(strategy_name name) {
  return detail::strategies_of<Grants>::until([&]<class S>() { return S::name == name; });
}

/// The names that a composition has, for messages.
template <class Grants>
[[nodiscard]] std::string names() {
  std::string all;
  (void)detail::strategies_of<Grants>::until([&]<class S>() {
    all += (all.empty() ? "" : ", ") + std::string(S::name);
    return false;
  });
  return all;
}

/// Whether to advertise feature-persistent: only where a strategy that wants it comes before any
/// that can run without. A frontend that hears of it copies everything into pages that it keeps
/// granted, which is wasted on a backend that copies.
template <class Grants>
[[nodiscard]] bool wants_persistent(circumstances known, strategy_name only = {}) {
  bool wanted = false;
  (void)detail::strategies_of<Grants>::until([&]<class S>() {
    if (!only.empty() && S::name != only) {
      return false;
    }
    if (S::needs_frontend) {
      circumstances agreed = known;
      agreed.frontend_persistent = true;
      wanted = S::usable(agreed);
      return wanted;
    }
    return S::usable(known);
  });
  return wanted;
}

/// Calls `use.operator()<Strategy>()` for the first strategy that can run; false when none can.
template <class Grants, class Use>
[[nodiscard]] bool choose(const circumstances& known, strategy_name only, Use&& use) {
  return detail::strategies_of<Grants>::until([&]<class S>() {
    if ((!only.empty() && S::name != only) || !S::usable(known)) {
      return false;
    }
    use.template operator()<S>();
    return true;
  });
}

/// Why the choice fell as it did, for the log.
[[nodiscard]] inline std::string explain(strategy_name chosen, const circumstances& known,
                                         bool advertised) {
  return "grant strategy " + std::string(chosen) + ": the platform " +
         (known.has_copy ? "copies" : "does not copy") + ", feature-persistent was " +
         (advertised ? "" : "not ") + "advertised and the frontend " +
         (known.frontend_persistent ? "uses it" : "does not use it") +
         ", mapped pages as I/O buffers are " + (known.mapping_safe ? "safe" : "not safe") +
         " with this image";
}

}  // namespace pvring::grant
