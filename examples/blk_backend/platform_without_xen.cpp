// SPDX-License-Identifier: MIT
#include <pvring/base/error.hpp>

#include "platforms.hpp"

namespace tool {

bool built_with_xen() noexcept { return false; }

std::unique_ptr<platform_access> open_xen() {
  throw pvring::configuration_error(
      "option --platform is 'xen': this program was built without Xen's libraries; install "
      "libxen-dev and build it again, or use --platform emulated");
}

}  // namespace tool
