// SPDX-License-Identifier: MIT
// The half of a grant handle that copies. It splits calls that are larger than its array, and asks
// again for pieces whose page was not there.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "../counters.hpp"
#include "../grant_mapper.hpp"
#include "diagnosis.hpp"
#include "library.hpp"

namespace pvring::platform::detail {

class copier {
 public:
  /// Operations of one call.
  static constexpr std::size_t per_call = 1024;
  /// How often pieces are asked for again. Few: Linux itself asks for about half a minute and
  /// then calls the page bad, so what says `try_again` here has another kernel behind it.
  static constexpr int most_retries = 3;

  /// Asks whether the kernel copies at all, by copying nothing.
  explicit copier(xengnttab_handle* handle)
      : handle_(handle),
        segments_(std::make_unique<xengnttab_grant_copy_segment_t[]>(per_call)),
        available_(xengnttab_grant_copy(handle, 0, segments_.get()) == 0) {}

  [[nodiscard]] bool available() const noexcept { return available_; }

  /// 0, or an errno when a call failed as a whole.
  [[nodiscard]] int copy(domain_id domain, direction way, std::span<copy_operation> operations,
                         grant_counters& counters) noexcept {
    counters.copy_calls.add();
    counters.copy_operations.add(operations.size());
    const int error = available_ ? try_copy(domain, way, operations, counters) : EOPNOTSUPP;
    counters.copy_failures.add(error != 0 ? 1 : 0);
    return error;
  }

 private:
  int try_copy(domain_id domain, direction way, std::span<copy_operation> operations,
               grant_counters& counters) noexcept {
    // The kernel would copy what stands before a malformed piece, and take an empty one for done.
    for (copy_operation& op : operations) {
      if (op.length == 0 || std::size_t{op.offset} + op.length > page_size) {
        return EINVAL;
      }
      op.status = grant_status::general_error;
    }
    for (std::size_t first = 0; first < operations.size(); first += per_call) {
      const auto part = operations.subspan(first, std::min(per_call, operations.size() - first));
      if (const int error = copy_part(domain, way, part, counters); error != 0) {
        return error;
      }
    }
    return 0;
  }

  int copy_part(domain_id domain, direction way, std::span<copy_operation> part,
                grant_counters& counters) noexcept {
    int error = call(domain, way, part, grant_status::general_error, counters);
    for (int i = 0; i < most_retries && error == 0; ++i) {
      const auto busy = std::count_if(part.begin(), part.end(), [](const copy_operation& op) {
        return op.status == grant_status::try_again;
      });
      if (busy == 0) {
        break;
      }
      counters.copy_retries.add(static_cast<std::uint64_t>(busy));
      error = call(domain, way, part, grant_status::try_again, counters);
    }
    return error;
  }

  // One call for the operations whose status is `wanted`.
  int call(domain_id domain, direction way, std::span<copy_operation> part, std::int16_t wanted,
           grant_counters& counters) noexcept {
    std::uint32_t count = 0;
    std::uint64_t pieces = 0;
    for (const copy_operation& op : part) {
      if (op.status == wanted) {
        describe(segments_[count++], domain, way, op);
        const auto in_page = reinterpret_cast<std::uintptr_t>(op.local) % page_size;
        pieces += in_page + op.length > page_size ? 2 : 1;
      }
    }
    int error = 0;
    do {
      counters.copy_system_calls.add();
      counters.system_calls.add();
      counters.hypercalls.add((pieces + 15) / 16);
      errno = 0;
      error = xengnttab_grant_copy(handle_, count, segments_.get()) != 0 ? failure() : 0;
    } while (error == EINTR);
    if (error != 0) {
      return error;
    }
    const xengnttab_grant_copy_segment_t* answer = segments_.get();
    std::uint64_t bytes = 0;
    for (copy_operation& op : part) {
      if (op.status == wanted) {
        op.status = (answer++)->status;
        bytes += op.status == grant_status::okay ? op.length : 0;
      }
    }
    counters.copy_bytes.add(bytes);
    return 0;
  }

  static void describe(xengnttab_grant_copy_segment_t& segment, domain_id domain, direction way,
                       const copy_operation& op) noexcept {
    segment = {};
    auto& foreign = way == direction::from_peer ? segment.source : segment.dest;
    auto& local = way == direction::from_peer ? segment.dest : segment.source;
    foreign.foreign.ref = op.reference;
    foreign.foreign.offset = op.offset;
    foreign.foreign.domid = domain;
    local.virt = op.local;
    segment.len = op.length;
    segment.flags = way == direction::from_peer ? GNTCOPY_source_gref : GNTCOPY_dest_gref;
    // What the kernel never looked at did not succeed.
    segment.status = grant_status::general_error;
  }

  xengnttab_handle* handle_;
  std::unique_ptr<xengnttab_grant_copy_segment_t[]> segments_;
  bool available_;
};

}  // namespace pvring::platform::detail
