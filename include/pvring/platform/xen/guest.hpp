// SPDX-License-Identifier: MIT
// The other side, in user space: a domain that grants pages and offers ports, for a frontend that
// is no kernel driver. With it a domain can also be its own peer.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../grant_mapper.hpp"
#include "diagnosis.hpp"
#include "events.hpp"
#include "tool_logger.hpp"

namespace pvring::platform {

/// Pages that were granted, side by side.
struct shared_range {
  std::byte* memory = nullptr;
  std::vector<grant_reference> references;
};

/// One thread uses it. Must not be used in a child after fork.
class xen_guest {
 public:
  /// `backend` is the domain that may map the pages and bind to the ports. Throws std::system_error
  /// naming node and remedy.
  explicit xen_guest(domain_id backend) : body_(std::make_unique<body>(backend)) {}
  xen_guest(xen_guest&&) noexcept = default;
  xen_guest& operator=(xen_guest&&) noexcept = default;
  /// Takes back all pages and closes all ports.
  ~xen_guest() = default;

  [[nodiscard]] domain_id backend() const noexcept { return body_->backend; }

  /// New zeroed pages, granted. Throws std::system_error: ENOSPC where the kernel grants no more.
  [[nodiscard]] shared_range share(std::size_t count, access how) {
    body& b = *body_;
    constexpr std::size_t most = std::numeric_limits<int>::max();
    shared_range range{nullptr, std::vector<grant_reference>(std::min(count, most))};
    b.shared.reserve(b.shared.size() + 1);  // what is granted must not get lost
    errno = count == 0 || count > most ? EINVAL : 0;
    void* memory = errno != 0 ? nullptr
                              : xengntshr_share_pages(
                                    b.handle.get(), b.backend, static_cast<int>(count),
                                    range.references.data(), how == access::read_write ? 1 : 0);
    if (memory == nullptr) {
      const int error = detail::failure();
      throw std::system_error(
          error, std::generic_category(),
          "xen: cannot grant " + std::to_string(count) + " pages to domain " +
              std::to_string(b.backend) +
              (error == ENOSPC ? ": raise the limit in /sys/module/xen_gntalloc/parameters/limit"
                               : ""));
    }
    range.memory = static_cast<std::byte*>(memory);
    b.shared.emplace_back(range.memory, static_cast<std::uint32_t>(count));
    return range;
  }

  /// Ends the grants, and the memory is gone. 0, or an errno: EINVAL where it is not what `share`
  /// returned. The kernel keeps the pages of a grant that is still mapped, and does not say so.
  int unshare(const shared_range& range) noexcept {
    body& b = *body_;
    const std::pair<std::byte*, std::uint32_t> gone(
        range.memory, static_cast<std::uint32_t>(range.references.size()));
    const auto at = std::find(b.shared.begin(), b.shared.end(), gone);
    if (at == b.shared.end()) {
      return EINVAL;
    }
    errno = 0;
    if (xengntshr_unshare(b.handle.get(), gone.first, gone.second) != 0) {
      return detail::failure();
    }
    b.shared.erase(at);
    return 0;
  }

  /// A new port that the backend may bind to, masked from the start.
  [[nodiscard]] port offer_port() { return body_->events.alloc_unbound(body_->backend); }
  void notify(port p) noexcept { body_->events.notify(p); }
  /// The handle with the ports that were offered.
  [[nodiscard]] xen_events& events() noexcept { return body_->events; }

 private:
  struct close_handle {
    void operator()(xengntshr_handle* handle) const noexcept { (void)xengntshr_close(handle); }
  };

  // In the order in which they are needed: the handle is closed before its logger goes.
  struct body {
    explicit body(domain_id domain) : backend(domain) {
      errno = 0;
      handle.reset(xengntshr_open(logger.get(), 0));
      if (!handle) {
        const int error = detail::failure();  // before anything else is asked
        detail::refuse_open(detail::share_node, error, detail::is_xen_host());
      }
    }
    body(const body&) = delete;
    body& operator=(const body&) = delete;
    ~body() {
      for (const auto& [memory, count] : shared) {
        (void)xengntshr_unshare(handle.get(), memory, count);
      }
    }

    domain_id backend;
    detail::tool_logger logger;
    std::unique_ptr<xengntshr_handle, close_handle> handle;
    std::vector<std::pair<std::byte*, std::uint32_t>> shared;
    xen_events events;
  };

  std::unique_ptr<body> body_;
};

}  // namespace pvring::platform
