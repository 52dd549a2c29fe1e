// SPDX-License-Identifier: MIT
// What a guest transmits: slots are joined to packets, their bytes are brought in for all packets
// of a pass together, and every slot is answered in ring order.
#pragma once

#include <algorithm>
#include <array>
#include <boost/intrusive/slist.hpp>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../base/counter.hpp"
#include "../grant/group_lease.hpp"
#include "../grant/strategy.hpp"
#include "../observe/observer.hpp"
#include "../protocol/netif_abi.hpp"
#include "../ring/back_ring.hpp"
#include "credit.hpp"
#include "device.hpp"
#include "packet.hpp"
#include "tx_chain.hpp"
#include "uplink.hpp"

namespace pvring::net {

/// Counted by the queue's thread; any thread may read.
struct tx_counters {
  counter slots;          ///< taken from the ring
  counter packets;        ///< that the uplink took
  counter bytes;          ///< of those
  counter refused;        ///< packets that cannot be sent; see tx_drop
  counter failed;         ///< packets whose pages were not to be had
  counter no_room;        ///< packets that the uplink had no room for
  counter uplink_failed;  ///< packets that the uplink refused
  counter multicast;      ///< requests to join or leave a group
  counter limited;        ///< times that a packet had to wait for credit
  counter publications;   ///< of responses, each of any number
};

/// Bytes of a packet that are private and in one piece when an uplink sees them: whoever reads
/// headers needs both. Linux copies as many.
inline constexpr std::size_t header_bytes = 128;

/// A packet is in one place at a time: in `chain_` while its slots come in, in `waiting_` once it
/// is known, in `started_` within a pass. It is answered behind all that came before it, so a
/// predecessor's `rsp_prod` says everything that a successor has to know.
///
/// \tparam Strategy bound to a platform
template <grant::bound_strategy Strategy, uplink_port Port, observe::recorder Recorder>
class tx_path {
 public:
  using wire_protocol = protocol::netif::tx_wire;
  using ring_type = ring::back_ring<wire_protocol>;

  /// Packets of a pass.
  static constexpr std::uint32_t most_packets = 64;

  /// All outlive it.
  tx_path(ring_type& ring, Strategy& strategy, Port& port, shared_state& device)
      : ring_(ring),
        strategy_(strategy),
        port_(port),
        device_(device),
        recorder_(most_packets),
        packets_(most_packets) {
    free_.reserve(most_packets);
    for (std::size_t i = most_packets; i-- != 0;) {
      free_.push_back(&packets_[i]);
    }
  }
  tx_path(const tx_path&) = delete;
  tx_path& operator=(const tx_path&) = delete;

  /// Takes at most about `budget` slots, always whole packets; nothing where `stopping`. Returns
  /// how much it did; `publish` shows it. \param now reads the clock in microseconds
  template <class Now>
  std::size_t pass(std::size_t budget, bool stopping, Now&& now) noexcept {
    const std::size_t taken = can_take() && !stopping ? take(budget) : 0;
    const std::size_t answered = start(stopping, now);
    if (taken + answered != 0) {
      recorder_.pass(static_cast<std::uint32_t>(taken), static_cast<std::uint32_t>(answered));
    }
    return taken + answered;
  }

  /// True when the frontend wants to be notified.
  [[nodiscard]] bool publish() noexcept {
    if (!ring_.has_unpublished()) {
      return false;
    }
    counters_.publications.add();
    const bool wanted = ring_.publish();
    recorder_.published(wanted);
    return wanted;
  }

  /// Whether more would be taken: else nobody needs to hear of requests.
  [[nodiscard]] bool can_take() const noexcept {
    return waiting_.empty() && error_ == protocol_error::none;
  }
  /// Whether nothing is under way.
  [[nodiscard]] bool idle() const noexcept { return waiting_.empty(); }
  /// What the peer did wrong: nothing is taken any more.
  [[nodiscard]] protocol_error error() const noexcept {
    return error_ != protocol_error::none ? error_ : ring_.broken();
  }
  /// When a packet that waits for credit may go, in microseconds of the clock; 0: none waits.
  [[nodiscard]] std::uint64_t again_at() const noexcept { return again_at_; }

  [[nodiscard]] const tx_counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const Recorder& recorder() const noexcept { return recorder_; }

