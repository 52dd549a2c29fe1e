// SPDX-License-Identifier: MIT
// One queue of a block device: a ring, a grant strategy, an engine context, and the pass that moves
// requests through them. This file is the data path; everything it calls is inlined into one loop
// per stage.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/intrusive/slist.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../aio/engine.hpp"
#include "../base/counter.hpp"
#include "../grant/run_allocator.hpp"
#include "../grant/strategy.hpp"
#include "../observe/observer.hpp"
#include "../platform/platform.hpp"
#include "../protocol/blkif_abi.hpp"
#include "../ring/back_ring.hpp"
#include "../ring/journal.hpp"
#include "../wait/ring_source.hpp"
#include "device.hpp"
#include "indirect_pages.hpp"
#include "request.hpp"

namespace pvring::blk {

/// Counted by a queue; any thread may read.
struct queue_counters {
  counter requests;  ///< taken from the ring
  counter redone;    ///< taken by a predecessor that was killed, and done again
  counter refused;   ///< answered without I/O, as an error or as not supported
  counter failed;    ///< whose grants or I/O failed
  counter reads;
  counter writes;
  counter flushes;
  counter discards;
  counter bytes_read;
  counter bytes_written;
  counter passes;         ///< that did something
  counter publications;   ///< of responses, each of any number
  counter notifications;  ///< sent to the frontend
  counter unneeded;       ///< publications that the frontend did not want to be notified of
};

/// What a queue is made of and made for.
struct queue_setup {
  domain_id domain = 0;
  std::span<std::byte> ring;  ///< mapped ring pages; they outlive the queue
  platform::port port = 0;    ///< bound on the event handle
  std::uint32_t ring_start = 0;
  std::span<std::byte> journal;  ///< memory for one, where the policy keeps one; outlives the queue
  /// What queues at both ends of a takeover agree on; see ring::journal.
  std::span<const std::byte> agreement;
  bool take_over = false;  ///< continue with what the journal says
  std::size_t pass_budget = 256;
  bool reap_after_submit =
      true;  ///< else before taking: completions of this pass's submission wait for the next
  /// Called by the queue's thread, once each, when the frontend broke the protocol and when a
  /// stopped queue has become idle.
  void (*attention)(void* who, protocol_error why) noexcept = nullptr;
  void* who = nullptr;
};

/// One thread serves a queue: it calls service() and the sources. stop(), idle() and the counters
/// are for any thread.
///
/// A request is in one place at a time: in `waiting_` once taken and validated, in the engine, or
/// with the strategy between two calls of a pass. Waiting requests start in ring order; while any
/// waits for room, no more are taken. Nothing here allocates after construction, throws, or blocks.
template <protocol::blkif::abi Abi, platform::grant_mapper Mapper, platform::event_channel Events,
          class Strategy, aio::engine_context Engine, observe::recorder Recorder,
          ring::journal_policy<protocol::blkif::request> Journal = ring::no_journal>
  requires grant::strategy<Strategy, Mapper>
class queue {
 public:
  using wire_protocol = protocol::blkif::wire<Abi>;
  using ring_type = ring::back_ring<wire_protocol>;
  using strategy_type = typename Strategy::template bind<Mapper>;

  using journal_type = typename Journal::template bind<protocol::blkif::request>;

  /// `device`, `mapper`, `events` and `engine` outlive the queue.
  /// \throws configuration_error when the ring cannot be one, or its journal is no use
  queue(const queue_setup& setup, const grant::strategy_options& grants, const shared_state& device,
        Mapper& mapper, Events& events, Engine& engine)
      : setup_(setup),
        device_(device),
        journal_(setup.journal, protocol::ring_slots(setup.ring.size(), wire_protocol::slot_bytes)),
        ring_(attach(setup, journal_)),
        events_(events),
        engine_(engine),
        strategy_(mapper, grants),
        indirect_(mapper, setup.domain, device.max_indirect_segments),
        recorder_(static_cast<std::uint32_t>(ring_.size())),
        source_(events, setup.port, ring_),
        slots_(ring_.size()),
        tables_(ring_.size(), device.max_indirect_segments) {
    if constexpr (requires { engine.expect_buffers_in(strategy_.buffers()); }) {
      engine.expect_buffers_in(strategy_.buffers());
    }
    free_.reserve(slots_.size());
    batch_.reserve(slots_.size());
    for (std::size_t i = slots_.size(); i-- != 0;) {
      slots_[i].io.owner = &slots_[i];
      free_.push_back(&slots_[i]);
    }
    trim();  // tells the strategy the time: else what is used before the first trim would look as
             // old as the clock
    if constexpr (journal_type::keeps) {
      unpublished_.reserve(slots_.size());
      if (!setup.take_over && device.flush_failed.load(std::memory_order_relaxed)) {
        journal_.fail();  // of an earlier connection, and remembered for the device
      }
    }
    setup_.agreement = {};  // it need not outlive this
  }
  queue(const queue&) = delete;
  queue& operator=(const queue&) = delete;

