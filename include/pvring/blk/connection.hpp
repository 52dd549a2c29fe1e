// SPDX-License-Identifier: MIT
// A connected queue with everything it owns, behind an interface that does not depend on what was
// negotiated. The interface is called per pass and per connection, never per request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../aio/engine.hpp"
#include "../base/mapped_file.hpp"
#include "../grant/strategy.hpp"
#include "../observe/observer.hpp"
#include "../platform/platform.hpp"
#include "../wait/drain.hpp"
#include "../wait/loop.hpp"
#include "../wait/runner.hpp"
#include "../xenbus/ring_link.hpp"
#include "../xenbus/ring_nodes.hpp"
#include "device.hpp"
#include "queue.hpp"

namespace pvring::blk {

/// What a queue has done so far, read by any thread.
struct queue_statistics {
  std::string_view strategy;
  std::size_t ring_slots = 0;
  std::uint64_t requests = 0;
  std::uint64_t redone = 0;  ///< of a predecessor's
  std::uint64_t refused = 0;
  std::uint64_t failed = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t discards = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t passes = 0;
  std::uint64_t publications = 0;
  std::uint64_t notifications = 0;
  std::uint64_t grant_calls = 0;  ///< of strategy and indirect requests
  std::uint64_t grant_operations = 0;
  std::uint64_t grant_hits = 0;
  std::uint64_t grant_misses = 0;
  std::uint64_t grant_evictions = 0;
  std::uint64_t grant_waits = 0;
  std::uint64_t events = 0;           ///< kicks that were delivered
  std::uint64_t spurious_events = 0;  ///< without work
  std::uint64_t unmasks = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t submit_calls = 0;
  std::uint64_t reap_calls = 0;
  std::uint64_t other_engine_calls = 0;
  std::uint64_t grant_system_calls =
      0;  ///< where the platform's handles count; ring mapping included
  std::uint64_t event_system_calls = 0;
  std::uint64_t hypercalls = 0;  ///< of both handles: on Xen, or what they would be there
};

/// A queue that is connected. \tparam Recorder the composition's
template <class Recorder>
class connected_queue {
 public:
  connected_queue() = default;
  connected_queue(const connected_queue&) = delete;
  connected_queue& operator=(const connected_queue&) = delete;
  virtual ~connected_queue() = default;

  /// Continues what a predecessor began; see queue::take_over.
  virtual void take_over() noexcept = 0;
  /// Starts the queue's own thread.
  virtual void start(const wait::runner_options& options) = 0;
  /// For a caller's event loop; see wait::waiter. \pre `start` was not called
  [[nodiscard]] virtual bool turn() noexcept = 0;
  [[nodiscard]] virtual std::span<const int> fds() const noexcept = 0;
  [[nodiscard]] virtual int timeout_ms() noexcept = 0;

  /// Takes no more requests. The thread of process(), which is the serving one where the caller
  /// serves.
  virtual void stop() noexcept = 0;
  [[nodiscard]] virtual bool idle() const noexcept = 0;
  /// Ends the queue's own thread, if it has one. \pre idle()
  virtual void join() noexcept = 0;
  [[nodiscard]] virtual std::vector<platform::grant_reference> ring_references() const = 0;
  /// The index behind the last answer. \pre join() was called
  [[nodiscard]] virtual std::uint32_t answered() const noexcept = 0;
  [[nodiscard]] virtual queue_statistics statistics() const = 0;
  [[nodiscard]] virtual const Recorder& recorder() const noexcept = 0;
};

/// What it takes to connect a queue.
template <class Platform, class Image>
struct connection_setup {
  Platform& host;
  Image& image;
  const options& wanted;
  const shared_state& device;
  const xenbus::queue_nodes& nodes;
  domain_id domain = 0;
  std::uint32_t ring_start = 0;  ///< where the ring was left; 0: it has to be a fresh one
  std::string journal{};         ///< path of the file; empty: none that others could find
  std::string agreement{};       ///< what a successor has to agree on
  bool take_over = false;        ///< continue with what the journal says
  bool scatter = true;
  void (*attention)(void* who, protocol_error why) noexcept = nullptr;
  void* who = nullptr;
};

template <protocol::blkif::abi Abi, class Config, class Strategy>
class connected_queue_of final : public connected_queue<typename Config::observe::recorder> {
 public:
  using platform_type = typename Config::platform;
  using image_type = typename Config::engine::image;
  using recorder_type = typename Config::observe::recorder;
  using queue_type =
      queue<Abi, typename platform_type::grant_handle, typename platform_type::event_handle,
            Strategy, typename Config::engine::context, recorder_type, typename Config::journal>;

