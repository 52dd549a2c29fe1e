// SPDX-License-Identifier: MIT
// The backend's end of a network device's control ring: what the guest sets about hashes is
// published to the queues, and which pages it wants kept mapped is ordered from the queue's thread.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "../aio/mailbox.hpp"
#include "../base/counter.hpp"
#include "../grant/mapped_grants.hpp"
#include "../platform/event_channel.hpp"
#include "../protocol/netif_control.hpp"
#include "../ring/back_ring.hpp"
#include "../wait/ring_source.hpp"
#include "flow_steering.hpp"
#include "peer_page.hpp"

namespace pvring::net {

/// Entries of a list of grants: as many as a page holds.
inline constexpr std::uint32_t most_grant_entries =
    platform::page_size / sizeof(protocol::netif::grant_entry_layout);

/// Counted by the thread that serves the ring; any thread may read.
struct control_counters {
  counter requests;
  counter refused;        ///< of those, the ones answered with another status than success
  counter notifications;  ///< sent to the frontend
};

/// What a control ring is made of and made for.
struct control_setup {
  domain_id domain = 0;
  std::span<std::byte> ring;       ///< a mapped page; outlives it
  platform::port port = 0;         ///< bound on the event handle
  std::uint32_t start = 0;         ///< where the ring was left
  std::uint32_t queues = 1;        ///< of the device
  bool hashing = false;            ///< offered: only where the queue of a packet is ours to choose
  std::uint32_t mapped_pages = 0;  ///< that a queue keeps mapped for the guest; 0: not offered
  /// Hands an order to a queue's thread, which performs it and calls `finished`, whatever happens
  /// to the queue. False: the queue takes none any more, and `finished` is not called.
  bool (*order)(void* who, std::uint32_t queue, grant::mapping_order& order) noexcept = nullptr;
  /// Called by the serving thread when the frontend broke the protocol; and with `none` when a
  /// stopped ring has become idle.
  void (*attention)(void* who, protocol_error why) noexcept = nullptr;
  void* who = nullptr;
};

/// To be served like a queue: see wait::served. stop(), idle() and broken() are for any thread.
/// Nothing allocates after construction, throws, or blocks.
///
/// A request is answered when it has been done. While an order is with a queue no other request is
/// taken: the guest's own ring is where they wait, so one list is all the room that is needed.
template <platform::grant_mapper Mapper, platform::event_channel Events>
class control_ring {
 public:
  using wire_protocol = protocol::netif::control_wire;
  using ring_type = ring::back_ring<wire_protocol>;

  /// All but `setup` outlive it, and it outlives the threads of the queues that it gives orders to.
  /// A new connection knows nothing of what an earlier frontend had set. \throws
  /// configuration_error when the page cannot be a ring, std::system_error when there is no memory
  /// or descriptor
  control_ring(const control_setup& setup, shared_steering& shared, Mapper& mapper, Events& events)
      : setup_(setup),
        shared_(shared),
        events_(events),
        ring_(setup.ring, setup.start),
        page_(mapper, setup.domain),
        finished_(1),
        source_(events, setup.port, ring_) {
    assert(setup.mapped_pages == 0 || setup.order != nullptr);
    order_.who = this;
    order_.finished = [](grant::mapping_order& order) noexcept {
      static_cast<control_ring*>(order.who)->finished_.push(&order);
    };
    shared_.publish(steering_);
  }
  control_ring(const control_ring&) = delete;
  control_ring& operator=(const control_ring&) = delete;
  /// \pre idle(), or the threads of the queues have ended
  ~control_ring() { duty_.abandon(); }

  /// One pass: at most `budget` requests, and the order that came back.
  std::size_t service(std::size_t budget) noexcept {
    const bool stopping = stopping_.load(std::memory_order_acquire);
    std::size_t work = finished_.consume([this](grant::mapping_order*) noexcept { finish(); });
    for (std::size_t i = 0; i < budget && !stopping && !duty_.owed(); ++i) {
      if (ring_.take(1, [this](ring::taken<wire_protocol>& taken) { handle(taken); }) == 0) {
        break;
      }
      ++work;
    }
    if (ring_.has_unpublished() && ring_.publish()) {
      counters_.notifications.add();
      events_.notify(setup_.port);
    }
    tell();
    const bool takes = !stopping_.load(std::memory_order_acquire) && !duty_.owed();
    source_.template want<0>(takes ? 1 : 0);
    return work;
  }

  [[nodiscard]] std::optional<wait::time_point> deadline() noexcept { return std::nullopt; }

  template <class F>
  void for_each_source(F&& each) noexcept {
    each(source_);
    each(finished_);
  }

