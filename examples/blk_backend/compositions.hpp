// SPDX-License-Identifier: MIT
// The compositions that this program has, by platform; each is compiled in a file of its own.
#pragma once

#include <memory>
#include <pvring/observe/full.hpp>
#include <pvring/observe/none.hpp>
#include <pvring/ring/journal.hpp>

#include "platform_access.hpp"
#include "support/engines.hpp"

namespace pvring::platform {
class emulated;
class xen;
}  // namespace pvring::platform

namespace tool {

template <class Platform>
struct plain : pvring::default_config {
  using platform = Platform;
  using engine = support::engines;
  using journal = pvring::ring::shared_journal;
};
/// Records every request, for --trace.
template <class Platform>
struct traced : plain<Platform> {
  using observe = pvring::observe::full;
};

std::unique_ptr<served_device> serve_plain(pvring::platform::emulated& host,
                                           const device_request& wanted);
std::unique_ptr<served_device> serve_traced(pvring::platform::emulated& host,
                                            const device_request& wanted);
std::unique_ptr<served_device> serve_plain(pvring::platform::xen& host,
                                           const device_request& wanted);
std::unique_ptr<served_device> serve_traced(pvring::platform::xen& host,
                                            const device_request& wanted);

}  // namespace tool
