// SPDX-License-Identifier: MIT
// What a ring needs to survive its backend: a record, in memory that outlives the process, of what
// was taken and what was answered. A successor reads it, and goes on where a killed process
// stopped.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../base/config.hpp"

namespace pvring::ring {

/// Where both of a backend's indices stand.
struct position {
  std::uint32_t req_cons = 0;  ///< requests taken
  std::uint32_t rsp_prod = 0;  ///< responses published
};

/// What became of a predecessor's journal.
enum class journal_finding : std::uint8_t {
  usable,
  absent,   ///< nobody has kept one here, or it was not finished
  foreign,  ///< of another version, ring size, or agreement
  damaged,  ///< its numbers contradict each other
};
[[nodiscard]] constexpr std::string_view to_string(journal_finding finding) noexcept {
  switch (finding) {
    case journal_finding::usable:
      return "usable";
    case journal_finding::absent:
      return "it is not there, or was not finished";
    case journal_finding::foreign:
      return "it belongs to another connection, or to another version";
    case journal_finding::damaged:
      return "its numbers contradict each other";
  }
  return "unknown";
}

/// A journal of one ring. One thread writes it; nobody else looks until that thread's process is
/// dead.
///
/// Why the ring is not enough: answers out of order lie where unanswered requests were, how much
/// was taken is not in the ring, and the ring's `rsp_prod` a peer can write.
///
/// The process may be killed between any two instructions, and its successor sees every store
/// before that point and none after it: one thread's own order is all that has to hold, and only
/// the compiler can break it. So control words are release stores, which keep what is before them,
/// and signal fences keep what is behind from moving ahead; no CPU fence is needed.
///
/// - `record(place, index, request)`: a request was taken from ring index `index`; `place` is free.
/// - `commit(req_cons)`: everything recorded counts from here on. Before the first response or I/O
/// of them.
/// - `answered(place, index)`: its response is in the ring at `index`, not yet published.
/// - `publish(rsp_prod)`: just before the ring's own index is. Places answered below it are free.
/// - `fail()`: remembers for good that acknowledged data may be lost.
template <class J, class Request>
concept journal = requires(J& j, std::uint32_t number, const Request& request) {
  { J::keeps } -> std::convertible_to<bool>;
  { j.record(number, number, request) } noexcept -> std::same_as<void>;
  { j.commit(number) } noexcept -> std::same_as<void>;
  { j.answered(number, number) } noexcept -> std::same_as<void>;
  { j.publish(number) } noexcept -> std::same_as<void>;
  { j.fail() } noexcept -> std::same_as<void>;
};

/// The policy that keeps none: a backend's death ends its connections.
struct no_journal {
  using policy_kind = pvring::policy_kind::journal;
  template <class Request>
  struct bind {
    static constexpr bool keeps = false;
    static constexpr std::size_t bytes(std::size_t /*slots*/) noexcept { return 0; }
    bind(std::span<std::byte> /*memory*/, std::size_t /*slots*/) noexcept {}
    void record(std::uint32_t, std::uint32_t, const Request&) noexcept {}
    void commit(std::uint32_t) noexcept {}
    void answered(std::uint32_t, std::uint32_t) noexcept {}
    void publish(std::uint32_t) noexcept {}
    void fail() noexcept {}
  };
};

/// The policy that keeps one in memory that its user provides, as a rule a file's.
struct shared_journal {
  using policy_kind = pvring::policy_kind::journal;
  template <class Request>
    requires std::is_trivially_copyable_v<Request>
  class bind;
};

/// Indices are 64 bits long here, so that they never wrap, and a number that no ring reaches says
/// "not answered".
template <class Request>
  requires std::is_trivially_copyable_v<Request>
class shared_journal::bind {
 public:
  static constexpr bool keeps = true;
  static constexpr std::size_t agreement_bytes = 4864;

  /// Memory for a ring of `slots`.
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t slots) noexcept {
    return sizeof(header) + slots * sizeof(entry);
  }