 private:
  using status = protocol::netif::status;
  struct packet : grant::group_lease<wire_protocol, most_packet_slots> {
    enum class kind : std::uint8_t { transmit, answer };
    kind what = kind::answer;
    protocol::netif::status result = protocol::netif::status::error;
    bool paid = false;
    std::uint8_t extras = 0;
    std::uint32_t bytes = 0;
    packet_info info;
    boost::intrusive::slist_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>
        fifo_hook;
    std::array<grant::piece, max_data_slots> own_pieces;
    std::array<iovec, max_data_slots> own_buffers;
  };
  using fifo = boost::intrusive::slist<
      packet,
      boost::intrusive::member_hook<packet, decltype(packet::fifo_hook), &packet::fifo_hook>,
      boost::intrusive::constant_time_size<false>, boost::intrusive::cache_last<true>>;

  [[nodiscard]] std::uint32_t number_of(const packet& p) const noexcept {
    return static_cast<std::uint32_t>(&p - packets_.data());
  }

  // ---- take
  // -----------------------------------------------------------------------------------------------------------
  std::size_t take(std::size_t budget) noexcept {
    const auto admit = [this](ring::taken<wire_protocol>& slot) { this->admit(slot); };
    // Each packet has a slot or more, so none is begun for which there is no room.
    std::size_t taken = ring_.take(std::min(budget, free_.size()), admit);
    while (chain_.wants_more() && error_ == protocol_error::none) {
      if (ring_.take(1, admit) == 0) {
        // An honest frontend shows whole packets only.
        fail(protocol_error::packet_unfinished);
        break;
      }
      ++taken;
    }
    counters_.slots.add(taken);
    return taken;
  }

  void admit(ring::taken<wire_protocol>& slot) noexcept {
    if (error_ != protocol_error::none) [[unlikely]] {
      slot.owe({}).abandon();
      return;
    }
    if (!chain_.wants_more()) {
      chain_.begin();
      current_ = free_.back();
      free_.pop_back();
      recorder_.stage(number_of(*current_), observe::stage::seen);
    }
    const bool extra = chain_.wants_extra();
    slot.fetch(fetched_);
    auto duty =
        slot.owe(extra ? wire_protocol::echo{} : wire_protocol::echo_of(fetched_.as_request()));
    const bool more = chain_.add(fetched_);
    if (chain_.error() != protocol_error::none) [[unlikely]] {
      duty.abandon();
      fail(chain_.error());
      return;
    }
    current_->owe(std::move(duty));
    if (!more) {
      judge(*current_);
      waiting_.push_back(*current_);
    }
  }

  // The packet that was joined last goes on, or is only answered; in its turn either way.
  void judge(packet& p) noexcept {
    p.extras = static_cast<std::uint8_t>(chain_.extras());
    p.what = packet::kind::answer;
    p.result = status::error;
    if (chain_.drop() != tx_drop::none) {
      counters_.refused.add();
      return;
    }
    if (const auto& group = chain_.multicast()) {
      counters_.multicast.add();
      const bool done = group->add ? device_.multicast.add(group->address)
                                   : device_.multicast.remove(group->address);
      p.result = done ? status::okay : status::error;
      return;
    }
    p.what = packet::kind::transmit;
    p.paid = false;
    p.info = chain_.info();
    p.bytes = chain_.bytes();
    const auto pieces = chain_.pieces();
    std::copy(pieces.begin(), pieces.end(), p.own_pieces.begin());
    p.pieces = {p.own_pieces.data(), pieces.size()};
    p.storage = p.own_buffers;
  }

  // The ring means nothing from here on: what its packet owes is owed to nobody.
  void fail(protocol_error why) noexcept {
    error_ = why;
    current_->abandon_all();
    free_.push_back(current_);
    chain_ = {};
  }

