// SPDX-License-Identifier: MIT
// One queue of the strict frontend: puts block requests with their pages into the ring, takes
// responses, and refuses what Linux's blkfront refuses. Which ABI its ring has is decided when it
// connects.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../base/unique_fd.hpp"
#include "../platform/emulated/guest.hpp"
#include "block_request.hpp"
#include "in_flight_table.hpp"
#include "page_guard.hpp"
#include "queue_ring.hpp"
#include "strict_queue_setup.hpp"
#include "violation_log.hpp"

namespace pvring::testing {

/// One thread uses a queue, besides those functions that say "any thread"; the frontend's own
/// thread opens and closes it, and then the queue's thread finds that nothing can be submitted. The
/// object stays the same over reconnects.
class strict_queue {
 public:
  /// The guest and the log outlive it. \param idle_hook called when the last request of a queue
  /// that is being closed ends
  strict_queue(platform::emulated_guest& guest, domain_id backend, std::uint32_t number,
               violation_log& log, void (*idle_hook)(void*), void* owner)
      : backend_(backend),
        number_(number),
        log_(log),
        idle_hook_(idle_hook),
        owner_(owner),
        events_(guest.open_events()),
        ring_(guest, backend),
        table_(guest, backend),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wake_) {
      throw std::system_error(errno, std::generic_category(), "a frontend queue's eventfd");
    }
  }
  strict_queue(const strict_queue&) = delete;
  strict_queue& operator=(const strict_queue&) = delete;
  // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
  ~strict_queue() { release(); }

  // --- requests ----------------------------------------------------------------------------------

  /// Puts a request into the ring; the backend sees it after `publish`. For what carries data out
  /// (everything but a read), `fill(offset, bytes)` is called for each segment, in order, and
  /// writes the data into the page itself. Nothing is returned where there is no room now, or no
  /// device: then nothing has happened.
  /// \throws std::invalid_argument for more segments than were agreed, or an impossible one
  template <class Fill>
  std::optional<block_tag> submit(const block_request& request, Fill&& fill) {
    const std::lock_guard lock(mutex_);
    if (!usable() || ring_.space() == 0) {
      return std::nullopt;
    }
    in_flight_request* const r =
        table_.begin(request, needs_indirect(request, setup_.max_indirect_segments));
    if (r == nullptr) {
      return std::nullopt;
    }
    std::size_t offset = 0;
    for (const block_completion::part& part : r->parts) {
      const std::span<std::byte> bytes(part.page + part.where.offset(), part.where.bytes());
      if (r->operation != protocol::blkif::operation::read) {
        fill(offset, bytes);
      } else if (setup_.guard_pages) {
        set_guard(part.page);
      }
      offset += bytes.size();
    }
    ring_.put(in_flight_table::encode(*r));
    ++unpublished_;
    counters_.requests.add();
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    return r->tag;
  }

  /// The same with the data in a private buffer. \pre `data` is as long as all segments together
  std::optional<block_tag> submit(const block_request& request, std::span<const std::byte> data) {
    return submit(request, [data](std::size_t offset, std::span<std::byte> bytes) {
      std::memcpy(bytes.data(), data.data() + offset, bytes.size());
    });
  }

  /// The same without data: reads, flushes, discards.
  std::optional<block_tag> submit(const block_request& request) {
    return submit(request, [](std::size_t, std::span<std::byte>) {});
  }

  /// Shows the backend all requests put so far and notifies it once, if it wants that. Returns
  /// whether it did.
  bool publish() {
    const std::lock_guard lock(mutex_);
    if (!open_ || unpublished_ == 0) {
      return false;
    }
    unpublished_ = 0;
    counters_.publications.add();
    const bool wanted = ring_.publish();
    if (wanted) {
      counters_.kicks_sent.add();
      events_.notify(port_);
    }
    return wanted;
  }

  /// Takes up to `budget` responses and calls `f(const block_completion&)` for each, in ring order.
  /// `f` may submit and publish. Never blocks. Returns how many requests ended.
  template <class F>
  std::size_t poll(F&& f, std::size_t budget = std::numeric_limits<std::size_t>::max()) {
    const std::lock_guard lock(mutex_);
    std::size_t ended = 0;
    while (!lost_.empty() && ended < budget) {
      const block_completion end = lost_.back();
      lost_.pop_back();
      ++ended;
      f(end);
    }
    if (open_ && !log_.disabled() && ended < budget) {
      ring_.take(budget - ended,
                 [&](std::uint64_t id, std::uint8_t operation, std::int16_t status) {
                   if (!log_.disabled() && answered(id, operation, status, f)) {
                     ++ended;
                   }
                 });
      if (ring_.broken() != protocol_error::none && !log_.disabled()) {
        violation(std::string(to_string(ring_.broken())));
      }
    }
    return ended;
  }

  // --- waiting -----------------------------------------------------------------------------------

  /// Asks for an event with the next response, then looks again: true means that there is something
  /// to poll for now.
  [[nodiscard]] bool arm() {
    const std::lock_guard lock(mutex_);
    return !lost_.empty() || !open_ || ring_.arm();
  }

  /// Readable when an event has come. Stays the same.
  [[nodiscard]] int fd() const noexcept { return events_.fd(); }

  /// Takes the events that came and lets the next ones through, as the guest's interrupt handler
  /// does.
  void acknowledge() {
    const std::lock_guard lock(mutex_);
    while (const std::optional<platform::port> fired = events_.pending()) {
      if (!open_ || *fired != port_) {
        continue;
      }
      events_.unmask(port_);
      counters_.interrupts.add();
      if (!ring_.has_responses()) {
        counters_.spurious_interrupts.add();
      }
    }
  }

  /// Arms and sleeps until an event comes, the device is closed, or the time is over. Returns
  /// whether there may be something to poll for.
  bool wait(std::chrono::milliseconds timeout) {
    if (arm()) {
      return true;
    }
    std::array<pollfd, 2> fds{{{.fd = events_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = wake_.get(), .events = POLLIN, .revents = 0}}};
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(timeout.count()));
    if (fds[1].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    }
    acknowledge();
    return ready > 0;
  }

  // --- any thread --------------------------------------------------------------------------------

  /// Requests that were submitted and have not ended.
  [[nodiscard]] std::size_t in_flight() const noexcept {
    return in_flight_.load(std::memory_order_acquire);
  }
  [[nodiscard]] const strict_queue_counters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  // --- the queue's thread, while connected -------------------------------------------------------

  /// Requests that fit into the ring now; 0 while there is no device.
  [[nodiscard]] std::size_t space() {
    const std::lock_guard lock(mutex_);
    return usable() ? std::min(ring_.space(), table_.room()) : 0;
  }
  [[nodiscard]] std::size_t ring_size() {
    const std::lock_guard lock(mutex_);
    return table_.slots();
  }
  /// Segments that a request may have.
  [[nodiscard]] std::uint32_t max_segments() {
    const std::lock_guard lock(mutex_);
    return std::max<std::uint32_t>(setup_.max_indirect_segments,
                                   protocol::blkif::max_direct_segments);
  }

  // --- the frontend's thread ---------------------------------------------------------------------

  /// Makes ring and channel. When it throws it has undone what it did. \throws std::system_error
  void prepare(const strict_queue_setup& setup) {
    const std::lock_guard lock(mutex_);
    setup_ = setup;
    ring_.make(setup.ring_pages, setup.abi, setup.ring_start);
    try {
      port_ = events_.alloc_unbound(backend_);
    } catch (...) {
      (void)ring_.free();
      throw;
    }
    events_.unmask(port_);
    table_.open(ring_.size());
  }

  /// The backend is connected: requests may flow.
  void open(bool persistent, std::uint16_t max_indirect_segments) {
    const std::lock_guard lock(mutex_);
    setup_.max_indirect_segments = max_indirect_segments;
    table_.set_persistent(persistent);
    open_ = true;
    closing_.store(false, std::memory_order_release);
  }

  /// No more requests; those in flight are still answered. Returns at once.
  void begin_close() noexcept {
    {
      // Whoever submits has looked at it in time, or sees it: afterwards there are only fewer in
      // flight.
      const std::lock_guard lock(mutex_);
      closing_.store(true, std::memory_order_release);
    }
    wake();
  }
  [[nodiscard]] bool closing() const noexcept { return closing_.load(std::memory_order_acquire); }

  /// The backend has let go of everything, or is gone: frees all; what was not answered has ended.
  /// What is still mapped is a violation, and stays allocated.
  // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
  void release() noexcept {
    const std::lock_guard lock(mutex_);
    open_ = false;
    table_.for_each([this](in_flight_request& r) { lose(r); });
    // The first that was submitted is taken out first.
    std::sort(lost_.begin(), lost_.end(),
              [](const block_completion& a, const block_completion& b) { return a.tag > b.tag; });
    const std::size_t mapped = table_.close() + ring_.free();
    if (port_ != 0) {
      events_.unbind(std::exchange(port_, 0));
    }
    if (mapped != 0) {
      violation(std::to_string(mapped) + " pages are still mapped after the backend has closed");
    }
    unpublished_ = 0;
    wake();
  }

  [[nodiscard]] std::span<const platform::grant_reference> ring_references() const noexcept {
    return ring_.references();
  }
  [[nodiscard]] platform::port port() const noexcept { return port_; }

 private:
  // Whether requests may be put.
  [[nodiscard]] bool usable() const noexcept { return open_ && !closing() && !log_.disabled(); }

  void wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }

  void violation(const std::string& what) {
    log_.record("queue " + std::to_string(number_) + ": " + what);
  }

  // A response. False when it was refused.
  template <class F>
  bool answered(std::uint64_t id, std::uint8_t operation, std::int16_t status, F& f) {
    counters_.responses.add();
    std::string why_not;
    in_flight_request* const r = table_.find(id, why_not);
    if (r == nullptr) {
      violation("response with " + why_not);
      return false;
    }
    if (operation != r->operation) {
      violation("response with operation " + std::to_string(operation) +
                " to a request with operation " + std::to_string(r->operation) + " (id " +
                std::to_string(id) + ")");
      return false;
    }
    const bool read = operation == protocol::blkif::operation::read;
    if (setup_.guard_pages && read && !is_guarded(*r)) {
      violation("a page was written outside the segment of request " + std::to_string(id));
      return false;
    }
    // Before anybody looks at the data: after this nobody can change it any more, unless the pages
    // stay granted.
    const bool ended = table_.end_grants(*r);
    if (!ended) {
      violation("response while the grant is mapped (id " + std::to_string(id) + ", operation " +
                std::to_string(operation) + ")");
    }
    block_completion end = r->completion();
    end.status = status;
    // f may submit, into the same slot too: what it looks at is kept apart until it is done.
    ended_parts_.swap(r->parts);
    ended_pages_.swap(r->pages);
    table_.give_back(r->segment_pages);
    if (read && status == 0) {
      end.parts = ended_parts_;
    }
    table_.retire(*r);
    // release: whoever sees that nothing is in flight sees what the responses said.
    if (in_flight_.fetch_sub(1, std::memory_order_acq_rel) == 1 && closing()) {
      idle_hook_(owner_);
    }
    if (ended) {
      f(std::as_const(end));
    }
    table_.give_back(ended_pages_);
    return ended;
  }

  void lose(in_flight_request& r) {
    (void)table_.end_grants(r);  // what is still mapped is counted when the table closes
    block_completion end = r.completion();
    end.answered = false;
    lost_.push_back(end);
    table_.give_back(r.segment_pages);
    table_.give_back(r.pages);
    r.busy = false;
    counters_.lost.add();
    in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  }

  domain_id backend_;
  std::uint32_t number_;
  violation_log& log_;
  void (*idle_hook_)(void*);
  void* owner_;
  platform::emulated_events events_;
  queue_ring ring_;
  in_flight_table table_;
  unique_fd wake_;

  std::recursive_mutex mutex_;  // recursive: a completion's callback may submit
  strict_queue_setup setup_;
  bool open_ = false;
  platform::port port_ = 0;
  std::vector<block_completion> lost_;
  std::vector<block_completion::part> ended_parts_;
  std::vector<granted_page> ended_pages_;
  std::size_t unpublished_ = 0;
  std::atomic<std::size_t> in_flight_{0};
  std::atomic<bool> closing_{false};
  strict_queue_counters counters_;
};

}  // namespace pvring::testing