  /// Continues what a predecessor began, and notifies unconditionally: kicks sent to nobody are
  /// lost. What it had taken waits again, in ring order and each in its old place of the journal;
  /// nothing more is taken before it has started. Reading or writing it twice changes nothing: the
  /// frontend has not seen an answer, so it has not let go of the pages, and whatever it has in
  /// flight beside it, it has in no order. \pre queue_setup::take_over; once, before the first
  /// pass, and not before all queues of the device are there: until then nothing has been done
  void take_over() noexcept {
    if constexpr (journal_type::keeps) {
      if (journal_.failed()) {
        device_.flush_failed.store(true, std::memory_order_relaxed);
      }
      ring_.show();
      journal_.resume();
      for (const std::uint32_t place : journal_.outstanding()) {
        slot& s = slots_[place];
        std::erase(free_, &s);
        fetched_ = journal_.request(place);
        s.duty =
            ring_.owe_again(wire_protocol::echo_of(fetched_, device_.max_indirect_segments != 0));
        judge(s);
        begin(s);
      }
      counters_.redone.add(journal_.outstanding().size());
      events_.notify(setup_.port);
    }
  }

  /// One pass; see wait::served. Takes at most `budget` requests.
  std::size_t service(std::size_t budget) noexcept {
    const std::size_t answered_before = answered_;
    std::size_t reaped = 0;
    if (!setup_.reap_after_submit) {
      reaped = reap();
      finish_releases();  // before anything is acquired: the copies of the two go different ways
    }
    const std::size_t taken = take(budget);
    expand();
    start();
    if (setup_.reap_after_submit) {
      reaped = reap();
    }
    finish_releases();
    publish();
    const std::size_t answered = answered_ - answered_before;
    const std::size_t work = taken + reaped + answered;
    if (work != 0) {
      counters_.passes.add();
      recorder_.pass(static_cast<std::uint32_t>(taken), static_cast<std::uint32_t>(answered));
      if (++passes_since_trim_ >= passes_per_trim) {
        trim();
      }
    } else {
      trim();
    }
    // Whoever arms the ring while requests wait would hear of work that cannot be taken.
    source_.want(can_take() ? 1 : 0);
    tell();
    return work;
  }

  [[nodiscard]] std::optional<wait::time_point> deadline() noexcept { return trim_at_; }

  template <class F>
  void for_each_source(F&& each) noexcept {
    each(source_);
    each(engine_);
  }

  /// Takes no more requests; what was taken is finished. idle() tells when.
  void stop() noexcept { stopping_.store(true, std::memory_order_release); }

  /// Whether the queue was stopped, or broke, and has nothing left in flight.
  [[nodiscard]] bool idle() const noexcept { return idle_.load(std::memory_order_acquire); }

  /// What the frontend did, once it broke the protocol.
  [[nodiscard]] protocol_error broken() const noexcept {
    return broken_.load(std::memory_order_acquire);
  }

  /// Unmaps everything that the strategy keeps. \pre idle(), and nobody serves the queue
  void clear() noexcept { strategy_.clear(); }

  [[nodiscard]] const queue_counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const grant::counters& grant_counters() const noexcept {
    return strategy_.counters();
  }
  [[nodiscard]] const counter& expansion_calls() const noexcept { return indirect_.calls(); }
  [[nodiscard]] const wait::ring_source_counters& event_counters() const noexcept {
    return source_.counters();
  }
  [[nodiscard]] const Recorder& recorder() const noexcept { return recorder_; }
  /// The index behind the last answer. The queue's thread, or any when that has ended.
  [[nodiscard]] std::uint32_t ring_position() const noexcept { return ring_.answered(); }
  [[nodiscard]] std::size_t ring_size() const noexcept { return ring_.size(); }
  [[nodiscard]] std::uint32_t leases() noexcept { return strategy_.leases(); }

