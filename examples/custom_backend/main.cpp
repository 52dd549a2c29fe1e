// SPDX-License-Identifier: MIT
// Runs the checksum device of checksum_device.hpp: a guest on the emulated platform grants pages
// and checks the sums that come back, while the device's queue runs on a thread of its own.
#include <poll.h>

#include <cstdio>
#include <cstring>
#include <numeric>
#include <pvring/platform/emulated.hpp>
#include <pvring/ring/front_ring.hpp>
#include <pvring/wait/runner.hpp>

#include "checksum_device.hpp"

namespace {

// The frontend's end of the same protocol.
struct checksum_frontend_protocol : checksum_protocol {
  struct response {
    std::uint64_t id;
    std::uint64_t sum;
  };
  static void store_request(pvring::ring::slot_sink slot, const request& from) noexcept {
    slot.store<std::uint32_t>(0, from.gref);
    slot.store<std::uint32_t>(4, from.length.echo());
    slot.store<std::uint64_t>(8, from.id);
  }
  static response fetch_response(pvring::ring::slot_source slot) noexcept {
    return {slot.load<std::uint64_t>(0), slot.load<std::uint64_t>(8)};
  }
};

constexpr pvring::domain_id guest_domain = 1;
constexpr std::uint32_t page_count = 100;

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
int main() {
  namespace platform = pvring::platform;
  const auto host = platform::emulated_host::create();
  platform::emulated dom0(host);

  // The guest: a ring, a channel, and pages with something in them.
  auto guest = host.create_domain(guest_domain);
  std::byte* const ring_page = guest.allocate_pages();
  pvring::ring::front_ring<checksum_frontend_protocol> front{
      std::span(ring_page, platform::page_size)};
  const auto ring_reference = guest.grant(0, ring_page, platform::access::read_write);
  auto guest_events = guest.open_events();
  const platform::port guest_port = guest_events.alloc_unbound(0);
  guest_events.unmask(guest_port);
  std::byte* const pages = guest.allocate_pages(page_count);
  for (std::uint32_t i = 0; i < page_count; ++i) {
    std::memset(pages + i * platform::page_size, static_cast<int>(i), platform::page_size);
  }

  // The device. A real one would find reference and port in the store; see blk/negotiation.hpp.
  auto grants = dom0.open_grants(1);
  const auto mapped = grants.map(guest_domain, {&ring_reference, 1}, platform::access::read_write);
  auto events = dom0.open_events();
  const platform::port port = events.bind(guest_domain, guest_port);
  checksum_queue<platform::emulated> queue({mapped.pages.address, platform::page_size},
                                           guest_domain, grants, events, port);
  {
    pvring::wait::runner<checksum_queue<platform::emulated>> thread(queue, {.name = "checksum"});

    std::uint32_t sent = 0;
    std::uint32_t right = 0;
    std::uint32_t received = 0;
    while (received < page_count) {
      for (; sent < page_count && front.space() != 0; ++sent) {
        const auto gref =
            guest.grant(0, pages + sent * platform::page_size, platform::access::read_only);
        front.put({.gref = gref,
                   .length = pvring::untrusted<std::uint32_t>(platform::page_size),
                   .id = sent});
      }
      if (front.publish()) {
        guest_events.notify(guest_port);
      }
      const auto check = [&](const checksum_frontend_protocol::response& response) {
        ++received;
        right += response.sum == response.id * platform::page_size ? 1U : 0U;
      };
      if (front.take(front.size(), check) == 0 && !front.arm()) {
        pollfd fired{.fd = guest_events.fd(), .events = POLLIN, .revents = 0};
        (void)::poll(&fired, 1, -1);
        if (const auto which = guest_events.pending()) {
          guest_events.unmask(*which);
        }
      }
    }
    std::printf("%u of %u sums are right; %llu copy calls\n", right, page_count,
                static_cast<unsigned long long>(grants.counters().copy_calls.get()));
    if (right != page_count) {
      return 1;
    }
  }
  events.unbind(port);
  return grants.unmap(mapped.pages);
}