  /// Neither reads nor writes. `memory`: bytes(slots) of it, aligned to 64, zeroes where it is new.
  bind(std::span<std::byte> memory, std::size_t slots) noexcept
      : header_(reinterpret_cast<header*>(memory.data())),
        entries_(reinterpret_cast<entry*>(memory.data() + sizeof(header))),
        slots_(slots) {
    assert(memory.size() >= bytes(slots));
  }

  /// Starts a journal of a ring that begins at `start` with nothing unanswered. \param agreement
  /// what successor and predecessor have to agree on, at most agreement_bytes
  void begin(std::span<const std::byte> agreement, std::uint32_t start) noexcept {
    assert(agreement.size() <= agreement_bytes);
    store(header_->complete, 0);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    header_->layout = this_layout();
    header_->slots = slots_;
    header_->agreement_length = agreement.size();
    std::ranges::copy(agreement, header_->agreement);
    for (entry& e : std::span(entries_, slots_)) {
      e.index = 0;
      e.answered = 0;  // answered long ago
    }
    // One round ahead, so that what was answered before the start is a smaller number.
    req_cons_ = rsp_prod_ = round + start;
    header_->req_cons = req_cons_;
    header_->rsp_prod = rsp_prod_;
    header_->failed = 0;
    store(header_->complete, magic);
  }

  /// Looks at what a predecessor left. The memory is not trusted: a finding but `usable` says why
  /// it is no use, and whatever it is, nothing is written.
  [[nodiscard]] journal_finding open(std::span<const std::byte> agreement) {
    outstanding_.clear();
    if (load(header_->complete) != magic) {
      return journal_finding::absent;
    }
    if (header_->layout != this_layout() || header_->slots != slots_ ||
        header_->agreement_length != agreement.size() ||
        !std::ranges::equal(agreement, std::span(header_->agreement, agreement.size()))) {
      return journal_finding::foreign;
    }
    req_cons_ = load(header_->req_cons);
    rsp_prod_ = load(header_->rsp_prod);
    if (rsp_prod_ > req_cons_ || req_cons_ - rsp_prod_ > slots_ || rsp_prod_ < round) {
      return journal_finding::damaged;
    }
    for (std::uint32_t place = 0; place < slots_; ++place) {
      const std::uint64_t answered = load(entries_[place].answered);
      // What was answered but not published is done again: nobody has seen that answer.
      if (entries_[place].index < req_cons_ && entries_[place].index >= round &&
          answered >= rsp_prod_) {
        if (answered != unanswered && answered >= req_cons_) {
          return journal_finding::damaged;
        }
        outstanding_.push_back(place);
      }
    }
    const auto by_index = [this](std::uint32_t place) { return entries_[place].index; };
    std::ranges::sort(outstanding_, {}, by_index);
    if (outstanding_.size() != req_cons_ - rsp_prod_ ||
        std::ranges::adjacent_find(outstanding_, {}, by_index) != outstanding_.end()) {
      return journal_finding::damaged;
    }
    return journal_finding::usable;
  }

  /// What stands in the memory of anybody's journal of this version, whatever its ring. Nothing
  /// where it is none, or was not finished.
  struct remains {
    std::span<const std::byte> agreement;
    bool failed = false;
  };
  static constexpr std::size_t least_bytes() noexcept { return sizeof(header); }
  /// \param memory at least least_bytes() of it, aligned to 64
  [[nodiscard]] static std::optional<remains> look_at(std::span<std::byte> memory) noexcept {
    assert(memory.size() >= least_bytes());
    auto* const left = reinterpret_cast<header*>(memory.data());
    if (load(left->complete) != magic || left->layout != this_layout() ||
        left->agreement_length > agreement_bytes) {
      return std::nullopt;
    }
    return remains{{left->agreement, left->agreement_length}, load(left->failed) != 0};
  }