 private:
  struct slot;
  struct owned_transfer : aio::transfer {
    slot* owner = nullptr;
  };
  // A request from being taken to being answered; one per ring slot, so there is always one to be
  // had.
  struct slot : grant::lease<wire_protocol> {
    ring::obligation<wire_protocol> duty;  // until a lease takes it over
    blk::plan plan;
    bool leased = false;
    bool expanded = true;
    bool submitted = false;
    std::uint8_t step = 0;
    int result = 0;
    std::uint64_t bytes = 0;
    std::uint32_t table = 0;
    owned_transfer io;
    boost::intrusive::slist_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>
        fifo_hook;
    grant::piece own_pieces[wire::max_direct_segments];
    iovec own_buffers[wire::max_direct_segments];
    std::uint32_t indirect_grefs[wire::max_indirect_pages];
  };
  using fifo = boost::intrusive::slist<
      slot, boost::intrusive::member_hook<slot, decltype(slot::fifo_hook), &slot::fifo_hook>,
      boost::intrusive::constant_time_size<false>, boost::intrusive::cache_last<true>>;

  static constexpr std::uint32_t passes_per_trim = 4096;

  [[nodiscard]] std::uint32_t number_of(const slot& s) const noexcept {
    return static_cast<std::uint32_t>(&s - slots_.data());
  }

  [[nodiscard]] bool can_take() const noexcept {
    return waiting_.empty() && !stopping_.load(std::memory_order_acquire);
  }

  // ---- take
  // -----------------------------------------------------------------------------------------------------------
  std::size_t take(std::size_t budget) noexcept {
    if (!can_take()) {
      return 0;
    }
    const std::size_t taken =
        ring_.take(std::min(budget, free_.size()),
                   [this](ring::taken<wire_protocol>& request) { admit(request); });
    if (taken != 0) {
      journal_.commit(ring_.request_consumer());
    }
    counters_.requests.add(taken);
    return taken;
  }

  void admit(ring::taken<wire_protocol>& request) noexcept {
    slot& s = *free_.back();
    free_.pop_back();
    request.fetch(fetched_);
    s.duty = request.owe(wire_protocol::echo_of(fetched_, device_.max_indirect_segments != 0));
    judge(s);
    // Not right behind the fetch: the copy's wide loads would wait for the narrow stores there.
    journal_.record(number_of(s), ring_.request_consumer() - 1, fetched_);
    begin(s);
  }

  // Decides what becomes of the request in `fetched_`.
  void judge(slot& s) noexcept {
    recorder_.stage(number_of(s), observe::stage::seen);
    s.plan = examine(fetched_, device_);
    s.leased = false;
    s.submitted = false;
    s.step = 0;
    s.result = 0;
    if (s.plan.what == plan::kind::transfer) {
      if (s.plan.indirect) {
        std::copy_n(fetched_.indirect_grefs, wire_protocol::pages_for(s.plan.segments),
                    s.indirect_grefs);
        s.expanded = false;
        unexpanded_ = true;
      } else {
        s.pieces = {s.own_pieces, s.plan.segments};
        s.storage = {s.own_buffers, s.plan.segments};
        if (!lay_out({fetched_.direct, s.plan.segments}, s.plan.sector, device_, s.pieces,
                     s.bytes)) {
          s.plan = refusal(wire::status::error);
        }
      }
    }
  }

  // What was judged waits for its turn, or is answered where nothing is to be done.
  void begin(slot& s) noexcept {
    if (s.plan.what == plan::kind::refuse || s.plan.what == plan::kind::done) {
      const bool done = s.plan.what == plan::kind::done;
      if (!done) {
        counters_.refused.add();
      }
      journal_.commit(ring_.request_consumer());  // an answer may lie where this request did
      respond(s, std::move(s.duty).settle(done ? wire::status::okay : s.plan.status));
      return;
    }
    waiting_.push_back(s);
  }

  // ---- take over
  // ------------------------------------------------------------------------------------------------------

