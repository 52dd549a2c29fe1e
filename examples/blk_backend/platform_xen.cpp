// SPDX-License-Identifier: MIT
#include <pvring/platform/xen.hpp>

#include "compositions.hpp"
#include "exit_codes.hpp"
#include "platforms.hpp"

namespace tool {
namespace {

class xen_access final : public platform_access {
 public:
  std::unique_ptr<store_connection> open_store() override {
    return std::make_unique<connection_of<pvring::platform::xen_store>>(self_.open_store());
  }
  std::unique_ptr<served_device> serve(const device_request& wanted) override {
    return wanted.trace != nullptr ? serve_traced(self_, wanted) : serve_plain(self_, wanted);
  }
  void need_domain(pvring::domain_id domain) override {
    auto store = self_.open_store();
    const std::string home = "/local/domain/" + std::to_string(domain);
    if (!store.read(home)) {
      throw command_error(wrong_device, "there is no domain " + std::to_string(domain) + " (" +
                                            home + " is missing in the store): see xl list");
    }
  }

 private:
  pvring::platform::xen self_;
};

}  // namespace

bool built_with_xen() noexcept { return true; }

std::unique_ptr<platform_access> open_xen() { return std::make_unique<xen_access>(); }

}  // namespace tool
