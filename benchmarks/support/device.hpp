// SPDX-License-Identifier: MIT
// One connected block queue with all its handles, for a guest of the benchmarks: what blk::backend
// makes of a negotiation, without the negotiation and with everything open to be looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>

#include "guest.hpp"
#include "pvring/aio/engine.hpp"
#include "pvring/base/mapped_file.hpp"
#include "pvring/blk/queue.hpp"
#include "pvring/observe/none.hpp"
#include "pvring/platform/emulated.hpp"
#include "pvring/ring/journal.hpp"

namespace bench {

struct device_options {
  std::uint32_t max_indirect_segments = 256;
  pvring::aio::reap_mode reap = pvring::aio::reap_mode::user_space;
  bool reap_after_submit = true;
  std::size_t buffer_bytes = 0;
  std::size_t mapped_pages = 0;
  const pvring::blk::shared_state* shared =
      nullptr;  ///< of a device with several queues; null: this one's own
};

/// What a device with this image exports.
template <class Image>
void export_to(pvring::blk::shared_state& out, const Image& image, const device_options& how) {
  out.sectors = image.size() / blkif::sector_bytes;
  out.max_indirect_segments = how.max_indirect_segments;
  out.discard_granularity = image.discard_granularity();
  out.read_only = image.read_only();
  out.flush = image.can_flush();
}

template <class Strategy, class Engine, class Journal = pvring::ring::no_journal>
class device {
 public:
  using grant_handle = pvring::platform::emulated_grants;
  using event_handle = pvring::platform::emulated_events;
  using image_type = typename Engine::image;
  using queue_type =
      pvring::blk::queue<blkif::abi::x86_64, grant_handle, event_handle, Strategy,
                         typename Engine::context, pvring::observe::none::recorder, Journal>;

  device(const pvring::platform::emulated_host& host, guest& of, image_type& image,
         const device_options& how = {})
      : platform_(host, backend_domain),
        slots_(static_cast<std::uint32_t>(of.ring().size())),
        grants_(platform_.open_grants(quota(of, how))),
        ring_(grants_, of),
        events_(platform_.open_events()),
        port_(events_.bind(of.id(), of.port())),
        engine_(image, {.capacity = slots_, .reap = how.reap}),
        journal_(make_journal(slots_)),
        queue_({.domain = of.id(),
                .ring = ring_.bytes(),
                .port = port_,
                .journal = journal_ ? journal_->memory() : std::span<std::byte>(),
                .reap_after_submit = how.reap_after_submit},
               options(of, how, image), share(image, how), grants_, events_, engine_) {}
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  ~device() {
    queue_.clear();
    events_.unbind(port_);
  }

  std::size_t service(std::size_t budget = 256) noexcept { return queue_.service(budget); }

  [[nodiscard]] queue_type& queue() noexcept { return queue_; }
  [[nodiscard]] grant_handle& grants() noexcept { return grants_; }
  [[nodiscard]] event_handle& events() noexcept { return events_; }
  [[nodiscard]] typename Engine::context& engine() noexcept { return engine_; }

 private:
  class ring_mapping {
   public:
    ring_mapping(grant_handle& grants, guest& of)
        : grants_(grants),
          pages_(grants.map(of.id(), of.ring_references(), pvring::platform::access::read_write)
                     .pages) {
      if (!pages_) {
        throw std::runtime_error("the ring cannot be mapped");
      }
    }
    ring_mapping(const ring_mapping&) = delete;
    ring_mapping& operator=(const ring_mapping&) = delete;
    ~ring_mapping() { (void)grants_.unmap(pages_); }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
      return {pages_.address, pages_.count * page_bytes};
    }

   private:
    grant_handle& grants_;
    pvring::platform::mapping pages_;
  };

  // Shared memory, as where a successor looks for it.
  static std::optional<pvring::mapped_file> make_journal(std::size_t slots) {
    if constexpr (queue_type::journal_type::keeps) {
      return pvring::mapped_file::anonymous(queue_type::journal_type::bytes(slots));
    } else {
      return std::nullopt;
    }
  }
  static std::size_t mapped_pages(const guest& of, const device_options& how) {
    const std::size_t per_request = (of.shape().largest_bytes + page_bytes - 1) / page_bytes;
    return how.mapped_pages != 0
               ? how.mapped_pages
               : std::max<std::size_t>(of.shape().requests * per_request, largest(how));
  }
  static std::size_t quota(guest& of, const device_options& how) {
    return mapped_pages(of, how) + of.shape().ring_pages + 1;
  }
  static std::uint32_t largest(const device_options& how) {
    return std::max<std::uint32_t>(how.max_indirect_segments, blkif::max_direct_segments);
  }
  pvring::grant::strategy_options options(guest& of, const device_options& how,
                                          const image_type& image) const {
    return {.domain = of.id(),
            .max_pieces = largest(how),
            .max_leases = slots_,
            .budget_bytes = how.buffer_bytes,
            .quota_pages = mapped_pages(of, how),
            .idle_milliseconds = 60'000,
            .scatter = image.alignment() <= blkif::sector_bytes};
  }
  const pvring::blk::shared_state& share(const image_type& image, const device_options& how) {
    if (how.shared != nullptr) {
      return *how.shared;
    }
    export_to(shared_, image, how);
    return shared_;
  }

  // In this order: each uses those above it.
  pvring::platform::emulated platform_;
  pvring::blk::shared_state shared_;
  std::uint32_t slots_;
  grant_handle grants_;
  ring_mapping ring_;
  event_handle events_;
  pvring::platform::port port_;
  typename Engine::context engine_;
  std::optional<pvring::mapped_file> journal_;
  queue_type queue_;
};

}  // namespace bench
