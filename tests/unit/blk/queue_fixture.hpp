// SPDX-License-Identifier: MIT
// A block queue with nothing real around it: its ring is ordinary memory, its grants, events and
// engine follow the test's script. What a frontend put into the ring, and what came back, is looked
// at field by field.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../grant/scripted_mapper.hpp"
#include "pvring/blk/queue.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "pvring/observe/none.hpp"
#include "pvring/ring/front_ring.hpp"

namespace pvring::test {

/// Completes what the test says, when and how the test says.
class manual_engine {
 public:
  struct submission {
    aio::transfer* transfer;
    aio::operation kind;
    std::uint64_t offset;
    std::uint64_t length;
    std::size_t buffers;
    std::uint8_t first_byte;
  };
  std::vector<submission> flying;    // in order of submission
  std::vector<submission> history;   // everything ever submitted
  std::vector<std::size_t> batches;  // sizes of submit calls
  std::size_t room = 32;
  bool complete_at_once = false;

  int fd() noexcept { return -1; }
  bool arm() noexcept { return !done_.empty(); }
  void disarm() noexcept {}
  [[nodiscard]] std::size_t in_flight() const noexcept { return flying.size() + done_.size(); }
  [[nodiscard]] std::size_t capacity() const noexcept { return room; }

  void submit(std::span<aio::transfer* const> batch) noexcept {
    batches.push_back(batch.size());
    for (aio::transfer* t : batch) {
      const std::uint8_t first = t->buffers.empty() || t->kind == aio::operation::read
                                     ? 0
                                     : *static_cast<std::uint8_t*>(t->buffers[0].iov_base);
      const submission entry{t, t->kind, t->offset, t->length, t->buffers.size(), first};
      history.push_back(entry);
      if (complete_at_once) {
        done_.push_back({t, 0});
      } else {
        flying.push_back(entry);
      }
    }
  }
  template <class F>
  std::size_t reap(F&& each) noexcept {
    std::vector<std::pair<aio::transfer*, int>> now;
    now.swap(done_);
    for (auto& [t, error] : now) {
      each(*t, error);
    }
    return now.size();
  }

  /// Completes the `index`-th of those in flight. A read is filled with `fill`.
  void complete(std::size_t index, int error = 0, std::uint8_t fill = 0) {
    const submission entry = flying.at(index);
    flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(index));
    if (entry.kind == aio::operation::read && error == 0) {
      for (const iovec& part : entry.transfer->buffers) {
        std::memset(part.iov_base, fill, part.iov_len);
      }
    }
    done_.emplace_back(entry.transfer, error);
  }
  void complete_all(int error = 0) {
    while (!flying.empty()) {
      complete(0, error);
    }
  }

 private:
  std::vector<std::pair<aio::transfer*, int>> done_;
};
static_assert(aio::engine_context<manual_engine>);

/// Counts what is sent, and never fires.
class silent_events {
 public:
  int notified = 0;
  int unmasked = 0;
  int fd() noexcept { return -1; }
  platform::port bind(domain_id /*domain*/, platform::port remote) { return remote; }
  void unbind(platform::port /*which*/) noexcept {}
  void notify(platform::port /*which*/) noexcept { ++notified; }
  std::optional<platform::port> pending() noexcept { return std::nullopt; }
  void unmask(platform::port /*which*/) noexcept { ++unmasked; }
};

namespace wire = protocol::blkif;

/// A wire request of up to 11 whole pages.
inline wire::request make_request(std::uint8_t operation, std::uint64_t id, std::uint64_t sector,
                                  std::vector<wire::segment> segments) {
  wire::request out{};
  out.operation = operation;
  out.id = id;
  out.sector_number = untrusted(sector);
  out.nr_segments = untrusted(static_cast<std::uint16_t>(segments.size()));
  std::copy_n(segments.begin(), std::min<std::size_t>(segments.size(), wire::max_direct_segments),
              out.direct);
  return out;
}
inline wire::request make_discard(std::uint64_t id, std::uint64_t sector, std::uint64_t sectors,
                                  std::uint8_t flag = 0) {
  wire::request out{};
  out.operation = wire::operation::discard;
  out.id = id;
  out.flag = flag;
  out.sector_number = untrusted(sector);
  out.nr_sectors = untrusted(sectors);
  return out;
}
inline wire::segment page(std::uint32_t gref, std::uint8_t first = 0, std::uint8_t last = 7) {
  return {gref, first, last, {}};
}

