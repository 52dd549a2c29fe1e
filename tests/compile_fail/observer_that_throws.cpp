// expect: static assertion failed
// SPDX-License-Identifier: MIT
// An observer is called in the data path, which does not throw.
#include <cstdint>

#include "pvring/observe/observer.hpp"

struct loud {
  using policy_kind = pvring::policy_kind::observer;
  struct recorder {
    static constexpr bool active = true;
    explicit recorder(std::uint32_t) {}
#ifdef PVRING_CONTROL
    void stage(std::uint32_t, pvring::observe::stage) noexcept {}
#else
    void stage(std::uint32_t, pvring::observe::stage) {}
#endif
    void published(bool) noexcept {}
    void pass(std::uint32_t, std::uint32_t) noexcept {}
  };
};
static_assert(pvring::observe::observer<loud>);
