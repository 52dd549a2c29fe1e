// SPDX-License-Identifier: MIT
// Release before respond, in the types: fetching a request leaves the backend with an obligation,
// and a ring takes nothing but the answer that an obligation turns into. A lease on grants swallows
// the obligation until they are released.
#pragma once

#include <cassert>
#include <concepts>
#include <cstdint>
#include <utility>

#include "protocol.hpp"
#include "shared_access.hpp"

namespace pvring::ring {

template <class Protocol>
class obligation;
template <class Protocol>
class taken;
template <back_protocol Protocol, std::unsigned_integral Index>
class back_ring;

/// A response that may be given now. Move-only, and made from an obligation only. Losing one is as
/// bad as losing the obligation.
template <class Protocol>
class answer {
 public:
  answer(answer&& other) noexcept
      : echo_(other.echo_), status_(other.status_), open_(std::exchange(other.open_, false)) {}
  answer& operator=(answer&& other) noexcept {
    assert(!open_ && "an answer would never be given");
    echo_ = other.echo_;
    status_ = other.status_;
    open_ = std::exchange(other.open_, false);
    return *this;
  }
  answer(const answer&) = delete;
  answer& operator=(const answer&) = delete;
  ~answer() { assert(!open_ && "an answer was never given"); }

  [[nodiscard]] const typename Protocol::echo& to() const noexcept { return echo_; }
  [[nodiscard]] typename Protocol::status status() const noexcept { return status_; }

  /// Drops it: only when the ring itself is gone.
  void abandon() noexcept { open_ = false; }

 private:
  friend class obligation<Protocol>;
  template <back_protocol P, std::unsigned_integral Index>
  friend class back_ring;
  answer(const typename Protocol::echo& to, typename Protocol::status status) noexcept
      : echo_(to), status_(status) {}

  // The ring gives it.
  void give() noexcept {
    assert(open_ && "a request would be answered twice");
    open_ = false;
  }

  typename Protocol::echo echo_;
  typename Protocol::status status_;
  bool open_ = true;
};

/// The duty to answer one request exactly once. Made by the ring when a request is fetched; losing
/// one is a bug.
template <class Protocol>
class obligation {
 public:
  obligation() = default;
  obligation(obligation&& other) noexcept
      : echo_(other.echo_), owed_(std::exchange(other.owed_, false)) {}
  obligation& operator=(obligation&& other) noexcept {
    assert(!owed_ && "a request would never be answered");
    echo_ = other.echo_;
    owed_ = std::exchange(other.owed_, false);
    return *this;
  }
  obligation(const obligation&) = delete;
  obligation& operator=(const obligation&) = delete;
  ~obligation() { assert(!owed_ && "a request was never answered"); }

  /// Discharges the duty.
  [[nodiscard]] answer<Protocol> settle(typename Protocol::status status) && noexcept {
    assert(owed_ && "a request would be answered twice");
    owed_ = false;
    return {echo_, status};
  }

  /// Gives the duty up without an answer: only when the ring itself is gone.
  void abandon() noexcept { owed_ = false; }

  [[nodiscard]] bool owed() const noexcept { return owed_; }

 private:
  friend class taken<Protocol>;
  template <back_protocol P, std::unsigned_integral Index>
  friend class back_ring;
  explicit obligation(const typename Protocol::echo& to) noexcept : echo_(to), owed_(true) {}

  typename Protocol::echo echo_{};
  bool owed_ = false;
};

/// A request that the ring has just handed out. It is fetched at most once, and then owes an
/// answer.
template <class Protocol>
class taken {
 public:
  taken(const taken&) = delete;
  taken& operator=(const taken&) = delete;

  /// Copies the request out of its slot. Call it once: a second look could see something else.
  void fetch(typename Protocol::request& into) noexcept {
    assert(!std::exchange(fetched_, true) && "a slot must be read once");
    Protocol::fetch(slot_, into);
  }

  /// \param to what the response will give back, made from the private copy
  [[nodiscard]] obligation<Protocol> owe(const typename Protocol::echo& to) noexcept {
    assert(!owed_ && "one request owes one answer");
    owed_ = true;
    return obligation<Protocol>(to);
  }

 private:
  template <back_protocol P, std::unsigned_integral Index>
  friend class back_ring;
  explicit taken(slot_source slot) noexcept : slot_(slot) {}
  ~taken() { assert(owed_ && "a request was dropped"); }

  slot_source slot_;
  bool owed_ = false;
  [[maybe_unused]] bool fetched_ = false;
};

}  // namespace pvring::ring