template <wire::abi Abi = wire::abi::x86_64, class Strategy = grant::batched_copy,
          class Journal = ring::no_journal>
class queue_under_test {
 public:
  using protocol_type = wire::wire<Abi>;
  using queue_type = blk::queue<Abi, scripted_mapper, silent_events, Strategy, manual_engine,
                                observe::none::recorder, Journal>;
  using journal_type = typename queue_type::journal_type;
  using response = typename protocol_type::response;

  using peer_pages = std::map<platform::grant_reference, scripted_mapper::peer_page>;

  /// \param peer pages to use again, for whoever makes very many of these
  explicit queue_under_test(std::size_t pages = 1, std::uint32_t start = 0, peer_pages peer = {})
      : memory_(pages * 4096 / 8) {
    mapper.peer = std::move(peer);
    front.emplace(bytes(), start);
    start_ = start;
    device.sectors = 1000;
    device.flush = true;
    device.discard_granularity = 512;
    device.max_indirect_segments = 256;
    engine.room = front->size();
    journal.resize(journal_type::bytes(front->size()) / 8);
    for (platform::grant_reference reference = 1; reference <= 300; ++reference) {
      auto& bytes = mapper.peer[reference].bytes;
      std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(reference));
    }
  }

  /// Made at the first use, so that a test can change `device` before.
  queue_type& queue() {
    if (!queue_) {
      grants.max_pieces = std::max<std::uint32_t>(device.max_indirect_segments, 11);
      grants.max_leases = static_cast<std::uint32_t>(front->size());
      queue_.emplace(blk::queue_setup{.ring = bytes(),
                                      .ring_start = start_,
                                      .journal = journal_bytes(),
                                      .take_over = take_over,
                                      .reap_after_submit = reap_after_submit},
                     grants, device, mapper, events, engine);
      if (take_over) {
        queue_->take_over();
      }
    }
    return *queue_;
  }
  void put(const wire::request& request) {
    front->put(request);
    (void)front->publish();
  }
  std::size_t pass(std::size_t budget = 256) { return queue().service(budget); }
  std::vector<response> responses() {
    std::vector<response> out;
    front->take(1024, [&](const response& r) { out.push_back(r); });
    return out;
  }
  /// Puts one request, lets everything complete, and returns its only response.
  response answer_to(const wire::request& request) {
    put(request);
    for (int i = 0; i < 6; ++i) {
      pass();
      engine.complete_all();
    }
    const auto all = responses();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? response{} : all.front();
  }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(memory_)); }
  std::span<std::byte> journal_bytes() { return std::as_writable_bytes(std::span(journal)); }

  /// An indirect request whose segment page is the peer's page `gref`.
  wire::request make_indirect(std::uint8_t inner, std::uint64_t id, std::uint64_t sector,
                              const std::vector<wire::segment>& segments,
                              std::uint32_t gref = 300) {
    wire::request out{};
    out.operation = wire::operation::indirect;
    out.indirect_operation = inner;
    out.id = id;
    out.sector_number = untrusted(sector);
    out.nr_segments = untrusted(static_cast<std::uint16_t>(segments.size()));
    out.indirect_grefs[0] = gref;
    std::memcpy(mapper.peer[gref].bytes.data(), segments.data(),
                std::min<std::size_t>(segments.size() * sizeof(wire::segment), 4096));
    return out;
  }

  std::optional<ring::front_ring<protocol_type>> front;
  scripted_mapper mapper;
  silent_events events;
  manual_engine engine;
  blk::shared_state device;
  grant::strategy_options grants;
  bool reap_after_submit = true;
  std::vector<std::uint64_t> journal;
  bool take_over = false;

 private:
  std::vector<std::uint64_t> memory_;  // aligned for the widest index and field
  std::uint32_t start_ = 0;
  std::optional<queue_type> queue_;
};

}  // namespace pvring::test
