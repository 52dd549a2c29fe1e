// SPDX-License-Identifier: MIT
// A block frontend on the emulated platform that behaves as Linux's blkfront does and forgives as
// little. Tests, demos and benchmarks of block backends are built on it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "../platform/emulated/host.hpp"
#include "../protocol/blkif.hpp"
#include "../xenbus/device_path.hpp"
#include "../xenbus/frontend_port.hpp"
#include "../xenbus/node.hpp"
#include "../xenbus/ring_nodes.hpp"
#include "frontend_loop.hpp"
#include "strict_queue.hpp"
#include "violation_log.hpp"

namespace pvring::testing {

/// What the frontend wants; it gets what the backend offers of it. The defaults are Linux's.
struct strict_options {
  protocol::blkif::abi abi = protocol::blkif::abi::native;
  std::uint32_t queues = 1;
  std::uint32_t ring_page_order = 0;
  bool persistent = true;
  std::uint32_t max_indirect_segments = 32;  ///< 0: does not use them
  std::uint32_t ring_start =
      0;  ///< where the ring's indices begin; no backend but a test's can follow
  /// Fills the pages of reads before and looks at what is around the segments after: a backend that
  /// stores beyond a segment is a violation.
  bool guard_pages = false;
};

/// What the backend says about its device.
struct strict_device {
  std::uint64_t sectors = 0;  ///< of 512 bytes
  std::uint32_t sector_size = 0;
  std::uint32_t physical_sector_size = 0;
  std::uint32_t info = 0;  ///< bits, see protocol::blkif::info
  bool flush = false;
  bool barrier = false;
  bool discard = false;
  std::uint32_t discard_granularity = 0;
  std::uint32_t discard_alignment = 0;
  bool discard_secure = false;
  bool persistent = false;  ///< and this frontend uses it
  std::uint32_t max_indirect_segments =
      0;  ///< agreed: the lesser of both, 0 where that is no more than 11
};

/// One thread, the frontend's own, uses this object: it makes and ends connections. Each queue has
/// its user's thread; see strict_queue.
///
/// Strict means that these are violations, recorded with a text, after which the device is
/// disabled: a response with an id that is unknown or not in flight; one with another operation
/// than its request's (for an indirect request the inner one); more responses than requests; a
/// response while one of its grants is still mapped, unless feature-persistent was agreed; pages
/// that are still mapped when the backend is Closed.
class strict_frontend : public frontend_loop<strict_frontend> {
 public:
  /// The toolstack has made the device. The guest exists; host and guest outlive this.
  /// \throws std::system_error, node_error
  strict_frontend(const platform::emulated_host& host, const xenbus::device_identity& device,
                  strict_options wanted = {})
      : guest_(host.domain(device.frontend_domain)),
        wanted_(wanted),
        store_(guest_.open_store()),
        device_(*this),
        port_(store_, device_, xenbus::resolve_from_frontend(store_, device)) {
    for (std::uint32_t i = 0; i < std::max(1U, wanted_.queues); ++i) {
      queues_.push_back(std::make_unique<strict_queue>(guest_, device.backend_domain, i, log_,
                                                       &became_idle, this));
    }
  }
  strict_frontend(const strict_frontend&) = delete;
  strict_frontend& operator=(const strict_frontend&) = delete;
  /// Ends without ceremony, as a guest that is destroyed does.
  ~strict_frontend() = default;

  // --- connecting and closing --------------------------------------------------------------------

  /// Readable when `process()` has something to do.
  [[nodiscard]] int fd() const noexcept { return port_.fd(); }
  /// Does what follows from the store's state; never waits.
  void process() { port_.process(); }

  /// Begins to close; the queues' threads poll until nothing is in flight.
  void begin_close() { port_.close(); }

  /// Connects anew once closed. \pre the toolstack keeps the device online
  void reopen() { port_.reopen(); }

  [[nodiscard]] bool connected() const noexcept { return port_.connected(); }
  [[nodiscard]] bool released() const noexcept { return port_.released(); }
  [[nodiscard]] protocol::xenbus_state state() const noexcept { return port_.state(); }
  [[nodiscard]] protocol::xenbus_state backend_state() const noexcept {
    return port_.backend_state();
  }
  /// Why this end closed the device; empty when it did not.
  [[nodiscard]] const std::string& error() const noexcept { return port_.error(); }
  [[nodiscard]] const xenbus::device_path& path() const noexcept { return port_.path(); }

  // --- the device --------------------------------------------------------------------------------

  /// What the backend said when it connected, and last rewrote.
  [[nodiscard]] const strict_device& device() const noexcept { return exported_; }
  /// Queues and pages of each ring that were agreed.
  [[nodiscard]] std::uint32_t queue_count() const noexcept { return active_; }
  [[nodiscard]] std::uint32_t ring_pages() const noexcept { return setup_.ring_pages; }
  /// \pre `i < queue_count()`. The object is valid as long as the frontend.
  [[nodiscard]] strict_queue& queue(std::uint32_t i) noexcept { return *queues_[i]; }

  // --- any thread --------------------------------------------------------------------------------

  [[nodiscard]] std::vector<std::string> violations() const { return log_.all(); }
  [[nodiscard]] bool disabled() const noexcept { return log_.disabled(); }
  /// All violations as one text, for messages.
  [[nodiscard]] std::string violations_text() const { return log_.text(); }

 private:
  using transaction = platform::emulated_store::transaction;

