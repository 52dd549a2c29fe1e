// SPDX-License-Identifier: MIT
// Runs one combination and tells what came of it.
#pragma once

#include <functional>
#include <string>

#include "settings.hpp"

namespace demo_net {

/// Real kernels' TCP through the rings: ping, iperf3 both ways with one and four streams, and a
/// file whose SHA-256 is compared. \param say what is being done now
/// \throws no_kernel, mismatch, std::runtime_error
[[nodiscard]] outcome measure(const settings& wanted, const combination& what,
                              const std::function<void(const std::string&)>& say);

/// The same rings with packets that are made and checked here, for machines without namespaces.
[[nodiscard]] outcome measure_without_kernel(const settings& wanted, const combination& what);

}  // namespace demo_net
