// SPDX-License-Identifier: MIT
#include <memory>

#include "pvring/platform/emulated.hpp"
#include "pvring/testing/conformance/platform.hpp"

namespace pvring::testing::conformance {
namespace {

/// The emulated platform as domain `Self`, and guest 3 as its peer.
template <domain_id Self>
class emulated_fixture {
 public:
  using platform_type = platform::emulated;
  static constexpr bool sees_mappings = true;

  platform_type& host() { return platform_; }
  domain_id self() const { return Self; }
  domain_id peer() const { return guest_.id(); }

  shared_pages share(std::size_t count, platform::access how) {
    shared_pages pages{guest_.allocate_pages(count), {}};
    for (std::size_t i = 0; i < count; ++i) {
      pages.references.push_back(guest_.grant(Self, pages.memory + i * platform::page_size, how));
    }
    return pages;
  }
  bool withdraw(shared_pages& pages) {
    bool all = true;
    for (const platform::grant_reference r : pages.references) {
      all = guest_.end_grant(r) && all;
    }
    return all;
  }
  platform::grant_reference bad_reference() const { return 2000; }

  platform::port offer_port() { return events_.alloc_unbound(Self); }
  void kick(platform::port p) { events_.notify(p); }
  bool kicked(platform::port p) {
    events_.unmask(p);
    const auto fired = events_.pending();
    return fired == p;
  }
  std::string directory() const { return "/local/domain/" + std::to_string(Self) + "/test"; }

 private:
  platform::emulated_host machine_ = platform::emulated_host::create();
  // A driver domain needs no memory here, but a home in the store.
  std::unique_ptr<platform::emulated_guest> self_ =
      Self != 0 ? std::make_unique<platform::emulated_guest>(machine_.create_domain(Self))
                : nullptr;
  platform::emulated_guest guest_ = machine_.create_domain(3);
  platform::emulated_events events_ = guest_.open_events();
  platform::emulated platform_{machine_, Self};
};

INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, PlatformConformance, emulated_fixture<0>);
INSTANTIATE_TYPED_TEST_SUITE_P(EmulatedDriverDomain, PlatformConformance, emulated_fixture<5>);

}  // namespace
}  // namespace pvring::testing::conformance
