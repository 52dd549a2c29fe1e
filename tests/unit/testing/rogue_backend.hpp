// SPDX-License-Identifier: MIT
// A strict_queue and a backend that is played by hand: it looks at requests and writes whatever
// responses a test wants, also such as no ring of ours would write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pvring/platform/emulated.hpp"
#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/protocol/ring_page.hpp"
#include "pvring/ring/shared_access.hpp"
#include "pvring/testing/strict_queue.hpp"

namespace pvring::testing {

struct rogue_setup {
  bool persistent = false;
  std::uint16_t max_indirect_segments = 0;
  bool guard_pages = false;
  std::uint32_t ring_start = 0;
};

/// \tparam Abi of the ring
template <protocol::blkif::abi Abi>
class rogue_backend {
 public:
  using wire = protocol::blkif::wire<Abi>;
  static constexpr domain_id guest_id = 3;

  explicit rogue_backend(const rogue_setup& setup = {})
      : host(platform::emulated_host::create()),
        guest(host.create_domain(guest_id)),
        queue(
            guest, 0, 0, log, [](void* self) { ++static_cast<rogue_backend*>(self)->idle_calls; },
            this),
        dom0(host),
        grants(dom0.open_grants(1000)),
        events(dom0.open_events()),
        produced(setup.ring_start) {
    queue.prepare({.abi = Abi, .ring_start = setup.ring_start, .guard_pages = setup.guard_pages});
    queue.open(setup.persistent, setup.max_indirect_segments);
    ring = grants.map(guest_id, queue.ring_references(), platform::access::read_write).pages;
    port = events.bind(guest_id, queue.port());
  }
  rogue_backend(const rogue_backend&) = delete;
  rogue_backend& operator=(const rogue_backend&) = delete;
  ~rogue_backend() {
    if (ring) {
      (void)grants.unmap(ring);
    }
  }

  /// The request at a position of the ring.
  protocol::blkif::request request(std::uint32_t at) {
    protocol::blkif::request from{};
    wire::fetch(ring::slot_source(slot(at)), from);
    return from;
  }
  [[nodiscard]] std::uint32_t request_producer() {
    return ring::shared_index<std::uint32_t>(ring.address).load(std::memory_order_acquire);
  }

  /// Writes a response and shows it; `notify` besides.
  void respond(std::uint64_t id, std::uint8_t operation,
               protocol::blkif::status status = protocol::blkif::status::okay) {
    wire::store(ring::slot_sink(slot(produced)), {id, operation}, status);
    show(++produced);
  }
  void show(std::uint32_t response_producer) {
    ring::shared_index<std::uint32_t>(ring.address + 8)
        .store(response_producer, std::memory_order_seq_cst);
  }
  void notify() { events.notify(port); }

  platform::mapping map(platform::grant_reference reference, platform::access how) {
    return grants.map(guest_id, {&reference, 1}, how).pages;
  }

  /// All that the queue has to say now.
  std::vector<block_completion> take() {
    std::vector<block_completion> ends;
    queue.poll([&ends](const block_completion& end) { ends.push_back(end); });
    return ends;
  }
  [[nodiscard]] std::string violations() const {
    std::string text;
    for (const std::string& one : log.all()) {
      text += one + "\n";
    }
    return text;
  }

  platform::emulated_host host;
  platform::emulated_guest guest;
  violation_log log;
  int idle_calls = 0;
  strict_queue queue;
  platform::emulated dom0;
  platform::emulated_grants grants;
  platform::emulated_events events;
  platform::mapping ring;
  platform::port port = 0;
  std::uint32_t produced;

 private:
  std::byte* slot(std::uint32_t at) {
    return ring.address + protocol::ring_header_bytes +
           at % protocol::ring_slots(platform::page_size, wire::slot_bytes) * wire::slot_bytes;
  }
};

using rogue_64 = rogue_backend<protocol::blkif::abi::x86_64>;
using rogue_32 = rogue_backend<protocol::blkif::abi::x86_32>;

}  // namespace pvring::testing