  static ring_type attach(const queue_setup& setup, journal_type& journal) {
    if constexpr (journal_type::keeps) {
      if (setup.take_over) {
        if (const auto found = journal.open(setup.agreement);
            found != ring::journal_finding::usable) {
          throw configuration_error("the journal of a ring of domain " +
                                    std::to_string(setup.domain) +
                                    " is of no use: " + std::string(to_string(found)));
        }
        ring_type ring(setup.ring, journal.where().req_cons, journal.where().rsp_prod);
        // Looked at before anything is done again: a ring that cannot be the journal's is another.
        (void)ring.has_requests();
        if (ring.broken() != protocol_error::none) {
          throw configuration_error(
              "the ring of domain " + std::to_string(setup.domain) +
              " does not fit its journal: " + std::string(to_string(ring.broken())));
        }
        return ring;
      }
      journal.begin(setup.agreement, setup.ring_start);
    }
    return ring_type(setup.ring, setup.ring_start);
  }

  // ---- expand
  // ---------------------------------------------------------------------------------------------------------
  // Reads the segments of all indirect requests that wait, in as few copy calls as the scratch
  // pages allow: one, as a rule.
  void expand() noexcept {
    if (!unexpanded_) {
      return;
    }
    unexpanded_ = false;
    for (slot& s : waiting_) {
      if (s.expanded || s.plan.what == plan::kind::refuse) {
        continue;
      }
      const auto table = tables_.take(s.plan.segments);
      if (!table) {
        unexpanded_ = true;  // it waits, and so does everything behind it
        break;
      }
      s.table = *table;
      s.pieces = tables_.pieces(*table, s.plan.segments);
      s.storage = tables_.buffers(*table, s.plan.segments);
      const std::span<const std::uint32_t> grefs{s.indirect_grefs,
                                                 wire_protocol::pages_for(s.plan.segments)};
      if (!indirect_.add(&s, grefs, s.plan.segments)) {
        run_expansion();
        (void)indirect_.add(&s, grefs, s.plan.segments);
      }
      s.expanded = true;
    }
    run_expansion();
  }

  void run_expansion() noexcept {
    indirect_.run([this](void* owner, std::span<const wire::segment> segments) {
      slot& s = *static_cast<slot*>(owner);
      if (segments.size() != s.plan.segments ||
          !lay_out(segments, s.plan.sector, device_, s.pieces, s.bytes)) {
        // It keeps its place, so that a barrier behind it still waits for what came before; start()
        // answers it.
        s.plan.what = plan::kind::refuse;
        s.plan.status = wire::status::error;
      }
    });
  }

  // ---- acquire and submit
  // ---------------------------------------------------------------------------------------------
  void start() noexcept {
    const std::size_t room = engine_.capacity() - engine_.in_flight();
    std::size_t claimed = 0;
    while (!waiting_.empty() && claimed < room) {
      slot& s = waiting_.front();
      if (barrier_running_ || (s.plan.barrier && started_ != 0) || !s.expanded) {
        break;
      }
      if (too_late_for(s)) [[unlikely]] {
        // A flush failed while it waited.
        s.plan.what = plan::kind::refuse;
        s.plan.status = wire::status::error;
      }
      if (s.plan.what == plan::kind::refuse) {
        waiting_.pop_front();
        counters_.refused.add();
        give_back_table(s);
        respond(s, std::move(s.duty).settle(s.plan.status));
        continue;
      }
      if (s.plan.what == plan::kind::transfer && !acquire(s)) {
        break;
      }
      waiting_.pop_front();
      ++started_;
      ++claimed;
      // Nothing ran when a barrier started, so with nothing running now it has failed already, and
      // was answered.
      barrier_running_ = s.plan.barrier && started_ != 0;
      if (!s.leased) {
        enqueue(s);
      }
    }
    strategy_.finish_acquires(
        [this](grant::lease_state& lease) { acquired(static_cast<slot&>(lease)); });
    submit();
  }

  // Whether it was taken before a flush failed, and must not run after that.
  [[nodiscard]] bool too_late_for(const slot& s) const noexcept {
    return (s.plan.what == plan::kind::flush || s.plan.write) &&
           device_.flush_failed.load(std::memory_order_relaxed);
  }

  // False when there is no room. The lease swallows the duty to answer; the proof of release brings
  // it back.
  bool acquire(slot& s) noexcept {
    s.direction = s.plan.write ? platform::direction::from_peer : platform::direction::to_peer;
    s.buffers = 0;
    s.error = 0;
    const grant::acquired outcome = strategy_.acquire(s);
    if (outcome == grant::acquired::wait) {
      return false;
    }
    s.bind(std::move(s.duty));
    s.leased = true;
    if (outcome == grant::acquired::ready) {
      acquired(s);
    } else if (outcome == grant::acquired::failed) {
      complete(s, s.error);
    }
    return true;
  }

