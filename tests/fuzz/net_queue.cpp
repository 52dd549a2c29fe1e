// SPDX-License-Identifier: MIT
// A hostile network frontend, played by the fuzzer: its bytes decide what is written into both
// rings and their indices, which grants are good, what the uplink has and how it fails, and how
// time goes. What must hold is checked at every packet and at the end.
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "pvring/base/unique_fd.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/mapped_first.hpp"
#include "pvring/net/queue.hpp"
#include "pvring/observe/none.hpp"
#include "support/fuzz_input.hpp"
#include "unit/grant/scripted_mapper.hpp"

namespace {

using namespace pvring;
using namespace pvring::test;

std::uint64_t milliseconds = 0;
wait::time_point fuzz_now() noexcept {
  return wait::time_point(std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds)));
}

class silent_events {
 public:
  int fd() noexcept { return -1; }
  platform::port bind(domain_id /*domain*/, platform::port remote) { return remote; }
  void unbind(platform::port /*which*/) noexcept {}
  void notify(platform::port /*which*/) noexcept {}
  std::optional<platform::port> pending() noexcept { return std::nullopt; }
  void unmask(platform::port /*which*/) noexcept {}
};

/// Checks what the guest's packets have become.
class checking_port {
 public:
  checking_port() : wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  std::size_t frames = 0;
  std::size_t length = 0;
  net::packet_info info;
  int transmit_error = 0;
  int receive_error = 0;

  [[nodiscard]] int transmit(std::span<const iovec> bytes, const net::packet_info& of) noexcept {
    std::size_t sum = 0;
    for (const iovec& part : bytes) {
      sum += part.iov_len;
      require(part.iov_len != 0, "no piece is empty");
      // Each byte is there: a sanitizer sees where it is not.
      seen_ += static_cast<const std::uint8_t*>(part.iov_base)[0] +
               static_cast<const std::uint8_t*>(part.iov_base)[part.iov_len - 1];
    }
    require(sum >= net::min_frame_bytes && sum <= net::max_frame_bytes, "a packet is a frame");
    require(bytes.front().iov_len >= std::min<std::size_t>(sum, net::header_bytes),
            "headers are in one piece");
    require(of.gso == net::gso::none || (of.gso_size != 0 && of.gso_size <= sum),
            "a super-frame can be cut");
    return transmit_error;
  }
  [[nodiscard]] std::ptrdiff_t receive(std::span<std::byte> into, net::packet_info& of) noexcept {
    if (receive_error != 0) {
      return std::exchange(receive_error, 0);
    }
    if (frames == 0) {
      return 0;
    }
    --frames;
    require(into.size() >= net::max_frame_bytes, "there is room for any frame");
    std::memset(into.data(), 2, length);
    of = info;
    return static_cast<std::ptrdiff_t>(length);
  }
  [[nodiscard]] int fd() const noexcept { return wake_.get(); }
  [[nodiscard]] bool arm() const noexcept { return frames != 0; }
  void disarm() const noexcept {}

 private:
  unique_fd wake_;
  unsigned seen_ = 0;
};

struct page {
  page() : bytes(static_cast<std::byte*>(std::aligned_alloc(4096, 4096)), &std::free) {
    std::memset(bytes.get(), 0, 4096);
  }
  void produce(std::uint32_t count) const {
    std::uint32_t produced = 0;
    std::memcpy(&produced, bytes.get(), sizeof produced);
    produced += count;
    std::memcpy(bytes.get(), &produced, sizeof produced);
  }
  void start(std::uint32_t at) const {
    std::memcpy(bytes.get(), &at, sizeof at);
    std::memcpy(bytes.get() + 8, &at, sizeof at);
  }
  [[nodiscard]] std::span<std::byte> span() const { return {bytes.get(), 4096}; }
  std::unique_ptr<std::byte, decltype(&std::free)> bytes;
};

