// SPDX-License-Identifier: MIT
// A grant strategy of one's own: grant copy, but one call per request instead of one per pass. It
// is what several published backends do, and a useful thing to measure the batched one against.
#pragma once

#include <pvring/grant/batched_copy.hpp>

namespace example {

struct copy_each {
  using policy_kind = pvring::policy_kind::grants;
  static constexpr std::string_view name = "copy_each";
  static constexpr bool needs_frontend = false;

  static constexpr bool usable(const pvring::grant::circumstances& known) noexcept {
    return known.has_copy;
  }

  template <pvring::platform::grant_mapper Mapper>
  class bind : public pvring::grant::batched_copy::bind<Mapper> {
    using batched = pvring::grant::batched_copy::bind<Mapper>;

   public:
    using batched::batched;

    pvring::grant::acquired acquire(pvring::grant::lease_state& lease) noexcept {
      using pvring::grant::acquired;
      const acquired outcome = batched::acquire(lease);
      if (outcome != acquired::queued) {
        return outcome;
      }
      batched::finish_acquires([](pvring::grant::lease_state&) {});
      return lease.error == 0 ? acquired::ready : acquired::failed;
    }

    template <class F>
    void release(pvring::grant::lease_state& lease, bool ok, F&& each) noexcept {
      batched::release(lease, ok, each);
      batched::finish_releases(each);
    }
  };
};

}  // namespace example