  void acquired(slot& s) noexcept {
    if (s.error != 0) {
      complete(s, s.error);
      return;
    }
    recorder_.stage(number_of(s), observe::stage::acquired);
    enqueue(s);
  }

  // Prepares the next step of a request, and puts it into the batch.
  void enqueue(slot& s) noexcept {
    prepare(s);
    s.submitted = true;
    batch_.push_back(&s.io);
  }

  void prepare(slot& s) noexcept {
    if (s.plan.what == plan::kind::transfer) {
      if (s.step == 0 && !s.plan.flush_before) {
        s.step = 1;
      }
      if (s.step == 1) {
        s.io.kind = s.plan.write ? aio::operation::write : aio::operation::read;
        s.io.offset = s.plan.sector * wire::sector_bytes;
        s.io.length = s.bytes;
        s.io.buffers = s.local();
        return;
      }
      s.io.kind = aio::operation::flush;
    } else {
      s.io.kind =
          s.plan.what == plan::kind::flush ? aio::operation::flush : aio::operation::discard;
    }
    s.io.offset = s.plan.what == plan::kind::discard ? s.plan.sector * wire::sector_bytes : 0;
    s.io.length = s.plan.what == plan::kind::discard ? s.plan.sectors * wire::sector_bytes : 0;
    s.io.buffers = {};
  }

  // Whether another step follows the one that has just been done.
  [[nodiscard]] static bool advance(slot& s) noexcept {
    if (s.plan.what != plan::kind::transfer) {
      return false;
    }
    ++s.step;
    return s.step == 1 || (s.step == 2 && s.plan.flush_after);
  }

  void submit() noexcept {
    if (batch_.empty()) {
      return;
    }
    if constexpr (Recorder::active) {
      for (aio::transfer* t : batch_) {
        recorder_.stage(number_of(*static_cast<owned_transfer*>(t)->owner),
                        observe::stage::submitted);
      }
    }
    engine_.submit(batch_);
    batch_.clear();
  }

  // ---- reap and release
  // -----------------------------------------------------------------------------------------------
  std::size_t reap() noexcept {
    const std::size_t reaped = engine_.reap([this](aio::transfer& t, int error) noexcept {
      slot& s = *static_cast<owned_transfer&>(t).owner;
      if (error == 0 && t.kind == aio::operation::flush &&
          device_.flush_failed.load(std::memory_order_relaxed)) [[unlikely]] {
        error = -EIO;  // it was under way when another one failed, which took the blame for both
      }
      if (error == 0 && advance(s)) {
        enqueue(s);  // submitted below: nothing may call back into the engine from here
        return;
      }
      recorder_.stage(number_of(s), observe::stage::completed);
      complete(s, error);
    });
    submit();
    return reaped;
  }

  void finish_releases() noexcept {
    strategy_.finish_releases([this](const grant::released& proof) { settle(proof); });
  }

  void complete(slot& s, int error) noexcept {
    s.result = error;
    if (error != 0 && s.submitted && s.io.kind == aio::operation::flush) [[unlikely]] {
      // Written down first: no queue may act upon what a successor would not know.
      journal_.fail();
      device_.flush_failed.store(true, std::memory_order_relaxed);
    }
    if (s.leased) {
      strategy_.release(s, error == 0, [this](const grant::released& proof) { settle(proof); });
      return;
    }
    finish(s, error, std::move(s.duty).settle(status_of(s, error)));
  }

  void settle(const grant::released& proof) noexcept {
    slot& s = static_cast<slot&>(proof.lease());
    const int error = s.result != 0 ? s.result : proof.error();
    finish(s, error, s.settle(proof, status_of(s, error)));
  }

  [[nodiscard]] static wire::status status_of(const slot& s, int error) noexcept {
    if (error == 0) {
      return wire::status::okay;
    }
    // Only for discard: said of a flush it would make the frontend give up flushing, and nobody
    // would hear of it.
    return s.plan.what == plan::kind::discard && error == -EOPNOTSUPP ? wire::status::not_supported
                                                                      : wire::status::error;
  }

  // ---- respond
  // --------------------------------------------------------------------------------------------------------
  void finish(slot& s, int error, ring::answer<wire_protocol>&& response) noexcept {
    --started_;
    if (s.plan.barrier) {
      barrier_running_ = false;
    }
    count(s, error);
    give_back_table(s);
    respond(s, std::move(response));
  }

