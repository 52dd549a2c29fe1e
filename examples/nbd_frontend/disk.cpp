// SPDX-License-Identifier: MIT
#include "disk.hpp"

#include <bit>
#include <chrono>
#include <pvring/xenbus/toolstack.hpp>
#include <stdexcept>

namespace nbd_frontend {
namespace {

namespace blk = pvring::blk;

constexpr pvring::domain_id guest = 1;
constexpr std::chrono::seconds patience{30};
constexpr std::uint32_t most_segments = 256;

std::uint32_t order(const settings& wanted) {
  return static_cast<std::uint32_t>(std::countr_zero(wanted.ring_pages));
}

pvring::platform::emulated_host host_with_guest() {
  auto host = pvring::platform::emulated_host::create();
  (void)host.create_domain(guest);
  return host;
}

pvring::xenbus::device_path plug_in(pvring::platform::emulated_store& toolstack,
                                    const settings& wanted) {
  return create_device(toolstack,
                       pvring::xenbus::describe_vbd(
                           {.frontend_domain = guest, .type = "vbd", .device = blk::xvd('a')},
                           {.parameters = wanted.image, .read_only = wanted.read_only}));
}

blk::options options_for(const settings& wanted) {
  return {.max_queues = wanted.queues,
          .max_ring_page_order = order(wanted),
          .max_indirect_segments = most_segments,
          .read_only = wanted.read_only,
          .strategy = wanted.grants,
          // Whatever the image lies on: an emulated guest's page stays memory after its unmap.
          .allow_unsafe_mapping = true};
}

}  // namespace

disk::disk(const settings& wanted)
    : host_(host_with_guest()),
      dom0_(host_),
      toolstack_(dom0_.open_store()),
      path_(plug_in(toolstack_, wanted)),
      image_(support::open_image(wanted.image, wanted.engine, {.read_only = wanted.read_only})),
      backend_(dom0_, {.domain = guest, .device = blk::xvd('a')}, image_, options_for(wanted)),
      frontend_(host_, path_.identity(),
                {.queues = wanted.queues,
                 .ring_page_order = order(wanted),
                 .max_indirect_segments = most_segments}) {
  server_ = std::jthread([this] {
    try {
      backend_.run();
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
  if (!frontend_.connect(patience)) {
    backend_.stop();
    throw std::runtime_error("the disk does not connect: " + frontend_.error());
  }
  const std::uint32_t segments = std::max<std::uint32_t>(
      device().max_indirect_segments, pvring::protocol::blkif::max_direct_segments);
  for (std::uint32_t i = 0; i < frontend_.queue_count(); ++i) {
    shared_.emplace_back(frontend_.queue(i), segments);
  }
}

disk::~disk() { backend_.stop(); }

void disk::disconnect() {
  const bool closed = frontend_.close(patience);
  backend_.stop();
  server_.join();
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (!frontend_.violations().empty()) {
    throw std::runtime_error("the backend broke the protocol: " + frontend_.violations_text());
  }
  if (!closed) {
    throw std::runtime_error("the disk does not close");
  }
}

}  // namespace nbd_frontend
