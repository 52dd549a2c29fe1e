// SPDX-License-Identifier: MIT
// What a guest's kernel would do between its stack and its rings is done here, on one thread.
#include "guest.hpp"

#include <poll.h>

#include <array>
#include <chrono>
#include <system_error>
#include <utility>

namespace demo_net {

using namespace std::chrono_literals;
namespace net = pvring::net;

guest::guest(const pvring::platform::emulated_host& host, pvring::domain_id domain,
             net::pair_uplink& uplink, const combination& how, std::uint32_t queues)
    : platform_(host), domain_(host.create_domain(domain)), toolstack_(platform_.open_store()) {
  identity_ = {.backend_domain = 0, .frontend_domain = domain, .type = "vif", .device = 0};
  pvring::xenbus::create_device(toolstack_, pvring::xenbus::describe_vif(identity_, {}));
  net::options wanted;
  wanted.max_queues = queues;
  wanted.strategy = how.strategy;
  wanted.delivery.when =
      how.delivery == "inline" ? net::delivery::at_once : net::delivery::deferred;
  wanted.gso = how.offloads;
  wanted.checksum = how.offloads;
  backend_ = std::make_unique<net::backend<config>>(platform_, net::identity{.domain = domain},
                                                    uplink, wanted);
  backend_thread_ = std::thread([this] { backend_->run(); });
  pvring::testing::strict_net_options takes;
  takes.queues = queues;
  takes.takes = {how.offloads, how.offloads, how.offloads, how.offloads, true};
  takes.queue.guard_pages = false;
  front_ = std::make_unique<pvring::testing::strict_net_frontend>(host, identity_, takes);
}

guest::~guest() {
  stop_.store(true);
  if (thread_.joinable()) {
    thread_.join();
  }
  if (backend_thread_.joinable()) {
    backend_->stop();
    backend_thread_.join();
  }
}

void guest::connect() {
  if (!front_->connect()) {
    throw std::runtime_error("the frontend could not connect: " + front_->error());
  }
}

void guest::plug_into(const name_space& where, const std::string& address) {
  try {
    where.inside([&] {
      tap_.emplace("eth0", front_->queue_count());
      // What the guest's stack may hand out is what the backend takes.
      tap_->set_offloads(front_->sends());
      for (std::uint32_t i = 0; i < front_->queue_count(); ++i) {
        ports_.push_back(tap_->open(i));
      }
    });
  } catch (const std::system_error& e) {
    throw no_kernel(e.what());
  }
  (void)where.command("ip link set lo up");
  (void)where.command("ip address add " + address + "/24 dev eth0");
  (void)where.command("ip link set eth0 up");
  thread_ = std::thread([this] { serve(); });
}

// One queue, both ways. Returns how much there was to do.
std::size_t guest::turn(std::uint32_t queue, std::vector<std::byte>& frame) {
  pvring::testing::strict_net_queue& rings = front_->queue(queue);
  net::tap_uplink::port& port = ports_[queue];
  std::size_t work = 0;
  // A packet of any length takes no more slots than this; else the stack's queue fills, as it has
  // to.
  constexpr std::size_t most_slots = 19;
  for (int i = 0; i < 64 && rings.tx_space() >= most_slots; ++i) {
    net::packet_info info;
    const std::ptrdiff_t length = port.receive(frame, info);
    if (length <= 0) {
      break;
    }
    work += rings.send(std::span(frame).first(static_cast<std::size_t>(length)), info) ? 1 : 0;
  }
  (void)rings.post();
  rings.publish();
  work += rings.poll([&](const pvring::testing::received_packet& packet) {
    // The kernel only reads them.
    const std::array<iovec, 1> bytes{
        iovec{const_cast<std::byte*>(packet.bytes.data()), packet.bytes.size()}};
    (void)port.transmit(bytes, packet.info);
  });
  return work;
}

void guest::serve() {
  std::vector<std::byte> frame(net::max_frame_bytes);
  const std::uint32_t queues = front_->queue_count();
  std::vector<pollfd> sleepers;
  for (std::uint32_t i = 0; i < queues; ++i) {
    sleepers.push_back({.fd = front_->queue(i).fd(), .events = POLLIN, .revents = 0});
    sleepers.push_back({.fd = ports_[i].fd(), .events = POLLIN, .revents = 0});
  }
  while (!stop_.load()) {
    std::size_t work = 0;
    for (std::uint32_t i = 0; i < queues; ++i) {
      work += turn(i, frame);
    }
    if (work != 0) {
      continue;
    }
    bool there = false;
    for (std::uint32_t i = 0; i < queues; ++i) {
      there = front_->queue(i).arm() || there;
      // Without room in the ring the stack's frames have to wait, and must not keep us awake.
      sleepers[2 * i + 1].events = front_->queue(i).tx_space() >= 19 ? POLLIN : short{0};
    }
    if (!there) {
      (void)::poll(sleepers.data(), static_cast<nfds_t>(sleepers.size()), 50);
    }
    for (std::uint32_t i = 0; i < queues; ++i) {
      front_->queue(i).acknowledge();
    }
  }
}

void guest::end() {
  stop_.store(true);
  if (thread_.joinable()) {
    thread_.join();
  }
  const bool closed = front_->close();
  if (!closed || !front_->violations_text().empty()) {
    throw mismatch("domain " + std::to_string(domain_.id()) + ": " +
                   (closed ? front_->violations_text() : "the backend does not close"));
  }
  backend_->stop();
  backend_thread_.join();
}

}  // namespace demo_net
