// SPDX-License-Identifier: MIT
// What a toolstack does in the store for a device: makes it, unplugs it, removes it. For demos,
// tests and tools on hosts whose own toolstack does not know the device's type.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../platform/store.hpp"
#include "../protocol/xenbus.hpp"
#include "device_path.hpp"
#include "node.hpp"

namespace pvring::xenbus {

/// Names, relative to a directory, and values.
using node_list = std::vector<std::pair<std::string, std::string>>;

/// A device to be made; what every device has needs no mention.
struct device_description {
  device_identity identity;
  node_list backend = {};   ///< what else stands in the backend's directory
  node_list frontend = {};  ///< what else stands in the frontend's
  /// The directory below device/ in which the frontend looks; empty: the backend's type. The links
  /// between the directories make up for a difference.
  std::string frontend_type = {};
};

/// What a block device needs beside that.
struct vbd_options {
  std::string parameters = {};  ///< of the image, usually its path; only the backend understands it
  bool read_only = false;
  bool removable = false;
  bool cdrom = false;
  bool discard = true;
};

[[nodiscard]] inline device_description describe_vbd(device_identity identity,
                                                     const vbd_options& options) {
  const auto flag = [](bool set) { return std::string(set ? "1" : "0"); };
  const std::string kind = options.cdrom ? "cdrom" : "disk";
  std::string number = std::to_string(identity.device);
  return {std::move(identity),
          {{"params", options.parameters},
           {"mode", options.read_only ? "r" : "w"},
           {"device-type", kind},
           {"removable", flag(options.removable)},
           {"discard-enable", flag(options.discard)}},
          {{"virtual-device", std::move(number)}, {"device-type", kind}},
          "vbd"};  // guests' drivers know no other, whoever serves the device
}

/// What a network device needs beside that.
struct vif_options {
  std::string mac = {};     ///< as in 00:16:3e:00:00:01
  std::string bridge = {};  ///< that the uplink is to be on; only the backend understands it
  std::string rate = {};    ///< BYTES,MICROSECONDS of what the guest may transmit
  std::uint32_t mtu = 0;    ///< 0: the usual 1500
};

[[nodiscard]] inline device_description describe_vif(device_identity identity,
                                                     const vif_options& options) {
  const std::string handle = std::to_string(identity.device);
  node_list backend{{"handle", handle}};
  node_list frontend{{"handle", handle}};
  const auto add = [](node_list& to, const char* name, const std::string& value) {
    if (!value.empty()) {
      to.emplace_back(name, value);
    }
  };
  const std::string mtu = options.mtu != 0 ? std::to_string(options.mtu) : std::string();
  add(backend, "mac", options.mac);
  add(backend, "bridge", options.bridge);
  add(backend, "rate", options.rate);
  add(backend, "mtu", mtu);
  add(frontend, "mac", options.mac);
  add(frontend, "mtu", mtu);
  return {std::move(identity), std::move(backend), std::move(frontend), "vif"};
}

/// Makes both directories in one transaction. Each belongs to its own end, and the other end may
/// read it. What was there before is removed first.
/// \throws configuration_error for a type that cannot be part of a path; std::system_error from the store
template <platform::store Store>
device_path create_device(Store& store, const device_description& description) {
  device_path path(description.identity);
  if (!description.frontend_type.empty()) {
    device_identity in_frontend = path.identity();
    in_frontend.type = description.frontend_type;
    path = {path.identity(), path.backend(), device_path(std::move(in_frontend)).frontend()};
  }
  const domain_id backend_domain = path.identity().backend_domain;
  const domain_id frontend_domain = path.identity().frontend_domain;
  const std::string initialising(1, protocol::to_digit(xenbus_state::initialising));

  node_list backend{{"frontend", path.frontend()},
                    {"frontend-id", std::to_string(frontend_domain)},
                    {"online", "1"},
                    {"type", path.identity().type},
                    {"state", initialising}};
  backend.insert(backend.end(), description.backend.begin(), description.backend.end());
  node_list frontend{{"backend", path.backend()},
                     {"backend-id", std::to_string(backend_domain)},
                     {"state", initialising}};
  frontend.insert(frontend.end(), description.frontend.begin(), description.frontend.end());

  store.transact([&](typename Store::transaction& t) {
    const auto make = [&t](const std::string& directory, const node_list& nodes,
                           platform::node_permissions who) {
      t.remove(directory);
      t.write(directory, "");
      t.set_permissions(directory, who);
      for (const auto& [name, value] : nodes) {
        const std::string node = join(directory, name);
        t.write(node, value);
        // Said for each node: whether a new node inherits from its directory is up to the store.
        t.set_permissions(node, who);
      }
    };
    make(path.frontend(), frontend, {frontend_domain, backend_domain});
    make(path.backend(), backend, {backend_domain, frontend_domain});
  });
  return path;
}

/// Asks for the device's end, as `xl block-detach` does: the backend tells the frontend, and ends
/// when that has closed, or at once when there is none. A device that is not there stays that way.
template <platform::store Store>
void request_unplug(Store& store, const device_path& path) {
  store.transact([&](typename Store::transaction& t) {
    if (t.read(join(path.backend(), "state"))) {
      t.write(join(path.backend(), "online"), "0");
      t.write(join(path.backend(), "state"),
              std::string(1, protocol::to_digit(xenbus_state::closing)));
    }
  });
}

/// Removes both directories, whatever state they are in: for ends that do not answer, and after a
/// proper end.
template <platform::store Store>
void force_remove(Store& store, const device_path& path) {
  store.transact([&](typename Store::transaction& t) {
    t.remove(path.backend());
    t.remove(path.frontend());
  });
}

}  // namespace pvring::xenbus
