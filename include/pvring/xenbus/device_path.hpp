// SPDX-License-Identifier: MIT
// Which device, and where its two ends keep their nodes. The links that the toolstack wrote decide
// where the other end is; without them it is the usual place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "../base/error.hpp"
#include "../platform/store.hpp"
#include "node.hpp"

namespace pvring::xenbus {

/// What makes a device that device.
struct device_identity {
  domain_id backend_domain = 0;
  domain_id frontend_domain = 0;
  std::string type = "vbd";
  std::uint32_t device = 0;

  friend bool operator==(const device_identity&, const device_identity&) = default;
};

/// Where the nodes of one device are.
class device_path {
 public:
  /// The usual directories of a device.
  /// \throws configuration_error when the type cannot be part of a path
  explicit device_path(device_identity identity)
      : identity_(std::move(identity)),
        backend_(usual_backend(checked(identity_))),
        frontend_(usual_frontend(identity_)) {}

  /// Directories that are not the usual ones, as links in the store said.
  device_path(device_identity identity, std::string backend, std::string frontend)
      : identity_(std::move(identity)),
        backend_(std::move(backend)),
        frontend_(std::move(frontend)) {}

  [[nodiscard]] const device_identity& identity() const noexcept { return identity_; }
  [[nodiscard]] const std::string& backend() const noexcept { return backend_; }
  [[nodiscard]] const std::string& frontend() const noexcept { return frontend_; }

  /// The node in which the backend says what went wrong, where Linux's backends say it: below the
  /// writer's own home.
  [[nodiscard]] std::string backend_error() const {
    return error_node(identity_.backend_domain, "/backend/" + identity_.type + '/' +
                                                    std::to_string(identity_.frontend_domain) +
                                                    '/' + std::to_string(identity_.device));
  }
  /// The same of the frontend.
  [[nodiscard]] std::string frontend_error() const {
    return error_node(identity_.frontend_domain,
                      "/device/" + identity_.type + '/' + std::to_string(identity_.device));
  }

  /// For messages: `vbd 51712 of domain 3`.
  [[nodiscard]] std::string name() const {
    return identity_.type + ' ' + std::to_string(identity_.device) + " of domain " +
           std::to_string(identity_.frontend_domain);
  }

 private:
  static const device_identity& checked(const device_identity& identity) {
    if (!is_absolute_path('/' + identity.type) || identity.type.find('/') != std::string::npos) {
      throw configuration_error(
          "device type '" + identity.type +
          "' cannot be part of a store path: use letters, digits, '-' and '_'");
    }
    return identity;
  }
  static std::string home(domain_id domain) { return "/local/domain/" + std::to_string(domain); }
  static std::string usual_backend(const device_identity& identity) {
    return home(identity.backend_domain) + "/backend/" + identity.type + '/' +
           std::to_string(identity.frontend_domain) + '/' + std::to_string(identity.device);
  }
  static std::string usual_frontend(const device_identity& identity) {
    return home(identity.frontend_domain) + "/device/" + identity.type + '/' +
           std::to_string(identity.device);
  }
  static std::string error_node(domain_id writer, std::string_view below) {
    return home(writer) + "/error" + std::string(below) + "/error";
  }

  device_identity identity_;
  std::string backend_;
  std::string frontend_;
};

/// The device of a usual backend directory, or of a node below it; nothing for any other path,
/// however short or odd. For daemons that learn of devices by watching the directory of their type.
[[nodiscard]] inline std::optional<device_identity> parse_backend_directory(std::string_view path) {
  std::array<std::string_view, 7> parts;  // local domain B backend TYPE F DEVICE
  for (std::string_view& part : parts) {
    if (path.empty() || path.front() != '/') {
      return std::nullopt;
    }
    path.remove_prefix(1);
    part = path.substr(0, path.find('/'));
    if (part.empty()) {
      return std::nullopt;
    }
    path.remove_prefix(part.size());
  }
  const auto backend = parse_unsigned<domain_id>(parts[2]);
  const auto frontend = parse_unsigned<domain_id>(parts[5]);
  const auto device = parse_unsigned<std::uint32_t>(parts[6]);
  if (parts[0] != "local" || parts[1] != "domain" || parts[3] != "backend" || !backend ||
      !frontend || !device) {
    return std::nullopt;
  }
  return device_identity{*backend, *frontend, std::string(parts[4]), *device};
}

namespace detail {

template <platform::node_access Access>
[[nodiscard]] std::string follow_link(Access& access, const std::string& link, domain_id writer,
                                      const std::string& usual) {
  std::optional<std::string> value = access.read(link);
  if (!value) {
    return usual;
  }
  if (!is_absolute_path(*value)) {
    throw node_error(link, *value, writer,
                     "write the absolute path of the other end's directory, such as " + usual);
  }
  return *std::move(value);
}

}  // namespace detail

/// The paths of a device as its backend finds them: the `frontend` link in its own directory is
/// honoured, and `frontend-id`, where it is there, has to fit.
/// \throws node_error for this device when either is malformed
template <platform::node_access Access>
[[nodiscard]] device_path resolve_from_backend(Access& access, const device_identity& identity) {
  const device_path usual(identity);
  const domain_id id = identity.frontend_domain;
  (void)find_unsigned<domain_id>(access, join(usual.backend(), "frontend-id"),
                                 identity.backend_domain, {id, id});
  return {identity, usual.backend(),
          detail::follow_link(access, join(usual.backend(), "frontend"), identity.backend_domain,
                              usual.frontend())};
}

/// The paths of a device as its frontend finds them: the `backend` link in its own directory is
/// honoured.
/// \throws node_error for this device when it is malformed
template <platform::node_access Access>
[[nodiscard]] device_path resolve_from_frontend(Access& access, const device_identity& identity) {
  const device_path usual(identity);
  const domain_id id = identity.backend_domain;
  (void)find_unsigned<domain_id>(access, join(usual.frontend(), "backend-id"),
                                 identity.frontend_domain, {id, id});
  return {identity,
          detail::follow_link(access, join(usual.frontend(), "backend"), identity.frontend_domain,
                              usual.backend()),
          usual.frontend()};
}

}  // namespace pvring::xenbus
