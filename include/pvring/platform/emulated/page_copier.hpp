// SPDX-License-Identifier: MIT
// The half of a grant handle that copies. It refuses malformed calls, checks each operation against
// the grant table, and lets guests know for how long it looks at their grants.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>

#include "copy_pieces.hpp"
#include "grant_core.hpp"

namespace pvring::platform::detail {

class page_copier {
 public:
  explicit page_copier(const shared_state& state)
      : available_(state.options().grant_copy && copy_pieces::available()) {
    if (state.options().grant_copy && !available_) {
      log::write(log::level::warning,
                 "no grant copy: this system does not let a process call process_vm_readv on "
                 "itself");
    }
  }

  [[nodiscard]] bool available() const noexcept { return available_; }

  [[nodiscard]] int copy(grant_core& core, domain_id domain, direction way,
                         std::span<copy_operation> operations) noexcept {
    core.counters.copy_calls.add();
    core.counters.copy_operations.add(operations.size());
    const int error = available_ ? try_copy(core, domain, way, operations) : EOPNOTSUPP;
    core.counters.copy_failures.add(error != 0 ? 1 : 0);
    return error;
  }

 private:
  int try_copy(grant_core& core, domain_id domain, direction way,
               std::span<copy_operation> operations) noexcept {
    fault_plan::call_fate fate;
    if (core.faults != nullptr) {
      fate = core.faults->next_copy();
      if (fate.error != 0 && fate.after == 0) {
        return fate.error;
      }
    }
    if (const int error = prepare(core, operations); error != 0) {
      return error;
    }
    const auto from = core.find(domain);
    if (!from) {
      for (copy_operation& op : operations) {
        op.status = grant_status::bad_domain;
      }
      return 0;
    }
    if (fate.error != 0) {
      operations = operations.first(std::min<std::size_t>(fate.after, operations.size()));
    }
    const auto copying = shared(core.state->grants(core.slot).copying);
    const std::uint64_t number = (copying.load(std::memory_order_relaxed) >> 8) + 1;
    // seq_cst: a guest that ends a grant from now on sees the copy and waits, or we see that the
    // grant has ended.
    copying.store(number << 8 | (*from + 1));
    const int error = copy_all(core, *from, way, operations);
    // release: the pages were read and written before a guest may take them back.
    copying.store(number << 8, std::memory_order_release);
    return error != 0 ? error : fate.error;
  }

  // Refuses the call where one operation is malformed, presets statuses, and counts. 0, or EINVAL.
  static int prepare(grant_core& core, std::span<copy_operation> operations) noexcept {
    std::uint64_t on_xen = 0;
    for (copy_operation& op : operations) {
      if (op.length == 0 || op.length > page_size ||
          std::size_t{op.offset} + op.length > page_size) {
        return EINVAL;
      }
      // gntdev presets this, also for pieces that it then never copies: after a failed call it
      // says nothing.
      op.status = grant_status::okay;
      const auto in_page = reinterpret_cast<std::uintptr_t>(op.local) % page_size;
      on_xen += in_page + op.length > page_size ? 2 : 1;
    }
    core.counters.hypercalls.add((on_xen + 15) / 16);
    return 0;
  }

  int copy_all(grant_core& core, std::uint32_t domain, direction way,
               std::span<copy_operation> operations) noexcept {
    for (copy_operation& op : operations) {
      const grant_check found = check(core, domain, op, way);
      op.status = found.status;
      if (found.status != grant_status::okay) {
        continue;
      }
      std::byte* granted = core.state->frame(found.frame) + op.offset;
      const int error = way == direction::from_peer
                            ? pieces_.add(op.local, granted, op.length, core.counters)
                            : pieces_.add(granted, op.local, op.length, core.counters);
      if (error != 0) {
        return error;
      }
    }
    return pieces_.flush(core.counters);
  }

  static grant_check check(grant_core& core, std::uint32_t domain, const copy_operation& op,
                           direction way) noexcept {
    // The kernel repeats a piece whose page is being paged in, a bounded number of times.
    constexpr int attempts = 8;
    if (core.faults != nullptr) {
      std::int16_t status = grant_status::try_again;
      for (int i = 0; i < attempts && status == grant_status::try_again; ++i) {
        core.counters.copy_retries.add(i != 0 ? 1 : 0);
        status = core.faults->next_operation(op.reference, i == 0);
      }
      if (status != grant_status::okay) {
        return {status};
      }
    }
    return check_grant(*core.state, domain, op.reference, core.self, way == direction::to_peer);
  }

  bool available_;
  copy_pieces pieces_;
};

}  // namespace pvring::platform::detail
