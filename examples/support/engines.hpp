// SPDX-License-Identifier: MIT
// The engines that the examples were built with, and which of them an image gets.
#pragma once

#include <pvring/aio/file_image.hpp>
#include <pvring/aio/libaio.hpp>
#include <pvring/aio/one_of.hpp>
#include <pvring/base/error.hpp>
#include <pvring/base/log.hpp>
#include <string>
#include <string_view>
#include <utility>
#ifdef EXAMPLES_WITH_URING
#include <pvring/aio/uring.hpp>
#endif
#ifdef EXAMPLES_WITH_NBD
#include <pvring/aio/nbd.hpp>
#endif

namespace support {

/// What performs I/O on a file or block device.
enum class file_engine : unsigned char {
  automatic,  ///< uring, where the kernel allows it, else libaio
  libaio,
  uring,
};

using engines = pvring::aio::one_of<pvring::aio::libaio
#ifdef EXAMPLES_WITH_URING
                                    ,
                                    pvring::aio::uring
#endif
#ifdef EXAMPLES_WITH_NBD
                                    ,
                                    pvring::aio::nbd
#endif
                                    >;

/// Whether an image's name is a URI and not a path.
[[nodiscard]] inline bool is_uri(std::string_view name) {
  return name.find("://") != std::string_view::npos;
}

/// \throws configuration_error that names what there is
[[nodiscard]] inline file_engine parse_engine(std::string_view name) {
  if (name == "auto") {
    return file_engine::automatic;
  }
  if (name == "libaio") {
    return file_engine::libaio;
  }
  if (name == "uring") {
    return file_engine::uring;
  }
  throw pvring::configuration_error("engine '" + std::string(name) +
                                    "': use auto, libaio or uring");
}

/// Opens an image: a path, or the URI of an NBD server's disk, for which there is one engine only.
/// \throws configuration_error, std::system_error
[[nodiscard]] inline engines::image open_image(const std::string& where, file_engine how,
                                               const pvring::aio::file_options& file) {
  if (is_uri(where)) {
#ifdef EXAMPLES_WITH_NBD
    if (pvring::aio::is_nbd_uri(where)) {
      return engines::image(std::in_place_type<pvring::aio::nbd_image>, where,
                            pvring::aio::nbd_options{.read_only = file.read_only});
    }
#endif
    throw pvring::configuration_error("image " + where +
                                      ": this program serves no such URI: use a path"
#ifdef EXAMPLES_WITH_NBD
                                      ", nbd:// or nbd+unix://"
#endif
    );
  }
  if (how != file_engine::libaio) {
#ifdef EXAMPLES_WITH_URING
    try {
      return engines::image(std::in_place_type<pvring::aio::uring_image>, where, file);
    } catch (const pvring::aio::uring_unavailable& error) {
      if (how == file_engine::uring) {
        throw;
      }
      pvring::log::write(pvring::log::level::info,
                         "image " + where + " gets the engine libaio: " + error.what());
    }
#else
    if (how == file_engine::uring) {
      throw pvring::configuration_error(
          "engine 'uring': this program was built without liburing; use libaio");
    }
#endif
  }
  return engines::image(std::in_place_type<pvring::aio::file_image>, where, file);
}

}  // namespace support
