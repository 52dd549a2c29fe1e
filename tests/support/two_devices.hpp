// SPDX-License-Identifier: MIT
// A good disk, and a second device of the same process for somebody to abuse.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "pvring/platform/emulated/in_flight_registry.hpp"
#include "pvring/testing/scripted_frontend.hpp"
#include "support/served_disk.hpp"

namespace pvring::test {

inline constexpr domain_id hostile_domain = 9;
inline const xenbus::device_identity hostile_device{
    .frontend_domain = hostile_domain, .type = "vbd", .device = blk::xvd('b')};

/// \tparam Config of the device that is abused
template <class Config>
class two_devices_of : public ::testing::Test {
 protected:
  using image_type = typename Config::engine::image;

  template <class... ImageOptions>
  explicit two_devices_of(ImageOptions&&... of_image)
      : good_image_(4U << 20U),
        image_(4U << 20U, std::forward<ImageOptions>(of_image)...),
        good_(good_image_, {}, {}),
        guest_(good_.host().create_domain(hostile_domain)),
        dom0_(good_.host()),
        toolstack_(dom0_.open_store()) {
    xenbus::create_device(toolstack_, xenbus::describe_vbd(hostile_device, {}));
  }
  ~two_devices_of() override { end(); }

  /// Serves the second device on a thread.
  void serve(blk::options options = {}) {
    disk_.emplace(dom0_, blk::identity{.domain = hostile_domain, .device = hostile_device.device},
                  image_, options);
    server_ = std::jthread([this] {
      try {
        disk_->run();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "the second device's thread: " << e.what();
      }
      over_ = true;
    });
  }

  /// Stops the second device and takes it away.
  void end() {
    if (disk_) {
      disk_->stop();
    }
    if (server_.joinable()) {
      server_.join();
    }
    disk_.reset();
  }

  // The good device writes and reads back, whatever the other one does meanwhile.
  void good_device_works(int rounds = 20) {
    const auto segments = testing::segments_for(16);
    for (int i = 0; i < rounds; ++i) {
      const auto sector = static_cast<std::uint64_t>(i % 100) * 16;
      ASSERT_EQ(good_.perform(
                    0, {.operation = 1, .sector = sector, .segments = segments},
                    [i](std::size_t, std::span<std::byte> bytes) {
                      std::memset(bytes.data(), i + 1, bytes.size());
                    },
                    [](const testing::block_completion&) {}),
                0);
      bool right = false;
      ASSERT_EQ(good_.perform(
                    0, {.operation = 0, .sector = sector, .segments = segments},
                    [](std::size_t, std::span<std::byte>) {},
                    [&](const testing::block_completion& end) {
                      right = true;
                      end.for_each_part([&](std::size_t, std::span<const std::byte> bytes) {
                        for (const std::byte b : bytes) {
                          right &= b == static_cast<std::byte>(i + 1);
                        }
                      });
                    }),
                0);
      ASSERT_TRUE(right);
    }
  }
  std::string store_error() {
    return toolstack_
        .read("/local/domain/0/error/backend/vbd/9/" + std::to_string(hostile_device.device) +
              "/error")
        .value_or("");
  }

  aio::memory_image good_image_;
  image_type image_;
  served_disk<memory_config> good_;
  platform::emulated_guest guest_;
  platform::emulated dom0_;
  platform::emulated_store toolstack_;
  std::optional<blk::backend<Config>> disk_;
  std::atomic<bool> over_{false};  ///< the second device ended by itself
  std::jthread server_;
};

}  // namespace pvring::test
