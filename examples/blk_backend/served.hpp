// SPDX-License-Identifier: MIT
// The backend of one composition behind served_device. Included by the few files that compile it.
#pragma once

#include <pvring/blk/backend.hpp>
#include <string>

#include "platform_access.hpp"
#include "support/engines.hpp"
#include "trace_file.hpp"

namespace tool {

template <class Config>
class served_device_of final : public served_device {
 public:
  served_device_of(typename Config::platform& host, const device_request& wanted)
      : image_(support::open_image(wanted.image, wanted.engine, wanted.file)),
        backend_(host,
                 {.domain = wanted.identity.frontend_domain,
                  .device = wanted.identity.device,
                  .backend_domain = wanted.identity.backend_domain,
                  .type = wanted.identity.type},
                 image_, wanted.options) {
    if constexpr (Config::observe::recorder::active) {
      const std::string name = std::to_string(wanted.identity.frontend_domain) + '/' +
                               std::to_string(wanted.identity.device);
      backend_.set_recorder_sink([to = wanted.trace, name](std::uint32_t queue, const auto& from) {
        to->add(name + " queue " + std::to_string(queue), from);
      });
    }
  }

  [[nodiscard]] int fd() const noexcept override { return backend_.fd(); }
  bool process() override { return backend_.process(); }
  void stop() noexcept override { backend_.stop(); }
  bool resize() override { return backend_.resize(); }
  [[nodiscard]] pvring::protocol::xenbus_state state() const noexcept override {
    return backend_.state();
  }
  [[nodiscard]] std::uint64_t sectors() const noexcept override {
    return backend_.exported().sectors.load(std::memory_order_relaxed);
  }

  [[nodiscard]] device_numbers numbers() const override {
    device_numbers sum;
    for (const pvring::blk::queue_statistics& queue : backend_.statistics()) {
      sum.strategy = queue.strategy;
      sum.queues += 1;
      sum.ring_slots = queue.ring_slots;
      sum.requests += queue.requests;
      sum.redone += queue.redone;
      sum.reads += queue.reads;
      sum.writes += queue.writes;
      sum.flushes += queue.flushes;
      sum.discards += queue.discards;
      sum.refused += queue.refused;
      sum.failed += queue.failed;
      sum.bytes_read += queue.bytes_read;
      sum.bytes_written += queue.bytes_written;
      sum.publications += queue.publications;
      sum.notifications += queue.notifications;
      sum.events += queue.events;
      sum.grant_calls += queue.grant_calls;
      sum.grant_operations += queue.grant_operations;
      sum.hypercalls += queue.hypercalls;
    }
    return sum;
  }

 private:
  support::engines::image image_;
  pvring::blk::backend<Config> backend_;
};

}  // namespace tool
