// SPDX-License-Identifier: MIT
// A platform, and a device served on it, for code that does not care which. Only the files
// served_*.cpp look behind it: each compiles the whole backend.
#pragma once

#include <cstdint>
#include <memory>
#include <pvring/aio/file_image.hpp>
#include <pvring/base/error.hpp>
#include <pvring/blk/device.hpp>
#include <pvring/protocol/xenbus.hpp>
#include <pvring/xenbus/device_path.hpp>
#include <string>

#include "store_connection.hpp"
#include "support/engines.hpp"

namespace tool {

class trace_file;

/// A device to be served.
struct device_request {
  pvring::xenbus::device_identity identity;
  std::string image;
  pvring::aio::file_options file;
  support::file_engine engine = support::file_engine::libaio;
  pvring::blk::options options;
  trace_file* trace = nullptr;  ///< where requests are recorded; null: they are not
};

/// What all queues of a connection have done so far.
struct device_numbers {
  std::string strategy;  ///< empty: not connected
  std::uint64_t queues = 0;
  std::uint64_t ring_slots = 0;  ///< of each
  std::uint64_t requests = 0;
  std::uint64_t redone = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t discards = 0;
  std::uint64_t refused = 0;
  std::uint64_t failed = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t publications = 0;
  std::uint64_t notifications = 0;
  std::uint64_t events = 0;
  std::uint64_t grant_calls = 0;
  std::uint64_t grant_operations = 0;
  std::uint64_t hypercalls = 0;
};

/// A device with its backend and its open image. One thread uses it.
class served_device {
 public:
  served_device() = default;
  served_device(const served_device&) = delete;
  served_device& operator=(const served_device&) = delete;
  virtual ~served_device() = default;

  /// Readable when `process` has something to do; stays the same.
  [[nodiscard]] virtual int fd() const noexcept = 0;
  /// Never waits. False once the device is over. \throws std::system_error of the store
  virtual bool process() = 0;
  /// Begins to close, after what is in flight.
  virtual void stop() noexcept = 0;
  /// Reads the image's size again; true when it changed.
  virtual bool resize() = 0;
  [[nodiscard]] virtual pvring::protocol::xenbus_state state() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t sectors() const noexcept = 0;
  [[nodiscard]] virtual device_numbers numbers() const = 0;
};

class platform_access {
 public:
  platform_access() = default;
  platform_access(const platform_access&) = delete;
  platform_access& operator=(const platform_access&) = delete;
  virtual ~platform_access() = default;

  [[nodiscard]] virtual std::unique_ptr<store_connection> open_store() = 0;
  /// Opens the image and begins the handshake. \throws configuration_error, std::system_error
  [[nodiscard]] virtual std::unique_ptr<served_device> serve(const device_request& wanted) = 0;
  /// A device is about to be made for this domain. \throws command_error where there is none
  virtual void need_domain(pvring::domain_id domain) = 0;
};

}  // namespace tool
