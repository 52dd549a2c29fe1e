// SPDX-License-Identifier: MIT
// The platforms that this program was built with.
#pragma once

#include <memory>
#include <pvring/platform/emulated/host.hpp>
#include <string>

#include "event_loop.hpp"
#include "platform_access.hpp"

namespace tool {

/// Whether `open_xen` can do it.
[[nodiscard]] bool built_with_xen() noexcept;

/// The Xen host that this process runs on. \throws configuration_error, std::system_error
[[nodiscard]] std::unique_ptr<platform_access> open_xen();

[[nodiscard]] std::unique_ptr<platform_access> open_emulated(
    const pvring::platform::emulated_host& host);

}  // namespace tool
