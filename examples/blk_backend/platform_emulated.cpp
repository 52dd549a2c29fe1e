// SPDX-License-Identifier: MIT
#include <pvring/platform/emulated.hpp>

#include "compositions.hpp"
#include "platforms.hpp"

namespace tool {
namespace {

class emulated_access final : public platform_access {
 public:
  explicit emulated_access(const pvring::platform::emulated_host& host)
      : host_(host), self_(host) {}

  std::unique_ptr<store_connection> open_store() override {
    return std::make_unique<connection_of<pvring::platform::emulated_store>>(self_.open_store());
  }
  std::unique_ptr<served_device> serve(const device_request& wanted) override {
    return wanted.trace != nullptr ? serve_traced(self_, wanted) : serve_plain(self_, wanted);
  }
  void need_domain(pvring::domain_id domain) override {
    if (!host_.has_domain(domain)) {
      (void)host_.create_domain(domain);
    }
  }

 private:
  pvring::platform::emulated_host host_;
  pvring::platform::emulated self_;
};

}  // namespace

std::unique_ptr<platform_access> open_emulated(const pvring::platform::emulated_host& host) {
  return std::make_unique<emulated_access>(host);
}

}  // namespace tool
