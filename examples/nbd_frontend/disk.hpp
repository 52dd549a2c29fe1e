// SPDX-License-Identifier: MIT
// A whole machine in one object: an emulated host, our backend on an image, and an emulated guest
// whose frontend uses the disk through the ring.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <pvring/blk/backend.hpp>
#include <pvring/platform/emulated.hpp>
#include <pvring/testing/strict_frontend.hpp>
#include <string>
#include <thread>

#include "shared_queue.hpp"
#include "support/engines.hpp"

namespace nbd_frontend {

struct settings {
  std::string image;  ///< a path or a URI
  support::file_engine engine = support::file_engine::libaio;
  std::string grants;  ///< a strategy's name; empty: as the backend chooses
  std::uint32_t queues = 2;
  std::uint32_t ring_pages = 4;
  bool read_only = false;
};

struct composition : pvring::default_config {
  using engine = support::engines;
};

class disk {
 public:
  /// Opens the image and connects. \throws std::runtime_error saying what is wrong
  explicit disk(const settings& wanted);
  disk(const disk&) = delete;
  disk& operator=(const disk&) = delete;
  ~disk();

  [[nodiscard]] const pvring::testing::strict_device& device() const noexcept {
    return frontend_.device();
  }
  /// The queue of a caller. Any thread; the same number gives the same queue.
  [[nodiscard]] shared_queue& queue(std::size_t number) noexcept {
    return shared_[number % shared_.size()];
  }

  /// The guest lets go, and the backend ends. \throws std::runtime_error when either does not, or
  /// when the backend broke the protocol
  void disconnect();

 private:
  pvring::platform::emulated_host host_;
  pvring::platform::emulated dom0_;
  pvring::platform::emulated_store toolstack_;
  pvring::xenbus::device_path path_;
  support::engines::image image_;
  pvring::blk::backend<composition> backend_;
  pvring::testing::strict_frontend frontend_;
  std::deque<shared_queue> shared_;
  std::exception_ptr failure_;  // of the backend's thread; read when that has ended
  std::jthread server_;
};

}  // namespace nbd_frontend
