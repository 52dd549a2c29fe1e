// SPDX-License-Identifier: MIT
#include <filesystem>
#include <pvring/xenbus/toolstack.hpp>

#include "device_name.hpp"
#include "devices.hpp"
#include "support/engines.hpp"

namespace tool {

namespace xenbus = pvring::xenbus;

std::string attach(platform_access& platform, const attach_settings& wanted) {
  const bool read_only = wanted.read_only || wanted.cdrom;
  {
    // Opened as it will be served, so that what is wrong is said here and now.
    const auto check =
        support::open_image(wanted.image, support::file_engine::libaio, {.read_only = read_only});
  }
  // The daemon may have another working directory.
  const std::string image =
      support::is_uri(wanted.image)
          ? wanted.image
          : std::filesystem::absolute(wanted.image).lexically_normal().string();
  platform.need_domain(wanted.identity.frontend_domain);
  const auto store = platform.open_store();
  xenbus::device_description description =
      xenbus::describe_vbd(wanted.identity, {.parameters = image,
                                             .read_only = read_only,
                                             .removable = wanted.removable || wanted.cdrom,
                                             .cdrom = wanted.cdrom,
                                             .discard = wanted.discard});
  // As xl shows it.
  description.backend.emplace_back("dev", device_name(wanted.identity.device));

  const xenbus::device_path usual(wanted.identity);
  xenbus::device_identity in_guest = wanted.identity;
  in_guest.type = "vbd";
  const std::string frontend = xenbus::device_path(in_guest).frontend();
  for (const std::string& directory : {usual.backend(), frontend}) {
    if (store->read(xenbus::join(directory, "state"))) {
      throw command_error(wrong_device, device_name(wanted.identity.device) + " of domain " +
                                            std::to_string(wanted.identity.frontend_domain) +
                                            " exists already (" + directory +
                                            "): detach it first, or use another device");
    }
  }
  return create_device(*store, description).backend();
}

}  // namespace tool
