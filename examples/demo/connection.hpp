// SPDX-License-Identifier: MIT
// A served disk: an image, a backend with its thread, and a frontend, connected through the store
// of an emulated host.
#pragma once

#include <exception>
#include <pvring/blk/backend.hpp>
#include <pvring/platform/emulated.hpp>
#include <pvring/testing/strict_frontend.hpp>
#include <string>
#include <thread>

#include "measure.hpp"
#include "settings.hpp"
#include "support/engines.hpp"

namespace demo {

/// The default composition, but for the engine, which the user chooses.
struct composition : pvring::default_config {
  using engine = support::engines;
};

/// One thread uses this object; the queues may be used by theirs.
class connection {
 public:
  /// The toolstack makes the device, the backend opens the image, both ends connect. \throws
  /// mismatch when they do not
  connection(const pvring::platform::emulated_host& host, const settings& wanted,
             const std::string& image, const std::string& strategy);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  [[nodiscard]] pvring::testing::strict_frontend& frontend() { return frontend_; }
  [[nodiscard]] std::uint32_t queues() const { return frontend_.queue_count(); }
  [[nodiscard]] const std::string& choice() const { return disk_.choice(); }

  /// What was counted up to now.
  [[nodiscard]] snapshot count();

  /// The guest lets go of the disk; then the backend is stopped. \throws mismatch when it does not
  /// end
  void disconnect();
  /// The toolstack takes the disk away, and the backend ends by that. \throws mismatch when it does
  /// not end
  void unplug();

 private:
  void finish();

  std::string strategy_;
  pvring::platform::emulated dom0_;
  pvring::platform::emulated_store toolstack_;
  pvring::xenbus::device_path path_;
  support::engines::image image_;
  pvring::blk::backend<composition> disk_;
  pvring::testing::strict_frontend frontend_;
  std::exception_ptr failure_;  // of the backend's thread; read when that has ended
  std::jthread server_;
};

}  // namespace demo