  /// \throws std::system_error naming domain and reference when the ring cannot be mapped or the channel not bound
  explicit connected_queue_of(const connection_setup<platform_type, image_type>& setup)
      : slots_(protocol::ring_slots(setup.nodes.ring_references.size() * protocol::ring_page_bytes,
                                    queue_type::wire_protocol::slot_bytes)),
        references_(setup.nodes.ring_references),
        grants_(setup.host.open_grants(quota(setup))),
        ring_(grants_, setup.domain, setup.nodes.ring_references, setup.nodes.directory),
        events_(setup.host.open_events()),
        port_(events_, setup.domain, setup.nodes.event_channel),
        engine_(setup.image,
                {.capacity = static_cast<std::uint32_t>(slots_), .reap = setup.wanted.reap}),
        journal_(open_journal(setup)),
        queue_({.domain = setup.domain,
                .ring = ring_.bytes(),
                .port = port_.number,
                .ring_start = setup.take_over ? 0 : attach_at(ring_.bytes(), setup),
                .journal = journal_ ? journal_->memory() : std::span<std::byte>(),
                .agreement = std::as_bytes(std::span(setup.agreement)),
                .take_over = setup.take_over,
                .reap_after_submit = setup.wanted.reap_after_submit,
                .attention = setup.attention,
                .who = setup.who},
               strategy_options(setup), setup.device, grants_, events_, engine_),
        waiter_(queue_, wait::policy(), {.budget = setup.wanted.pass_budget}) {
    // What the frontend put before the channel was bound came without an event, and it may wait for
    // one from us. A predecessor's frontend is notified when its answers are shown.
    if (!setup.take_over) {
      events_.notify(port_.number);
    }
  }

  ~connected_queue_of() override {
    runner_.reset();  // joins, so that nobody else serves the queue below
    wait::drain(queue_, waiter_);
    queue_.clear();
  }

  void take_over() noexcept override { queue_.take_over(); }
  void start(const wait::runner_options& options) override { runner_.emplace(queue_, options); }
  [[nodiscard]] bool turn() noexcept override { return waiter_.turn(); }
  [[nodiscard]] std::span<const int> fds() const noexcept override { return waiter_.fds(); }
  [[nodiscard]] int timeout_ms() noexcept override { return waiter_.timeout_ms(); }

  void stop() noexcept override {
    queue_.stop();
    if (runner_) {
      runner_->kick();
      return;
    }
    // The caller serves, and this is its thread: one pass notices, and what is in flight wakes the
    // caller's loop later.
    while (!waiter_.turn()) {
    }
  }
  [[nodiscard]] bool idle() const noexcept override { return queue_.idle(); }
  void join() noexcept override { runner_.reset(); }
  [[nodiscard]] std::vector<platform::grant_reference> ring_references() const override {
    return references_;
  }
  [[nodiscard]] std::uint32_t answered() const noexcept override { return queue_.ring_position(); }
  [[nodiscard]] const recorder_type& recorder() const noexcept override {
    return queue_.recorder();
  }

  [[nodiscard]] queue_statistics statistics() const override {
    const queue_counters& own = queue_.counters();
    const grant::counters& grants = queue_.grant_counters();
    const wait::ring_source_counters& events = queue_.event_counters();
    queue_statistics out{
        .strategy = Strategy::name,
        .ring_slots = queue_.ring_size(),
        .requests = own.requests.get(),
        .redone = own.redone.get(),
        .refused = own.refused.get(),
        .failed = own.failed.get(),
        .reads = own.reads.get(),
        .writes = own.writes.get(),
        .flushes = own.flushes.get(),
        .discards = own.discards.get(),
        .bytes_read = own.bytes_read.get(),
        .bytes_written = own.bytes_written.get(),
        .passes = own.passes.get(),
        .publications = own.publications.get(),
        .notifications = own.notifications.get(),
        .grant_calls = grants.calls.get() + queue_.expansion_calls().get(),
        .grant_operations = grants.operations.get(),
        .grant_hits = grants.hits.get(),
        .grant_misses = grants.misses.get(),
        .grant_evictions = grants.evictions.get(),
        .grant_waits = grants.waits.get(),
        .events = events.events.get(),
        .spurious_events = events.spurious.get(),
        .unmasks = events.unmasks.get(),
        .sleeps = runner_ ? runner_->counters().sleeps.get() : waiter_.counters().sleeps.get()};
    if constexpr (requires { engine_.counters(); }) {
      out.submit_calls = engine_.counters().submit_calls.get();
      out.reap_calls = engine_.counters().reap_calls.get();
      out.other_engine_calls = engine_.counters().other_calls.get();
    }
    if constexpr (requires { grants_.counters().system_calls; }) {
      out.grant_system_calls = grants_.counters().system_calls.get();
      out.hypercalls += grants_.counters().hypercalls.get();
    }
    if constexpr (requires { events_.counters().system_calls; }) {
      out.event_system_calls = events_.counters().system_calls.get();
      out.hypercalls += events_.counters().hypercalls.get();
    }
    return out;
  }