template <class Strategy>
void play(fuzz_input& s) {
  using queue_type =
      net::queue<scripted_mapper, silent_events, Strategy, checking_port, observe::none::recorder>;
  milliseconds = 1;
  scripted_mapper mapper;
  for (platform::grant_reference i = 1; i <= 6; ++i) {
    mapper.peer[i].writable = i % 2 == 0;
  }
  silent_events events;
  checking_port port;
  net::shared_state device;
  const page tx;
  const page rx;
  const std::uint32_t start = s.byte() % 2 == 0 ? 0 : 0xfffffff0U;
  tx.start(start);
  rx.start(start);
  const std::uint8_t agreed = s.byte();
  net::queue_setup setup{.domain = 1,
                         .tx_ring = tx.span(),
                         .rx_ring = rx.span(),
                         .tx_port = 1,
                         .rx_port = agreed % 2 == 0 ? 1U : 2U,
                         .tx_start = start,
                         .rx_start = start,
                         .clock = &fuzz_now};
  setup.receive.receives.offloads = {true, true, (agreed & 2U) != 0, (agreed & 4U) != 0,
                                     (agreed & 8U) != 0};
  setup.receive.receives.hash = (agreed & 16U) != 0;
  setup.receive.notifies = (agreed & 32U) == 0;
  setup.receive.reads_multicast = (agreed & 64U) != 0;
  setup.receive.delivery.when =
      (agreed & 128U) != 0 ? net::delivery::deferred : net::delivery::at_once;
  setup.receive.delivery.most_bytes = 70'000;
  {
    queue_type queue(setup, net::packet_grants(1), device, mapper, events, events, port);
    const std::size_t bound = queue.store_bytes();
    for (int step = 0; step < 4000 && !s.ended(); ++step) {
      switch (s.byte() % 14) {
        case 0: {  // anything, anywhere in a ring
          const page& of = s.byte() % 2 == 0 ? tx : rx;
          const std::size_t at = s.word() % 4096;
          s.fill(of.bytes.get() + at, std::min<std::size_t>(s.byte() % 32, 4096 - at));
          break;
        }
        case 1:
        case 2: {  // a transmit slot that looks like a request
          const std::uint32_t head[3] = {s.byte() % 8U, s.byte() | (s.byte() % 16U) << 16U,
                                         s.byte() | (s.byte() % 64U) << 20U};
          std::memcpy(tx.bytes.get() + 64 + std::size_t{s.byte()} * 12, head, sizeof head);
          break;
        }
        case 3: {  // one that looks like an extra info
          std::byte* const at = tx.bytes.get() + 64 + std::size_t{s.byte()} * 12;
          s.fill(at, 8);
          at[0] = static_cast<std::byte>(std::to_integer<unsigned>(at[0]) % 6);
          break;
        }
        case 4: {  // a posted page
          const std::uint32_t slot[2] = {s.byte(), s.byte() % 8U};
          std::memcpy(rx.bytes.get() + 64 + std::size_t{s.byte()} * 8, slot, sizeof slot);
          break;
        }
        case 5:
          tx.produce(s.byte() % 24);
          break;
        case 6:
          rx.produce(s.byte() % 64);
          break;
        case 7:
          port.frames = s.byte();
          port.length = 1 + s.word() % net::max_frame_bytes;
          port.info = {.checksum = static_cast<net::checksum>(s.byte() % 3),
                       .gso = static_cast<net::gso>(s.byte() % 3),
                       .gso_size = s.byte(),
                       .hash = {s.byte(), s.byte(), s.word()}};
          break;
        case 8:
          port.transmit_error = s.byte() % 4 == 0 ? -EAGAIN : 0;
          port.receive_error = s.byte() % 8 == 0 ? -EIO : s.byte() % 8 == 0 ? -EMSGSIZE : 0;
          break;
        case 9:
          mapper.map_errors.push_back(s.byte() % 4 == 0 ? EINVAL : 0);
          mapper.copy_errors.push_back(s.byte() % 4 == 0 ? EFAULT : 0);
          break;
        case 10:
          milliseconds += s.byte() % 4 == 0 ? 70'000 : s.byte();
          break;
        case 11:
          device.credit.set({s.byte() * std::uint64_t{100}, 1U + s.byte()});
          break;
        default:
          (void)queue.service(1 + s.byte());
          break;
      }
      require(queue.store_bytes() == bound, "memory stays");
      mapper.copy_calls.clear();
      mapper.copy_directions.clear();
      mapper.maps.clear();
      mapper.unmaps.clear();
    }
    queue.stop();
    for (int pass = 0; pass < 2000 && !queue.idle(); ++pass) {
      (void)queue.service(256);
    }
    require(queue.idle(), "a queue that was stopped becomes idle");
    require(queue.leases() == 0, "an idle queue has no leases");
    require(device.stalled_queues.load() == 0, "a queue that ends holds no device back");
    queue.clear();
  }
  require(mapper.mapped_pages == 0, "nothing stays mapped");
  require(!mapper.crossed, "no operation of a copy crosses a page");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz_input s({data, size});
  switch (s.byte() % 3) {
    case 0:
      play<grant::batched_copy>(s);
      break;
    case 1:
      play<grant::map_each>(s);
      break;
    default:
      play<grant::mapped_first<>>(s);
      break;
  }
  return 0;
}
