// SPDX-License-Identifier: MIT
// Setting up and taking down, with the messages for what can go wrong on the way.
#include "connection.hpp"

#include <bit>
#include <chrono>
#include <pvring/platform/emulated.hpp>
#include <pvring/testing/strict_frontend.hpp>
#include <pvring/xenbus/toolstack.hpp>

namespace demo {
namespace {

namespace blk = pvring::blk;

constexpr pvring::domain_id guest = 1;
constexpr std::chrono::seconds patience{30};

pvring::xenbus::device_path plug_in(pvring::platform::emulated_store& toolstack,
                                    const std::string& image) {
  return create_device(toolstack,
                       pvring::xenbus::describe_vbd(
                           {.frontend_domain = guest, .type = "vbd", .device = blk::xvd('a')},
                           {.parameters = image}));
}

blk::options options_for(const settings& wanted, const std::string& strategy) {
  return {.max_queues = wanted.queues,
          .max_ring_page_order = static_cast<std::uint32_t>(std::countr_zero(wanted.ring_pages)),
          .strategy = strategy,
          // Whatever the image lies on: an emulated guest's page stays memory after its unmap.
          .allow_unsafe_mapping = true};
}

pvring::testing::strict_options frontend_for(const settings& wanted) {
  return {.queues = wanted.queues,
          .ring_page_order = static_cast<std::uint32_t>(std::countr_zero(wanted.ring_pages)),
          .max_indirect_segments = 256};
}

}  // namespace

connection::connection(const pvring::platform::emulated_host& host, const settings& wanted,
                       const std::string& image, const std::string& strategy)
    : strategy_(strategy),
      dom0_(host),
      toolstack_(dom0_.open_store()),
      path_(plug_in(toolstack_, image)),
      image_(support::open_image(image, wanted.engine,
                                 {.direct = wanted.buffered ? pvring::aio::direct_io::never
                                                            : pvring::aio::direct_io::automatic})),
      disk_(dom0_, {.domain = guest, .device = blk::xvd('a')}, image_,
            options_for(wanted, strategy)),
      frontend_(host, path_.identity(), frontend_for(wanted)) {
  server_ = std::jthread([this] {
    try {
      disk_.run();
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
  if (!frontend_.connect(patience)) {
    throw mismatch(
        strategy_ + ": the disk does not connect: " +
        (frontend_.error().empty()
             ? "the backend's state is " + std::string(to_string(frontend_.backend_state()))
             : frontend_.error()));
  }
}

connection::~connection() { disk_.stop(); }

snapshot connection::count() {
  snapshot now;
  for (const blk::queue_statistics& queue : disk_.statistics()) {
    now.requests += queue.requests;
    now.grant_calls += queue.grant_calls;
    now.system_calls += queue.grant_system_calls + queue.event_system_calls + queue.submit_calls +
                        queue.reap_calls + queue.other_engine_calls + queue.sleeps;
    now.hypercalls += queue.hypercalls;
    now.interrupts += queue.notifications;
    now.publications += queue.publications;
  }
  for (std::uint32_t i = 0; i < queues(); ++i) {
    now.kicks += frontend_.queue(i).counters().kicks_sent.get();
  }
  read_times(now);
  return now;
}

void connection::disconnect() {
  if (!frontend_.close(patience)) {
    throw mismatch(strategy_ + ": the disk does not close");
  }
  disk_.stop();
  finish();
}

void connection::unplug() {
  request_unplug(toolstack_, path_);
  if (!frontend_.process_until([this] { return frontend_.released(); }, patience)) {
    throw mismatch(strategy_ + ": the disk does not let itself be unplugged");
  }
  finish();
}

void connection::finish() {
  server_.join();
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (!frontend_.violations().empty()) {
    throw mismatch(strategy_ + ": the backend broke the protocol: " + frontend_.violations_text());
  }
}

}  // namespace demo
