// SPDX-License-Identifier: MIT
// A lease of several requests at once, as those of a packet are: all their pages are acquired and
// released together, and none of them can be answered before.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../ring/answer.hpp"
#include "strategy.hpp"

namespace pvring::grant {

/// \tparam Protocol the ring's protocol \tparam Most requests of a group
///
/// It owes one answer per request, in the order of `owe`. While its pages are held (`hold` until
/// `let_go`), it gives none of them.
template <class Protocol, std::size_t Most>
class group_lease : public lease_state {
 public:
  /// \pre fewer than `Most` are owed, and no page is held
  void owe(ring::obligation<Protocol>&& duty) noexcept {
    assert(count_ < Most && !holding_);
    duties_[count_++] = std::move(duty);
  }
  [[nodiscard]] std::size_t owed() const noexcept { return count_; }

  /// A strategy has been asked for the pages, and did not say `wait`.
  void hold() noexcept {
    assert(!holding_);
    holding_ = true;
  }
  /// \param proof of the release of this very lease
  void let_go(const released& proof) noexcept {
    assert(holding_ && &proof.lease() == this);
    (void)proof;
    holding_ = false;
  }
  [[nodiscard]] bool holding() const noexcept { return holding_; }

  /// Discharges all duties: `give(ring::answer<Protocol>&&)` for each request, in order, with the
  /// status that `status_of(index)` says. \pre !holding()
  template <class StatusOf, class Give>
  void answer_all(StatusOf&& status_of, Give&& give) noexcept {
    assert(!holding_ && "a page would be answered for while it is held");
    for (std::size_t i = 0; i < count_; ++i) {
      give(std::move(duties_[i]).settle(status_of(i)));
    }
    count_ = 0;
  }

  /// Gives all duties up: only when the ring itself is gone.
  void abandon_all() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      duties_[i].abandon();
    }
    count_ = 0;
  }

 private:
  std::array<ring::obligation<Protocol>, Most> duties_{};
  std::uint32_t count_ = 0;
  bool holding_ = false;
};

}  // namespace pvring::grant
