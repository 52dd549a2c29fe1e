// SPDX-License-Identifier: MIT
// Pages that the peer asked to be kept mapped are used where they lie; for whatever has another
// page too there is another strategy. Costs one comparison for a peer that never asks.
#pragma once

#include <cstdint>
#include <string_view>

#include "batched_copy.hpp"
#include "mapped_grants.hpp"
#include "strategy.hpp"

namespace pvring::grant {

/// \tparam Fallback the strategy for requests with a page that is not in the table
template <class Fallback = batched_copy>
struct mapped_first {
  using policy_kind = pvring::policy_kind::grants;
  static constexpr std::string_view name = "mapped_first";
  static constexpr bool needs_frontend = Fallback::needs_frontend;
  using fallback = Fallback;
  // Kept pages are unmapped when the peer says so; the others when the other strategy does it.
  static constexpr bool answer_frees_grants = grant::answer_frees_grants<Fallback>;

  /// The peer may ask or not, so it is usable wherever the other is; but pages that the peer can
  /// still write become I/O buffers.
  [[nodiscard]] static constexpr bool usable(const circumstances& known) noexcept {
    return Fallback::usable(known);
  }

  template <platform::grant_mapper Mapper>
  class bind;
};

/// Pages that a table has room for unless `quota_pages` says otherwise: one list of the network
/// protocol.
inline constexpr std::size_t usual_mapped_pages = 512;

/// A request is one of the two: all its pages are in the table, or all of them are acquired by the
/// other strategy. `quota_pages` is the table's capacity.
template <class Fallback>
template <platform::grant_mapper Mapper>
class mapped_first<Fallback>::bind : public Fallback::template bind<Mapper> {
  using base = typename Fallback::template bind<Mapper>;

 public:
  static constexpr bool mapped = true;
  using table_type = mapped_grants<Mapper>;

  bind(Mapper& mapper, const strategy_options& options)
      : base(mapper, options),
        table_(mapper, options.domain,
               static_cast<std::uint32_t>(options.quota_pages != 0 ? options.quota_pages
                                                                   : usual_mapped_pages)) {}

  [[nodiscard]] acquired acquire(lease_state& lease) noexcept {
    lease.kept = !table_.empty() && look_up(lease);
    if (!lease.kept) {
      return base::acquire(lease);
    }
    for (const piece& part : lease.pieces) {
      lease.append(table_.at(part.mark).address + part.offset, part.length);
    }
    this->counters_.hits.add(lease.pieces.size());
    ++kept_;
    return acquired::ready;
  }

  template <class F>
  void release(lease_state& lease, bool ok, F&& each) noexcept {
    if (!lease.kept) {
      base::release(lease, ok, each);
      return;
    }
    let_go(lease, lease.pieces.size());
    lease.kept = false;
    --kept_;
    this->prove(lease, each);
  }

  void clear() noexcept {
    table_.clear();
    base::clear();
  }

  [[nodiscard]] std::uint32_t leases() const noexcept { return base::leases() + kept_; }

  /// The pages that the peer asked to be kept mapped.
  [[nodiscard]] table_type& table() noexcept { return table_; }

 private:
  bool look_up(lease_state& lease) noexcept {
    const bool store = lease.direction == platform::direction::to_peer;
    for (std::size_t i = 0; i < lease.pieces.size(); ++i) {
      auto* const found = table_.find(lease.pieces[i].reference, store);
      if (found == nullptr) {
        let_go(lease, i);
        this->counters_.misses.add(lease.pieces.size());
        return false;
      }
      table_.use(*found);
      lease.pieces[i].mark = table_.number_of(*found);
    }
    return true;
  }

  void let_go(lease_state& lease, std::size_t count) noexcept {
    for (const piece& part : lease.pieces.first(count)) {
      table_.let_go(table_.at(part.mark));
    }
  }

  table_type table_;
  std::uint32_t kept_ = 0;
};

}  // namespace pvring::grant
