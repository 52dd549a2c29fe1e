// SPDX-License-Identifier: MIT
#include <pvring/platform/xen.hpp>

#include "compositions.hpp"
#include "served.hpp"

namespace tool {

std::unique_ptr<served_device> serve_plain(pvring::platform::xen& host,
                                           const device_request& wanted) {
  return std::make_unique<served_device_of<plain<pvring::platform::xen>>>(host, wanted);
}

}  // namespace tool
