// SPDX-License-Identifier: MIT
// The grant handle of a Xen host: libxengnttab on /dev/xen/gntdev, one descriptor per queue. It
// keeps the quota, which today's Linux does not, and knows what it has mapped.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "copier.hpp"
#include "mapped_ranges.hpp"
#include "tool_logger.hpp"

namespace pvring::platform {

/// Models `grant_mapper`. One thread uses it. Opened by `xen::open_grants`; must not be used in a
/// child after fork, where closing it gives up the descriptor only. Nothing allocates after it was
/// opened.
///
/// What a peer can do: Linux waits about half a minute for each page that its owner has paged out,
/// in `map` and in `copy`, before it gives up (EINVAL, or status -9). A kernel that would rather
/// say EAGAIN makes the library ask again without an end.
///
/// `counters()`: system calls are those that the library makes on Linux when nothing fails, two for
/// a map, three for an unmap, one for a copy.
class xen_grants {
 public:
  /// Throws std::system_error naming node and remedy.
  explicit xen_grants(std::size_t quota) : body_(std::make_unique<body>(quota)) {}
  xen_grants(xen_grants&&) noexcept = default;
  xen_grants& operator=(xen_grants&&) noexcept = default;
  /// Unmaps what is left, and says so.
  ~xen_grants() = default;

  [[nodiscard]] bool has_copy() const noexcept { return body_->copier.available(); }
  [[nodiscard]] std::size_t batch_limit() const noexcept { return detail::copier::per_call; }
  [[nodiscard]] const grant_counters& counters() const noexcept { return body_->counters; }

  /// What is mapped at present.
  [[nodiscard]] std::size_t mapped_pages() const noexcept { return body_->ranges.pages(); }
  [[nodiscard]] std::size_t mapped_maps() const noexcept { return body_->ranges.maps(); }

  /// EINVAL for a bad reference, no permission, no such domain, and no references; ENOSPC over the
  /// quota.
  [[nodiscard]] map_result map(domain_id domain, std::span<const grant_reference> references,
                               access how) noexcept {
    body& b = *body_;
    b.counters.map_calls.add();
    const map_result result = try_map(domain, references, how);
    b.counters.map_failures.add(result.error != 0 ? 1 : 0);
    b.counters.pages_mapped.add(result.pages.count);
    return result;
  }

  /// EINVAL where address and count are not those of a map.
  [[nodiscard]] int unmap(mapping pages) noexcept {
    body& b = *body_;
    b.counters.unmap_calls.add();
    if (!b.ranges.contains(pages)) {
      return EINVAL;
    }
    const int error = b.unmap(pages);
    if (error == 0) {
      b.ranges.erase(pages);
      b.counters.pages_unmapped.add(pages.count);
    }
    return error;
  }

  /// EINVAL where an operation is malformed (no length, or beyond the granted page); EFAULT where
  /// local memory is not there; EOPNOTSUPP without grant copy.
  [[nodiscard]] int copy(domain_id domain, direction way,
                         std::span<copy_operation> operations) noexcept {
    return body_->copier.copy(domain, way, operations, body_->counters);
  }

 private:
  struct close_handle {
    void operator()(xengnttab_handle* handle) const noexcept { (void)xengnttab_close(handle); }
  };
  using owned_handle = std::unique_ptr<xengnttab_handle, close_handle>;

  [[nodiscard]] static owned_handle open(detail::tool_logger& log) {
    errno = 0;
    owned_handle handle(xengnttab_open(log.get(), 0));
    if (!handle) {
      const int error = detail::failure();  // before anything else is asked
      detail::refuse_open(detail::grant_node, error, detail::is_xen_host());
    }
    return handle;
  }

  // In the order in which they are needed: the handle is closed before its logger goes.
  struct body {
    explicit body(std::size_t quota) : ranges(checked(quota)), copier(handle.get()) {}
    body(const body&) = delete;
    body& operator=(const body&) = delete;
    ~body() {
      // In a child only the descriptor is ours: the maps are not there.
      if (ranges.maps() != 0 && process == ::getpid()) {
        // Closing the handle would leave them mapped until the process ends.
        log::write(log::level::warning,
                   "a grant handle was closed with " + std::to_string(ranges.maps()) + " maps (" +
                       std::to_string(ranges.pages()) + " pages) left; they are unmapped");
        ranges.drain([&](mapping left) { (void)unmap(left); });
      }
    }

    static std::size_t checked(std::size_t quota) {
      if (quota > std::numeric_limits<std::uint32_t>::max()) {
        throw std::system_error(EINVAL, std::generic_category(),
                                "xen: a quota of " + std::to_string(quota) +
                                    " pages is more than a grant handle can map");
      }
      return quota;
    }

    int unmap(mapping pages) noexcept {
      int error = 0;
      do {
        counters.system_calls.add(3);
        counters.hypercalls.add();
        errno = 0;
        error =
            xengnttab_unmap(handle.get(), pages.address, pages.count) != 0 ? detail::failure() : 0;
        // Only the first of the library's steps can be interrupted: nothing is unmapped then.
      } while (error == EINTR);
      return error;
    }

    detail::tool_logger logger;
    owned_handle handle = open(logger);
    pid_t process = ::getpid();
    detail::mapped_ranges ranges;
    detail::copier copier;
    grant_counters counters;
  };

  map_result try_map(domain_id domain, std::span<const grant_reference> references,
                     access how) noexcept {
    body& b = *body_;
    if (references.empty()) {
      return {{}, EINVAL};
    }
    if (references.size() > b.ranges.quota() - b.ranges.pages()) {
      return {{}, ENOSPC};
    }
    const auto count = static_cast<std::uint32_t>(references.size());
    const int protection = how == access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
    // The library reads the references and does not write them, whatever its prototype says.
    auto* first = const_cast<grant_reference*>(references.data());
    int error = 0;
    do {
      b.counters.system_calls.add(2);
      b.counters.hypercalls.add();
      errno = 0;
      void* at = xengnttab_map_domain_grant_refs(b.handle.get(), count, domain, first, protection);
      if (at != nullptr) {
        const mapping pages{static_cast<std::byte*>(at), count};
        b.ranges.insert(pages);
        return {pages, 0};
      }
      error = detail::failure();
    } while (error == EINTR);
    return {{}, error};
  }

  std::unique_ptr<body> body_;
};

static_assert(grant_mapper<xen_grants>);

}  // namespace pvring::platform