  // The hooks of the handshake; see xenbus::frontend_handler.
  class handler {
   public:
    explicit handler(strict_frontend& self) noexcept : self_(self) {}
    void prepare() { self_.prepare(); }
    void publish(transaction& t) { self_.publish(t); }
    void connect() { self_.open_queues(); }
    void reread() { self_.exported_.sectors = self_.read_sectors(); }
    void begin_close() noexcept {
      for (const auto& queue : self_.queues_) {
        queue->begin_close();
      }
    }
    [[nodiscard]] bool idle() const noexcept {
      // A disabled device gets no more answers.
      return self_.log_.disabled() ||
             std::all_of(self_.queues_.begin(), self_.queues_.end(),
                         [](const auto& queue) { return queue->in_flight() == 0; });
    }
    // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
    void release() noexcept {
      for (const auto& queue : self_.queues_) {
        queue->release();
      }
    }

   private:
    strict_frontend& self_;
  };

  static void became_idle(void* self) { static_cast<strict_frontend*>(self)->port_.wake(); }

  [[nodiscard]] std::string backend_node(std::string_view name) const {
    return xenbus::join(port_.path().backend(), name);
  }
  std::uint32_t offered(std::string_view name, std::uint32_t otherwise) {
    return xenbus::read_unsigned_or<std::uint32_t>(
        store_, backend_node(name), port_.path().identity().backend_domain, otherwise);
  }
  std::uint64_t read_sectors() {
    return xenbus::read_unsigned<std::uint64_t>(store_, backend_node("sectors"),
                                                port_.path().identity().backend_domain);
  }

  void prepare() {
    constexpr std::uint32_t most = 4;  // 16 pages
    const std::uint32_t order =
        std::min({wanted_.ring_page_order, offered("max-ring-page-order", 0), most});
    active_ =
        std::min(std::max(1U, wanted_.queues), std::max(1U, offered("multi-queue-max-queues", 1)));
    setup_ = {.abi = wanted_.abi,
              .ring_pages = 1U << order,
              .ring_start = wanted_.ring_start,
              .guard_pages = wanted_.guard_pages};
    log_.enable();
    try {
      for (std::uint32_t i = 0; i < active_; ++i) {
        queues_[i]->prepare(setup_);
      }
    } catch (...) {
      device_.release();
      throw;
    }
  }

  void publish(transaction& t) {
    const std::string& home = port_.path().frontend();
    // Nodes of an earlier connection would be read as if they were of this one.
    for (const std::string& name : t.list(home)) {
      if (name.starts_with("ring-ref") || name.starts_with("queue-") || name == "event-channel" ||
          name == "ring-page-order" || name == "multi-queue-num-queues") {
        t.remove(xenbus::join(home, name));
      }
    }
    const auto write = [&t](const std::string& directory, std::string_view name,
                            std::uint64_t value) {
      t.write(xenbus::join(directory, name), std::to_string(value));
    };
    if (setup_.ring_pages > 1) {
      write(home, "ring-page-order",
            static_cast<std::uint64_t>(std::countr_zero(setup_.ring_pages)));
    }
    if (active_ > 1) {
      write(home, "multi-queue-num-queues", active_);
    }
    for (std::uint32_t i = 0; i < active_; ++i) {
      const std::string directory = xenbus::queue_directory(home, active_, i);
      const auto references = queues_[i]->ring_references();
      if (references.size() == 1) {
        write(directory, "ring-ref", references.front());
      } else {
        for (std::size_t page = 0; page < references.size(); ++page) {
          write(directory, "ring-ref" + std::to_string(page), references[page]);
        }
      }
      write(directory, "event-channel", queues_[i]->port());
    }
    t.write(xenbus::join(home, "protocol"), to_string(wanted_.abi));
    write(home, "feature-persistent", wanted_.persistent ? 1 : 0);
  }

  void open_queues() {
    strict_device now;
    const domain_id backend = port_.path().identity().backend_domain;
    now.sectors = read_sectors();
    now.info = xenbus::read_unsigned<std::uint32_t>(store_, backend_node("info"), backend);
    now.sector_size =
        xenbus::read_unsigned<std::uint32_t>(store_, backend_node("sector-size"), backend);
    now.physical_sector_size = offered("physical-sector-size", now.sector_size);
    now.flush = offered("feature-flush-cache", 0) != 0;
    now.barrier = offered("feature-barrier", 0) != 0;
    now.discard = offered("feature-discard", 0) != 0;
    if (now.discard) {
      now.discard_granularity = offered("discard-granularity", now.physical_sector_size);
      now.discard_alignment = offered("discard-alignment", 0);
      now.discard_secure = offered("discard-secure", 0) != 0;
    }
    now.persistent = wanted_.persistent && offered("feature-persistent", 0) != 0;
    now.max_indirect_segments =
        std::min({offered("feature-max-indirect-segments", 0), wanted_.max_indirect_segments,
                  std::uint32_t{protocol::blkif::max_indirect_segments}});
    if (now.max_indirect_segments <= protocol::blkif::max_direct_segments) {
      now.max_indirect_segments = 0;
    }
    exported_ = now;
    for (std::uint32_t i = 0; i < active_; ++i) {
      queues_[i]->open(now.persistent, static_cast<std::uint16_t>(now.max_indirect_segments));
    }
  }

  platform::emulated_guest guest_;
  strict_options wanted_;
  violation_log log_;
  platform::emulated_store store_;
  strict_device exported_;
  strict_queue_setup setup_;
  std::uint32_t active_ = 0;
  handler device_;
  xenbus::frontend_port<platform::emulated_store, handler> port_;
  std::vector<std::unique_ptr<strict_queue>>
      queues_;  // last: they call the port until they are gone
};

}  // namespace pvring::testing
