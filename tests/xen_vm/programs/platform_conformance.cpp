// SPDX-License-Identifier: MIT
// The platform suite on a real Xen, in a domain that grants to itself; run in dom0, as root. Needs
// the modules xen-gntdev, xen-gntalloc and xen-evtchn, and xenstored.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "pvring/platform/xen.hpp"
#include "pvring/platform/xen/guest.hpp"
#include "pvring/testing/conformance/platform.hpp"

namespace pvring::testing::conformance {
namespace {

// dom0, unless PVRING_DOMAIN says otherwise.
domain_id own_domain() {
  const char* said = std::getenv("PVRING_DOMAIN");
  return static_cast<domain_id>(said != nullptr ? std::atoi(said) : 0);
}

class xen_fixture {
 public:
  using platform_type = platform::xen;
  // The kernel keeps the pages of a grant that is still mapped, and says nothing.
  static constexpr bool sees_mappings = false;

  xen_fixture() {
    static std::atomic<int> next{0};
    directory_ = "/local/domain/" + std::to_string(own_domain()) + "/pvring-test-" +
                 std::to_string(::getpid()) + "-" + std::to_string(next++);
  }
  xen_fixture(const xen_fixture&) = delete;
  xen_fixture& operator=(const xen_fixture&) = delete;
  ~xen_fixture() { platform_.open_store().remove(directory_); }

  platform_type& host() { return platform_; }
  domain_id self() const { return own_domain(); }
  domain_id peer() const { return own_domain(); }

  shared_pages share(std::size_t count, platform::access how) {
    const platform::shared_range range = guest_.share(count, how);
    return {range.memory, range.references};
  }
  bool withdraw(shared_pages& pages) {
    return guest_.unshare({pages.memory, pages.references}) == 0;
  }
  platform::grant_reference bad_reference() const { return 1U << 20; }

  platform::port offer_port() {
    const platform::port p = guest_.offer_port();
    guest_.events().unmask(p);
    return p;
  }
  void kick(platform::port p) { guest_.notify(p); }
  bool kicked(platform::port p) {
    guest_.events().unmask(p);
    pollfd descriptor{guest_.events().fd(), POLLIN, 0};
    while (::poll(&descriptor, 1, 500) == 1) {
      if (guest_.events().pending() == p) {
        return true;
      }
    }
    return false;
  }
  std::string directory() const { return directory_; }

 private:
  platform::xen platform_;
  platform::xen_guest guest_{own_domain()};
  std::string directory_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Xen, PlatformConformance, xen_fixture);

}  // namespace
}  // namespace pvring::testing::conformance
