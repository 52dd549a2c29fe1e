// SPDX-License-Identifier: MIT
// A disk that is being served: emulated host, toolstack, backend on a thread of its own, strict
// frontend. For tests that are about what goes through the ring and not about how it came to be.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "pvring/aio/memory.hpp"
#include "pvring/blk/backend.hpp"
#include "pvring/platform/emulated.hpp"
#include "pvring/testing/strict_frontend.hpp"
#include "pvring/xenbus/toolstack.hpp"

namespace pvring::test {

/// The default composition on an image in memory.
struct memory_config : default_config {
  using engine = aio::memory;
};

}  // namespace pvring::test

// Many tests use it, and it takes long to compile: served_disk.cpp does so once.
extern template class pvring::blk::backend<pvring::test::memory_config>;

namespace pvring::test {

inline constexpr domain_id guest_domain = 3;

/// The test's own thread uses it; each queue may have a thread.
template <class Config>
class served_disk {
 public:
  using image_type = typename Config::engine::image;

  /// \param image outlives it
  served_disk(image_type& image, blk::options backend, testing::strict_options frontend,
              const platform::emulated_options& host = {})
      : host_(platform::emulated_host::create(host)),
        guest_(host_.create_domain(guest_domain)),
        dom0_(host_),
        toolstack_(dom0_.open_store()),
        path_(plug_in()),
        disk_(dom0_, {.domain = guest_domain, .device = device}, image, std::move(backend)),
        front_(host_, path_.identity(), frontend),
        server_([this] {
          try {
            disk_.run();
          } catch (const std::exception& e) {
            ADD_FAILURE() << "the backend's thread: " << e.what();
          }
        }) {
    EXPECT_TRUE(front_.connect()) << front_.error();
  }
  served_disk(const served_disk&) = delete;
  served_disk& operator=(const served_disk&) = delete;
  ~served_disk() {
    if (server_.joinable()) {
      disk_.stop();
    }
  }

  /// Closes from the guest's side, stops the backend, and expects that nothing is left and nothing
  /// was held against it.
  void close() {
    if (!server_.joinable()) {
      return;
    }
    EXPECT_TRUE(front_.close()) << "the device does not close";
    disk_.stop();
    server_.join();
    EXPECT_TRUE(disk_.finished());
    EXPECT_EQ(front_.violations_text(), "");
    EXPECT_EQ(host_.leaked_pages(), 0U);
  }

  [[nodiscard]] testing::strict_frontend& frontend() noexcept { return front_; }
  [[nodiscard]] testing::strict_queue& queue(std::uint32_t i = 0) noexcept {
    return front_.queue(i);
  }
  [[nodiscard]] blk::backend<Config>& backend() noexcept { return disk_; }
  [[nodiscard]] platform::emulated_host& host() noexcept { return host_; }
  [[nodiscard]] platform::emulated_store& toolstack() noexcept { return toolstack_; }
  [[nodiscard]] const xenbus::device_path& path() const noexcept { return path_; }

  /// Submits one request, waits for its end, and gives its status: nothing where there was no
  /// answer in time.
  template <class Fill, class Take>
  std::optional<std::int16_t> perform(std::uint32_t queue, const testing::block_request& request,
                                      Fill&& fill, Take&& take) {
    testing::strict_queue& q = front_.queue(queue);
    const auto tag = q.submit(request, fill);
    if (!tag) {
      return std::nullopt;
    }
    q.publish();
    std::optional<std::int16_t> status;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!status && !front_.disabled() && std::chrono::steady_clock::now() < end) {
      q.poll([&](const testing::block_completion& c) {
        if (c.tag == *tag) {
          take(c);
          status = c.status;
        }
      });
      if (!status) {
        q.wait(std::chrono::milliseconds(100));
      }
    }
    return status;
  }
  /// The same without data.
  std::optional<std::int16_t> perform(std::uint32_t queue, const testing::block_request& request) {
    return perform(
        queue, request, [](std::size_t, std::span<std::byte>) {},
        [](const testing::block_completion&) {});
  }

  static constexpr std::uint32_t device = blk::xvd('a');

 private:
  xenbus::device_path plug_in() {
    return xenbus::create_device(
        toolstack_, xenbus::describe_vbd(
                        {.frontend_domain = guest_domain, .type = "vbd", .device = device}, {}));
  }

  platform::emulated_host host_;
  platform::emulated_guest guest_;
  platform::emulated dom0_;
  platform::emulated_store toolstack_;
  xenbus::device_path path_;
  blk::backend<Config> disk_;
  testing::strict_frontend front_;
  std::jthread server_;
};

}  // namespace pvring::test