  void respond(slot& s, ring::answer<wire_protocol>&& response) noexcept {
    ring_.respond(std::move(response));
    journal_.answered(number_of(s), ring_.answered() - 1);
    recorder_.stage(number_of(s), observe::stage::responded);
    ++answered_;
    if constexpr (journal_type::keeps) {
      unpublished_.push_back(&s);  // its place in the journal is needed until then
    } else {
      free_.push_back(&s);
    }
  }

  void publish() noexcept {
    if (!ring_.has_unpublished()) {
      return;
    }
    journal_.publish(ring_.answered());
    const bool wanted = ring_.publish();
    if constexpr (journal_type::keeps) {
      free_.insert(free_.end(), unpublished_.begin(), unpublished_.end());
      unpublished_.clear();
    }
    counters_.publications.add();
    if (wanted) {
      counters_.notifications.add();
      events_.notify(setup_.port);
    } else {
      counters_.unneeded.add();
    }
    recorder_.published(wanted);
  }

  void give_back_table(slot& s) noexcept {
    if (s.plan.indirect && s.expanded) {
      tables_.give_back(s.table, s.plan.segments);
    }
    s.expanded = true;
  }

  void count(const slot& s, int error) noexcept {
    if (error != 0) {
      counters_.failed.add();
      return;
    }
    if (s.plan.what == plan::kind::transfer) {
      (s.plan.write ? counters_.writes : counters_.reads).add();
      (s.plan.write ? counters_.bytes_written : counters_.bytes_read).add(s.bytes);
    } else {
      (s.plan.what == plan::kind::flush ? counters_.flushes : counters_.discards).add();
    }
  }

  // ---- around the pass
  // ------------------------------------------------------------------------------------------------
  void trim() noexcept {
    passes_since_trim_ = 0;
    using milliseconds = std::chrono::milliseconds;
    if (strategy_.leases() == 0 && !strategy_type::mapped) {
      return;  // nothing of it can idle, so the clock is not asked
    }
    const auto now = std::chrono::steady_clock::now();
    const auto at = strategy_.trim(static_cast<std::uint64_t>(
        std::chrono::floor<milliseconds>(now.time_since_epoch()).count()));
    trim_at_.reset();
    if (at != 0) {
      trim_at_ = wait::time_point(milliseconds(static_cast<std::int64_t>(at)));
    }
  }

  void attract(protocol_error why) const noexcept {
    if (setup_.attention != nullptr) {
      setup_.attention(setup_.who, why);
    }
  }

  // Shows the other threads what became of the queue.
  void tell() noexcept {
    if (ring_.broken() != protocol_error::none &&
        broken_.load(std::memory_order_relaxed) == protocol_error::none) [[unlikely]] {
      broken_.store(ring_.broken(), std::memory_order_release);
      stopping_.store(true, std::memory_order_release);
      attract(ring_.broken());
    }
    if (stopping_.load(std::memory_order_acquire) && !idle_.load(std::memory_order_relaxed) &&
        started_ == 0 && waiting_.empty()) [[unlikely]] {
      idle_.store(true, std::memory_order_release);
      attract(protocol_error::none);
    }
  }

  queue_setup setup_;
  const shared_state& device_;
  [[no_unique_address]] journal_type journal_;
  ring_type ring_;
  Events& events_;
  Engine& engine_;
  strategy_type strategy_;
  indirect_pages<Mapper> indirect_;
  [[no_unique_address]] Recorder recorder_;
  wait::ring_source<Events, ring_type> source_;
  std::vector<slot> slots_;
  segment_tables tables_;
  std::vector<slot*> free_;
  std::vector<slot*> unpublished_;  // answered; used where a journal is kept
  std::vector<aio::transfer*> batch_;
  fifo waiting_;
  std::size_t started_ = 0;   // taken out of waiting_ and not answered
  std::size_t answered_ = 0;  // since the start
  std::uint32_t passes_since_trim_ = 0;
  bool barrier_running_ = false;
  bool unexpanded_ = false;
  std::optional<wait::time_point> trim_at_;
  protocol::blkif::request fetched_{};
  queue_counters counters_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> idle_{false};
  std::atomic<protocol_error> broken_{protocol_error::none};
};

}  // namespace pvring::blk