  /// Takes no more requests; an order that is under way is waited for. idle() tells when it is
  /// over.
  void stop() noexcept { stopping_.store(true, std::memory_order_release); }
  [[nodiscard]] bool idle() const noexcept { return idle_.load(std::memory_order_acquire); }
  /// What the frontend did, once it broke the protocol.
  [[nodiscard]] protocol_error broken() const noexcept {
    return broken_.load(std::memory_order_acquire);
  }

  [[nodiscard]] const control_counters& counters() const noexcept { return counters_; }
  /// What the guest has set. The serving thread.
  [[nodiscard]] const steering& current() const noexcept { return steering_; }
  /// The index behind the last answer. The serving thread, or any when that has ended.
  [[nodiscard]] std::uint32_t position() const noexcept { return ring_.answered(); }

 private:
  using status = protocol::netif::control_status;
  using outcome = wire_protocol::status;
  using request = wire_protocol::request;

  void handle(ring::taken<wire_protocol>& taken) noexcept {
    request r;
    taken.fetch(r);
    duty_ = taken.owe(wire_protocol::echo_of(r));
    counters_.requests.add();
    if (const std::optional<outcome> result = perform(r)) {
      answer(*result);
    }
  }

  void answer(const outcome& result) noexcept {
    if (result.status != status::success) {
      counters_.refused.add();
    }
    ring_.respond(std::move(duty_).settle(result));
  }

  // Nothing: a queue has it, and `finish` answers.
  std::optional<outcome> perform(const request& r) noexcept {
    namespace type = protocol::netif::control_type;
    if (r.type >= type::get_hash_flags && r.type <= type::set_hash_algorithm) {
      return setup_.hashing ? set_hash(r) : outcome{status::not_supported};
    }
    if (r.type >= type::get_grant_mapping_size && r.type <= type::delete_grant_mapping) {
      if (setup_.mapped_pages == 0) {
        return outcome{status::not_supported};
      }
      const auto queue = r.data[0].at_most(setup_.queues - 1);
      if (!queue) {
        return outcome{status::invalid_parameter};
      }
      return r.type == type::get_grant_mapping_size ? outcome{status::success, setup_.mapped_pages}
                                                    : give_order(*queue, r);
    }
    return outcome{status::not_supported};
  }

  outcome set_hash(const request& r) noexcept {
    namespace type = protocol::netif::control_type;
    namespace algorithm = protocol::netif::hash_algorithm;
    if (r.type == type::get_hash_mapping_size) {
      return {status::success, most_hash_mappings};
    }
    if (r.type == type::get_hash_flags) {
      return steering_.algorithm == algorithm::none
                 ? outcome{status::not_supported}
                 : outcome{status::success, protocol::netif::all_hash_flags};
    }
    steering next = steering_;
    const status result = apply(r, next);
    // A guest that sets the same again gives nobody anything to do.
    if (result == status::success && next != steering_) {
      steering_ = next;
      shared_.publish(steering_);
    }
    return {result};
  }

  status apply(const request& r, steering& next) noexcept {
    namespace type = protocol::netif::control_type;
    namespace algorithm = protocol::netif::hash_algorithm;
    switch (r.type) {
      case type::set_hash_algorithm: {
        const auto wanted = r.data[0].at_most(algorithm::toeplitz);
        next.algorithm = wanted.value_or(algorithm::none);
        return wanted ? status::success : status::invalid_parameter;
      }
      case type::set_hash_flags: {
        const auto wanted = r.data[0].at_most(protocol::netif::all_hash_flags);
        next.flags = wanted.value_or(0);
        return wanted && next.algorithm != algorithm::none ? status::success
                                                           : status::invalid_parameter;
      }
      case type::set_hash_mapping_size: {
        const auto wanted = r.data[0].at_most(most_hash_mappings);
        next.mappings = wanted.value_or(0);
        next.mapping.fill(0);
        return wanted ? status::success : status::invalid_parameter;
      }
      case type::set_hash_key:
        return set_key(r.data[0].echo(), r.data[1], next.key);
      default:
        return set_mapping(r, next);
    }
  }

  status set_key(platform::grant_reference reference, untrusted<std::uint32_t> size,
                 hash_key& key) noexcept {
    const auto length = size.at_most(longest_hash_key);
    if (!length) {
      return status::buffer_overflow;
    }
    key.fill(0);  // what the guest does not name is 0
    if (*length == 0) {
      return status::success;
    }
    if (!page_.read(reference, *length)) {
      return status::invalid_parameter;
    }
    std::memcpy(key.data(), page_.bytes().data(), *length);
    return status::success;
  }