  // ---- send
  // -----------------------------------------------------------------------------------------------------------
  template <class Now>
  std::size_t start(bool stopping, Now& now) noexcept {
    if (waiting_.empty()) {
      return 0;
    }
    again_at_ = 0;
    fifo started;
    while (!waiting_.empty()) {
      packet& p = waiting_.front();
      if (p.what == packet::kind::transmit && !begin(p, stopping, now)) {
        break;
      }
      waiting_.pop_front();
      started.push_back(p);
    }
    strategy_.finish_acquires([](grant::lease_state&) {});
    const auto settle = [](const grant::released& proof) {
      auto& p = static_cast<packet&>(proof.lease());
      p.let_go(proof);
      if (proof.error() != 0) {
        p.result = status::error;
      }
    };
    for (packet& p : started) {
      if (p.holding()) {
        send(p);
        strategy_.release(p, true, settle);
      }
    }
    strategy_.finish_releases(settle);
    std::size_t answered = 0;
    while (!started.empty()) {
      packet& p = started.front();
      started.pop_front();
      answer(p);
      ++answered;
    }
    return answered;
  }

  // False when it has to wait, and with it all behind it.
  template <class Now>
  bool begin(packet& p, bool stopping, Now& now) noexcept {
    if (!p.paid && !device_.credit.unlimited()) {
      const std::uint64_t time = now();
      if (!credit_.take(device_.credit, p.bytes, time)) {
        if (stopping) {  // not worth holding up the end
          p.result = status::dropped;
          counters_.no_room.add();
          return true;
        }
        counters_.limited.add();
        // The rate may change meanwhile, and nobody says so to a queue.
        again_at_ = std::min(credit_.again_at_us(), time + longest_credit_wait);
        return false;
      }
    }
    p.paid = true;
    p.direction = platform::direction::from_peer;
    p.buffers = 0;
    p.error = 0;
    if (strategy_.acquire(p) == grant::acquired::wait) {
      return false;  // the next pass: what holds the room lets go of it in this one
    }
    p.hold();
    return true;
  }

  void send(packet& p) noexcept {
    if (p.error != 0) {
      p.result = status::error;
      counters_.failed.add();
      return;
    }
    recorder_.stage(number_of(p), observe::stage::acquired);
    const int error = port_.transmit(with_header(p), p.info);
    recorder_.stage(number_of(p), observe::stage::completed);
    if (error == 0) {
      p.result = status::okay;
      counters_.packets.add();
      counters_.bytes.add(p.bytes);
      return;
    }
    p.result = status::dropped;
    (error == -EAGAIN ? counters_.no_room : counters_.uplink_failed).add();
  }

  // The packet's bytes, its header private and in one piece: the guest may go on writing into what
  // is mapped, and may have cut it where it likes.
  [[nodiscard]] std::span<const iovec> with_header(const packet& p) noexcept {
    const std::span<iovec> local = p.local();
    const std::size_t wanted = std::min<std::size_t>(p.bytes, header_bytes);
    if (!Strategy::mapped && local.front().iov_len >= wanted) {
      return local;
    }
    std::size_t copied = 0;
    std::size_t count = 1;
    gathered_[0] = {header_.data(), wanted};
    for (const iovec& part : local) {
      const std::size_t some = std::min(wanted - copied, part.iov_len);
      std::memcpy(header_.data() + copied, part.iov_base, some);
      copied += some;
      if (some != part.iov_len) {
        gathered_[count++] = {static_cast<std::byte*>(part.iov_base) + some, part.iov_len - some};
      }
    }
    return std::span(gathered_).first(count);
  }

  void answer(packet& p) noexcept {
    p.answer_all(
        [&p](std::size_t index) {
          return index >= 1 && index <= p.extras ? status::null : p.result;
        },
        [this](ring::answer<wire_protocol>&& response) { ring_.respond(std::move(response)); });
    recorder_.stage(number_of(p), observe::stage::responded);
    free_.push_back(&p);
  }

  static constexpr std::uint64_t longest_credit_wait = 100'000;  // microseconds

  ring_type& ring_;
  Strategy& strategy_;
  Port& port_;
  shared_state& device_;
  [[no_unique_address]] Recorder recorder_;
  std::vector<packet> packets_;
  std::vector<packet*> free_;
  fifo waiting_;
  tx_chain chain_;
  packet* current_ = nullptr;
  protocol::netif::tx_slot fetched_;
  // An uplink is done with a packet's bytes when it has taken them, so one of each is enough.
  std::array<std::byte, header_bytes> header_{};
  std::array<iovec, 1 + max_data_slots> gathered_{};
  credit_slice credit_;
  std::uint64_t again_at_ = 0;
  protocol_error error_ = protocol_error::none;
  tx_counters counters_;
};

}  // namespace pvring::net