  /// \pre begin() or open() succeeded
  [[nodiscard]] position where() const noexcept {
    return {static_cast<std::uint32_t>(req_cons_), static_cast<std::uint32_t>(rsp_prod_)};
  }
  /// Places of requests that were taken and whose answer nobody has seen, in ring order.
  [[nodiscard]] std::span<const std::uint32_t> outstanding() const noexcept { return outstanding_; }
  [[nodiscard]] Request request(std::uint32_t place) const noexcept {
    Request out;
    std::memcpy(static_cast<void*>(&out), entries_[place].request, sizeof out);
    return out;
  }
  /// Forgets the answers that a predecessor gave and nobody saw: their indices will be those of
  /// other answers. Before the first `publish` of the successor. \pre open() succeeded
  void resume() noexcept {
    for (const std::uint32_t place : outstanding_) {
      store(entries_[place].answered, unanswered);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  /// Whether a predecessor remembered a failure.
  [[nodiscard]] bool failed() const noexcept { return load(header_->failed) != 0; }

  void record(std::uint32_t place, std::uint32_t index, const Request& request) noexcept {
    entry& e = entries_[place];
    // The place's last answer is published, so until `index` is stored this is an old request, and
    // after that one that is not committed: whatever else is half written, nobody looks at it.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::memcpy(e.request, static_cast<const void*>(&request), sizeof request);
    store(e.index, extended(req_cons_, index));
    store(e.answered, unanswered);
  }
  void commit(std::uint32_t req_cons) noexcept {
    req_cons_ = extended(req_cons_, req_cons);
    store(header_->req_cons, req_cons_);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  void answered(std::uint32_t place, std::uint32_t index) noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    store(entries_[place].answered, extended(rsp_prod_, index));
  }
  void publish(std::uint32_t rsp_prod) noexcept {
    rsp_prod_ = extended(rsp_prod_, rsp_prod);
    store(header_->rsp_prod, rsp_prod_);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  void fail() noexcept {
    store(header_->failed, 1);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

 private:
  static constexpr std::uint64_t magic = 0x6c61'6e72'756f'6a70;  // "pjournal"
  static constexpr std::uint64_t version = 1;
  static constexpr std::uint64_t unanswered = ~std::uint64_t{0};
  static constexpr std::uint64_t round = std::uint64_t{1} << 32U;

  struct header {
    std::uint64_t complete;
    std::uint64_t layout;
    std::uint64_t slots;
    std::uint64_t req_cons;
    std::uint64_t rsp_prod;
    std::uint64_t failed;
    std::uint64_t agreement_length;
    std::byte agreement[agreement_bytes];
  };
  struct entry {
    std::uint64_t index;     // of the request
    std::uint64_t answered;  // index of its response
    alignas(std::uint64_t) std::byte request[sizeof(Request)];
  };

  [[nodiscard]] static constexpr std::uint64_t this_layout() noexcept {
    return version << 32U | sizeof(Request);
  }
  // The long index next to `near`, at or ahead of it, that ends in `index`.
  [[nodiscard]] static constexpr std::uint64_t extended(std::uint64_t near,
                                                        std::uint32_t index) noexcept {
    return near + (index - static_cast<std::uint32_t>(near));
  }
  static void store(std::uint64_t& where, std::uint64_t value) noexcept {
    std::atomic_ref(where).store(value, std::memory_order_release);
  }
  [[nodiscard]] static std::uint64_t load(std::uint64_t& where) noexcept {
    return std::atomic_ref(where).load(std::memory_order_acquire);
  }

  header* header_;
  entry* entries_;
  std::size_t slots_;
  std::uint64_t req_cons_ = 0;
  std::uint64_t rsp_prod_ = 0;
  std::vector<std::uint32_t> outstanding_;
};

/// Whether a type is a journal policy for requests of this type.
template <class P, class Request>
concept journal_policy = std::same_as<typename P::policy_kind, policy_kind::journal> &&
                         journal<typename P::template bind<Request>, Request>;

}  // namespace pvring::ring