 private:
  using grant_handle = typename platform_type::grant_handle;
  using event_handle = typename platform_type::event_handle;
  using setup_type = connection_setup<platform_type, image_type>;

  // A fresh ring starts at 0, also one that has the grant references of an earlier one: a guest
  // gives those out again. One that the frontend kept over a reconnect starts where it was left:
  // what stands in answered slots must not run again. Any other one was somebody else's, who may
  // have died over it: requests whose slots hold answers, and answers whose requests are lost.
  static std::uint32_t attach_at(std::span<std::byte> ring, const setup_type& setup) {
    const auto at = queue_type::ring_type::read_published(ring);
    if (!at || (at->rsp_prod != 0 && at->rsp_prod != setup.ring_start)) {
      throw configuration_error(
          "the ring of domain " + std::to_string(setup.domain) + " (" + setup.nodes.directory +
          "): " + std::string(to_string(protocol_error::attach_indices_inconsistent)) +
          "; initialise it, or keep it as the last connection left it");
    }
    return at->rsp_prod;
  }

  std::optional<mapped_file> open_journal(const setup_type& setup) const {
    using journal_type = typename queue_type::journal_type;
    if constexpr (!journal_type::keeps) {
      return std::nullopt;
    } else {
      const std::size_t bytes = journal_type::bytes(slots_);
      if (setup.agreement.size() > journal_type::agreement_bytes) {
        throw configuration_error("the journal has no room for an agreement of " +
                                  std::to_string(setup.agreement.size()) +
                                  " bytes: use a shorter path for the image");
      }
      if (setup.journal.empty()) {
        return mapped_file::anonymous(bytes);
      }
      if (!setup.take_over) {
        return mapped_file::create(setup.journal, bytes);
      }
      auto found = mapped_file::open(setup.journal, bytes);
      if (!found) {
        throw configuration_error("the journal " + setup.journal +
                                  " is not there, or is not this user's, or not one of this ring");
      }
      return found;
    }
  }

  static std::uint32_t largest_request(const setup_type& setup) {
    return std::max<std::uint32_t>(setup.device.max_indirect_segments,
                                   protocol::blkif::max_direct_segments);
  }
  std::size_t mapped_pages(const setup_type& setup) const {
    return setup.wanted.mapped_pages != 0
               ? setup.wanted.mapped_pages
               : std::max<std::size_t>(slots_ * protocol::blkif::max_direct_segments,
                                       largest_request(setup));
  }
  // Besides the strategy's pages, the ring, and a page of segments where those cannot be copied.
  std::size_t quota(const setup_type& setup) const {
    return mapped_pages(setup) + setup.nodes.ring_references.size() + 1;
  }
  grant::strategy_options strategy_options(const setup_type& setup) const {
    return {.domain = setup.domain,
            .max_pieces = largest_request(setup),
            .max_leases = static_cast<std::uint32_t>(slots_),
            .budget_bytes = setup.wanted.buffer_bytes,
            .quota_pages = mapped_pages(setup),
            .idle_milliseconds = setup.wanted.idle_milliseconds,
            .scatter = setup.scatter};
  }

  // In this order: each uses those above it.
  std::size_t slots_;
  std::vector<platform::grant_reference> references_;
  grant_handle grants_;
  xenbus::ring_mapping<grant_handle> ring_;
  event_handle events_;
  xenbus::bound_port<event_handle> port_;
  mutable typename Config::engine::context
      engine_;  // mutable: reading an engine's counters need not be const
  std::optional<mapped_file> journal_;
  queue_type queue_;
  wait::waiter<queue_type> waiter_;
  std::optional<wait::runner<queue_type>> runner_;
};

}  // namespace pvring::blk
