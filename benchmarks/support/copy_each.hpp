// SPDX-License-Identifier: MIT
// Grant copy with one call per request: what a backend does that has grant copy but does not batch.
// Only for comparison, made of batched_copy by never letting two requests share a call.
#pragma once

#include <cstdint>
#include <string_view>

#include "pvring/grant/batched_copy.hpp"
#include "pvring/platform/emulated.hpp"

namespace bench {

struct copy_each {
  using policy_kind = pvring::policy_kind::grants;
  static constexpr std::string_view name = "copy_each";
  static constexpr bool needs_frontend = false;

  [[nodiscard]] static constexpr bool usable(const pvring::grant::circumstances& known) noexcept {
    return known.has_copy;
  }

  template <pvring::platform::grant_mapper Mapper>
  class bind {
   public:
    static constexpr bool mapped = false;

    bind(Mapper& mapper, const pvring::grant::strategy_options& options)
        : batched_(mapper, options) {}

    [[nodiscard]] pvring::grant::acquired acquire(pvring::grant::lease_state& lease) noexcept {
      const pvring::grant::acquired outcome = batched_.acquire(lease);
      if (outcome != pvring::grant::acquired::queued) {
        return outcome;
      }
      batched_.finish_acquires([](pvring::grant::lease_state&) {});
      return lease.error != 0 ? pvring::grant::acquired::failed : pvring::grant::acquired::ready;
    }
    template <class F>
    void finish_acquires(F&& /*each*/) noexcept {}

    template <class F>
    void release(pvring::grant::lease_state& lease, bool ok, F&& each) noexcept {
      batched_.release(lease, ok, each);
      batched_.finish_releases(each);
    }
    template <class F>
    void finish_releases(F&& /*each*/) noexcept {}

    [[nodiscard]] std::uint64_t trim(std::uint64_t now) noexcept { return batched_.trim(now); }
    void clear() noexcept { batched_.clear(); }
    [[nodiscard]] std::uint32_t leases() const noexcept { return batched_.leases(); }
    [[nodiscard]] const pvring::grant::counters& counters() const noexcept {
      return batched_.counters();
    }

   private:
    pvring::grant::batched_copy::bind<Mapper> batched_;
  };
};

static_assert(pvring::grant::strategy<copy_each, pvring::platform::emulated_grants>);

}  // namespace bench