  status set_mapping(const request& r, steering& next) noexcept {
    const auto count = r.data[1].at_most(most_hash_mappings);
    const auto first = r.data[2].at_most(most_hash_mappings);
    if (!count || !first || *first + *count > most_hash_mappings) {
      return status::buffer_overflow;
    }
    if (*first + *count > next.mappings) {
      return status::invalid_parameter;
    }
    if (*count == 0) {
      return status::success;
    }
    if (!page_.read(r.data[0].echo(), *count * sizeof(std::uint32_t))) {
      return status::invalid_parameter;
    }
    std::memcpy(&next.mapping[*first], page_.bytes().data(), *count * sizeof(std::uint32_t));
    for (std::uint32_t i = *first; i < *first + *count; ++i) {
      if (next.mapping[i] >= setup_.queues) {
        return status::invalid_parameter;
      }
    }
    return status::success;
  }

  std::optional<outcome> give_order(std::uint32_t queue, const request& r) noexcept {
    using protocol::netif::grant_entry_layout;
    const bool add = r.type == protocol::netif::control_type::add_grant_mapping;
    const auto count = r.data[2].at_most(most_grant_entries);
    if (!count) {
      return outcome{status::invalid_parameter};
    }
    if (*count == 0) {
      return outcome{status::success};
    }
    list_ = r.data[1].echo();
    if (!page_.read(list_, *count * sizeof(grant_entry_layout))) {
      return outcome{status::invalid_parameter};
    }
    for (std::uint32_t i = 0; i < *count; ++i) {
      const grant_entry_layout entry = entry_at(i);
      // A flag that is not known asks for something that would not be done.
      if (add && (entry.flags & ~protocol::netif::grant_read_only) != 0) {
        return outcome{status::invalid_parameter};
      }
      entries_[i] = {.reference = entry.ref,
                     .read_only = (entry.flags & protocol::netif::grant_read_only) != 0,
                     .done = false};
    }
    order_.add = add;
    order_.okay = false;
    order_.count = 0;
    order_.entries = std::span(entries_).first(*count);
    if (!setup_.order(setup_.who, queue, order_)) {
      return outcome{status::invalid_parameter};
    }
    return std::nullopt;
  }

  // The order came back.
  void finish() noexcept {
    if (order_.add) {
      answer({order_.okay ? status::success : status::invalid_parameter});
      return;
    }
    for (std::size_t i = 0; i < order_.entries.size(); ++i) {
      protocol::netif::grant_entry_layout entry = entry_at(i);
      entry.status = static_cast<std::uint16_t>(order_.entries[i].done ? status::success
                                                                       : status::invalid_parameter);
      std::memcpy(page_.bytes().data() + i * sizeof entry, &entry, sizeof entry);
    }
    // A guest that cannot be told which pages it has back must not believe that it has them all.
    const bool told =
        page_.write(list_, order_.entries.size() * sizeof(protocol::netif::grant_entry_layout));
    answer({told ? status::success : status::invalid_parameter,
            static_cast<std::uint32_t>(order_.count)});
  }

  [[nodiscard]] protocol::netif::grant_entry_layout entry_at(std::size_t index) noexcept {
    protocol::netif::grant_entry_layout out;
    std::memcpy(&out, page_.bytes().data() + index * sizeof out, sizeof out);
    return out;
  }

  void attract(protocol_error why) const noexcept {
    if (setup_.attention != nullptr) {
      setup_.attention(setup_.who, why);
    }
  }

  // Shows the other threads what became of the ring.
  void tell() noexcept {
    if (ring_.broken() != protocol_error::none &&
        broken_.load(std::memory_order_relaxed) == protocol_error::none) [[unlikely]] {
      broken_.store(ring_.broken(), std::memory_order_release);
      stopping_.store(true, std::memory_order_release);
      attract(ring_.broken());
    }
    if (stopping_.load(std::memory_order_acquire) && !duty_.owed() &&
        !idle_.load(std::memory_order_relaxed)) [[unlikely]] {
      idle_.store(true, std::memory_order_release);
      attract(protocol_error::none);
    }
  }

  control_setup setup_;
  shared_steering& shared_;
  Events& events_;
  ring_type ring_;
  peer_page<Mapper> page_;
  steering steering_;
  std::array<grant::mapped_entry, most_grant_entries> entries_{};
  grant::mapping_order order_;
  platform::grant_reference list_ = 0;    // of the order that is under way
  ring::obligation<wire_protocol> duty_;  // owed while an order is under way
  aio::mailbox<grant::mapping_order*> finished_;
  wait::ring_source<Events, ring_type> source_;
  control_counters counters_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> idle_{false};
  std::atomic<protocol_error> broken_{protocol_error::none};
};

}  // namespace pvring::net
