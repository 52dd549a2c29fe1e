// SPDX-License-Identifier: MIT
// A backend for a protocol of one's own, in full: a frontend grants a page, the device answers with
// the sum of its bytes. Ring, batching, grants, waiting and notifications are the library's; what
// is here is the protocol and the pass.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <pvring/base/untrusted.hpp>
#include <pvring/grant/batched_copy.hpp>
#include <pvring/ring/back_ring.hpp>
#include <pvring/wait/ring_source.hpp>
#include <span>
#include <vector>

struct checksum_protocol {
  struct request {
    std::uint32_t gref;
    pvring::untrusted<std::uint32_t> length;
    std::uint64_t id;
  };
  using echo = std::uint64_t;    // the id
  using status = std::uint64_t;  // the sum
  static constexpr std::size_t slot_bytes = 16;
  static void fetch(pvring::ring::slot_source slot, request& into) noexcept {
    into.gref = slot.load<std::uint32_t>(0);
    into.length = pvring::untrusted(slot.load<std::uint32_t>(4));
    into.id = slot.load<std::uint64_t>(8);
  }
  static void store(pvring::ring::slot_sink slot, const echo& id, status sum) noexcept {
    slot.store<std::uint64_t>(0, id);
    slot.store<std::uint64_t>(8, sum);
  }
};

template <class Platform>
class checksum_queue {  // models pvring::wait::served
  using ring_type = pvring::ring::back_ring<checksum_protocol>;
  using grants = typename Platform::grant_handle;
  using events = typename Platform::event_handle;
  struct slot : pvring::grant::lease<checksum_protocol> {
    pvring::grant::piece page;
    iovec bytes;
    checksum_protocol::status sum;
  };

 public:
  checksum_queue(std::span<std::byte> ring, pvring::domain_id peer, grants& g, events& e,
                 pvring::platform::port p)
      : ring_(ring),
        strategy_(g, {.domain = peer, .max_leases = static_cast<std::uint32_t>(ring_.size())}),
        events_(e),
        port_(p),
        source_(e, p, ring_),
        slots_(ring_.size()) {}

  std::size_t service(std::size_t budget) noexcept {
    std::size_t used = 0;
    const std::size_t taken_now = ring_.take(budget, [&](auto& taken) {
      checksum_protocol::request request;
      taken.fetch(request);
      auto duty = taken.owe(request.id);
      const auto length = request.length.within(1, pvring::platform::page_size);
      slot& s = slots_[used];
      s.page = {.reference = request.gref,
                .length = static_cast<std::uint16_t>(length.value_or(0))};
      s.pieces = {&s.page, 1};
      s.storage = {&s.bytes, 1};
      s.buffers = 0;
      s.error = 0;
      if (!length || strategy_.acquire(s) == pvring::grant::acquired::wait) {
        ring_.respond(std::move(duty).settle(0));  // 0: not a page that could be read
        return;
      }
      s.bind(std::move(duty));
      ++used;
    });
    const auto answer = [this](const pvring::grant::released& proof) {
      auto& s = static_cast<slot&>(proof.lease());
      ring_.respond(s.settle(proof, s.sum));
    };
    strategy_.finish_acquires([](auto&) {});  // one copy call for all of them
    for (slot& s : std::span(slots_).first(used)) {
      checksum_protocol::status sum = 0;
      for (const iovec& part : s.local()) {
        const auto* byte = static_cast<const std::uint8_t*>(part.iov_base);
        sum = s.error == 0 ? std::accumulate(byte, byte + part.iov_len, sum) : 0;
      }
      s.sum = sum;
      strategy_.release(s, true, answer);
    }
    strategy_.finish_releases(answer);  // one copy call, if pages had been written
    if (ring_.publish()) {
      events_.notify(port_);
    }
    return taken_now;
  }
  /// Why nothing is taken any more, once the frontend has broken the protocol.
  [[nodiscard]] pvring::protocol_error broken() const noexcept { return ring_.broken(); }
  std::optional<pvring::wait::time_point> deadline() noexcept { return std::nullopt; }
  void for_each_source(auto&& each) noexcept { each(source_); }

 private:
  ring_type ring_;
  typename pvring::grant::batched_copy::template bind<grants> strategy_;
  events& events_;
  pvring::platform::port port_;
  pvring::wait::ring_source<events, ring_type> source_;
  std::vector<slot> slots_;
};
