// SPDX-License-Identifier: MIT
// The engine on the kernel's asynchronous I/O, through libaio: one io_submit for a whole batch,
// completions read from the ring that the kernel maps into the process. It is the default engine.
#pragma once

#include <libaio.h>
#include <sys/uio.h>

#include <algorithm>
#include <boost/intrusive/list.hpp>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "../base/error.hpp"
#include "../base/unique_fd.hpp"
#include "counters.hpp"
#include "detail/blocking_io.hpp"
#include "detail/progress.hpp"
#include "detail/retry_pause.hpp"
#include "detail/wake_signals.hpp"
#include "engine.hpp"
#include "file_image.hpp"
#include "libaio_kernel.hpp"
#include "mailbox.hpp"

namespace pvring::aio {

struct libaio {
  using policy_kind = pvring::policy_kind::engine;
  using image = file_image;
  class context;
};

/// One queue's AIO context. Every transfer has one slot with one iocb; what does not fit into one
/// call (buffers beyond the kernel's limit, the rest of a short transfer) follows when the call
/// before it is complete. So the kernel never has more than `capacity` of ours, and there is always
/// room for their events.
///
/// A slot is in exactly one place: free, `waiting_` for the kernel, in the kernel, or with the
/// helper. A transfer that ended without any of these is in `ready_` until the next reap.
class libaio::context {
 public:
  /// \throws std::system_error, configuration_error
  context(file_image& image, context_options options)
      : image_(image),
        capacity_(checked(options.capacity)),
        file_(image.reopen()),
        kernel_(capacity_, options.reap),
        wake_(kernel_.counters().other_calls),
        slots_(std::make_unique<slot[]>(capacity_)),
        free_(std::make_unique<slot*[]>(capacity_)),
        waiting_(std::make_unique<iocb*[]>(capacity_)),
        mail_(capacity_, wake_.fd()) {
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      slots_[i].owner = this;
      free_[i] = &slots_[i];
    }
  }

  context(const context&) = delete;
  context& operator=(const context&) = delete;

  /// Waits until neither the kernel nor the helper works for this context. Nobody is told of what
  /// was in flight.
  ~context() {
    if (helper_used_) {
      // Not just until the results are there: the helper may still be inside the push that
      // announces the last one.
      image_.helper().quiesce();
    }
  }

  void submit(std::span<transfer* const> batch) noexcept {
    assert(batch.size() <= capacity_ - in_flight_);
    for (transfer* work : batch) {
      begin(*work);
    }
    counters().transfers.add(batch.size());
    push_waiting();
    if (armed_ && (!ready_.empty() || waits_for_time())) {
      wake_.signal();  // nobody may arm again, or ask for the deadline, before sleeping
    }
  }

  template <class F>
  std::size_t reap(F&& f) noexcept {
    const std::size_t before = in_flight_;
    turned_back_ = 0;
    const std::size_t events =
        kernel_.harvest([&](const io_event& event) noexcept { return handle(event, f); });
    wake_.expect(events);
    if (helper_used_) {
      mail_.consume([&](slot* from) noexcept { helped(from, f); });
    }
    if (events == 0 && wake_.unexplained()) {
      explain_mail();
      wake_.forget_unexplained();
    }
    if (waiting_count_ != 0) {
      // A completion makes room, unless all that it said was that there is none.
      if (events > turned_back_) {
        pause_.reset();
        push_waiting();
      } else if (turned_back_ != 0) {
        pause_if_alone();
      } else if (retry_is_due()) {
        push_waiting();
      }
    }
    while (!ready_.empty()) {
      transfer& work = ready_.front();
      ready_.pop_front();
      report(work, work.error, f);
    }
    return before - in_flight_;
  }

  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  // One descriptor serves the kernel's completions (every iocb carries it), the helper's results
  // and our own signals. That the kernel signals an armed context needs no call, so arming costs
  // one read, or nothing when nothing came.
  [[nodiscard]] int fd() const noexcept { return wake_.fd(); }

  [[nodiscard]] bool arm() noexcept {
    armed_ = true;
    explain_mail();
    if (has_work()) {
      return true;
    }
    // Where the ring is not read, an unexplained signal is the only sign of a completion that needs
    // no second call.
    if (wake_.stale() || (!kernel_.reads_ring() && kernel_.in_flight() != 0)) {
      wake_.read();
      if (wake_.unexplained()) {
        explain_mail();
      }
    }
    return wake_.unexplained() || has_work();
  }

  void disarm() noexcept {
    armed_ = false;
    explain_mail();
  }

  /// When to try again what the kernel has no room for; nothing while a completion will say so.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const noexcept {
    return waits_for_time() ? std::optional(pause_.until()) : std::nullopt;
  }

  [[nodiscard]] aio::counters& counters() noexcept { return kernel_.counters(); }
  /// How completions are found: the mapped ring may have turned out to be none that we know.
  [[nodiscard]] reap_mode reaps_by() const noexcept {
    return kernel_.reads_ring() ? reap_mode::user_space : reap_mode::system_call;
  }

 private:
  struct slot {
    iocb control{};  // its address comes back in the event
    helper_job job{};
    context* owner = nullptr;
    transfer* work = nullptr;
    detail::progress pieces;
    int result = 0;  // the helper's
    bool in_kernel = false;
  };

  using ready_list =
      boost::intrusive::list<transfer,
                             boost::intrusive::member_hook<
                                 transfer, boost::intrusive::list_member_hook<>, &transfer::hook>,
                             boost::intrusive::constant_time_size<false>>;

  static std::uint32_t checked(std::uint32_t capacity) {
    if (capacity == 0 || capacity > mailbox<slot*>::most_places) {
      throw configuration_error("an AIO context for " + std::to_string(capacity) +
                                " transfers: choose a capacity from 1 to " +
                                std::to_string(mailbox<slot*>::most_places));
    }
    return capacity;
  }

  // --- starting ---

  void begin(transfer& work) noexcept {
    ++in_flight_;
    work.done = 0;
    work.error = 0;
    const bool changes = work.kind != operation::read && work.kind != operation::flush;
    if (changes && image_.read_only()) {
      ready(work, -EROFS);
      return;
    }
    switch (work.kind) {
      case operation::read:
      case operation::write:
        if (slot& s = take(work); s.pieces.at_end()) {
          ready(s, 0);  // nothing to transfer
        } else {
          queue_next_piece(s);
        }
        return;
      case operation::flush:
        if (const int failed = image_.flush_failure()) {
          ready(work, failed);
        } else if (slot& s = take(work); fdsync_works_) {
          queue(s, IO_CMD_FDSYNC);
        } else {
          help(s);
        }
        return;
      case operation::discard:
        if (image_.discard_granularity() == 0) {
          ready(work, -EOPNOTSUPP);
          return;
        }
        help(take(work));
        return;
      case operation::write_zeroes:
        help(take(work));
        return;
    }
    ready(work, -EOPNOTSUPP);
  }

  slot& take(transfer& work) noexcept {
    slot& s = *free_[taken_++];
    s.work = &work;
    s.pieces = detail::progress(work);
    return s;
  }

  void give_back(slot& s) noexcept {
    s.work = nullptr;
    free_[--taken_] = &s;
  }

  /// Queues a fresh iocb: nothing of an earlier use stays in it.
  void queue(slot& s, int command) noexcept {
    s.control = iocb{};
    s.control.data = &s;
    s.control.aio_lio_opcode = static_cast<short>(command);
    s.control.aio_fildes = file_.get();
    ::io_set_eventfd(&s.control, wake_.fd());
    waiting_[waiting_count_++] = &s.control;
  }

  void queue_next_piece(slot& s) noexcept {
    const bool writes = s.work->kind == operation::write;
    const detail::cursor::piece piece = s.pieces.next();
    if (piece.entries.empty()) {
      queue(s, writes ? IO_CMD_PWRITE : IO_CMD_PREAD);
      s.control.u.c.buf = piece.address;
      s.control.u.c.nbytes = piece.bytes;
    } else {
      queue(s, writes ? IO_CMD_PWRITEV : IO_CMD_PREADV);
      // The kernel only reads the array; the interface is older than const.
      s.control.u.c.buf = const_cast<iovec*>(piece.entries.data());
      s.control.u.c.nbytes = piece.entries.size();
    }
    s.control.u.c.offset = static_cast<long long>(s.pieces.offset());
  }

  /// Gives the kernel all that waits, in order, usually in one call. What it has no room for stays,
  /// still in order.
  void push_waiting() noexcept {
    std::size_t first = 0;
    while (first != waiting_count_) {
      const long n = kernel_.submit({waiting_.get() + first, waiting_count_ - first});
      if (n == 0 || n == -EAGAIN || n == -ENOMEM) {
        break;  // exhaustion is not the fault of anybody's request
      }
      if (n < 0) {
        refused(slot_of(waiting_[first]),
                static_cast<int>(n));  // only the first is known to be at fault
        ++first;
      }
      for (const std::size_t last = first + static_cast<std::size_t>(std::max(n, 0L)); first < last;
           ++first) {
        slot_of(waiting_[first]).in_kernel = true;
      }
    }
    std::copy(waiting_.get() + first, waiting_.get() + waiting_count_, waiting_.get());
    waiting_count_ -= first;
    counters().deferred.add(waiting_count_ -
                            std::min(waiting_count_, deferred_ - std::min(deferred_, first)));
    deferred_ = waiting_count_;
    pause_if_alone();
  }

  void refused(slot& s, int error) noexcept {
    if (s.work->kind != operation::flush) {
      ready(s, error);
    } else if (error == -EINVAL) {
      fdsync_works_ = false;  // a kernel or file system without it
      help(s);
    } else {
      ready(s, image_.flushed(error));
    }
  }

  /// Ends a transfer without the kernel; the next reap reports it.
  void ready(transfer& work, int error) noexcept {
    work.error = error;
    ready_.push_back(work);
  }
  void ready(slot& s, int error) noexcept {
    transfer& work = *s.work;
    give_back(s);
    ready(work, error);
  }

  // --- completing ---

  /// The one place where a transfer leaves and is accounted for; its slot is free by then.
  template <class F>
  void report(transfer& work, int error, F& f) noexcept {
    work.error = error;
    --in_flight_;
    f(work, error);
  }
  template <class F>
  void report(slot& s, int error, F& f) noexcept {
    transfer& work = *s.work;
    give_back(s);
    report(work, error, f);
  }

  /// False for an event that is about none of our iocbs in the kernel.
  template <class F>
  bool handle(const io_event& event, F& f) noexcept {
    slot* s = find(event.obj);
    if (s == nullptr) {
      return false;
    }
    s->in_kernel = false;
    const auto result = static_cast<std::int64_t>(event.res);
    if (result == -EAGAIN) {
      waiting_[waiting_count_++] = &s->control;  // as it is
      ++turned_back_;
    } else if (s->work->kind == operation::flush) {
      if (result == -EINVAL) {
        refused(*s, -EINVAL);
      } else {
        report(*s, image_.flushed(static_cast<int>(std::min<std::int64_t>(result, 0))), f);
      }
    } else if (result < 0) {
      report(*s, static_cast<int>(result), f);
    } else {
      transferred(*s, static_cast<std::uint64_t>(result), f);
    }
    return true;
  }

  template <class F>
  void transferred(slot& s, std::uint64_t got, F& f) noexcept {
    switch (s.pieces.transferred(got, image_)) {
      case detail::progress::step::whole:
        report(s, 0, f);
        return;
      case detail::progress::step::failed:
        report(s, s.pieces.error(), f);
        return;
      case detail::progress::step::continued:
        counters().continuations.add();
        [[fallthrough]];
      case detail::progress::step::more:
        queue_next_piece(s);
        return;
    }
  }

  static slot& slot_of(iocb* control) noexcept { return *static_cast<slot*>(control->data); }

  /// The slot in the kernel that an event is about, if it is one.
  slot* find(const iocb* control) noexcept {
    const std::uintptr_t distance =
        reinterpret_cast<std::uintptr_t>(control) - reinterpret_cast<std::uintptr_t>(slots_.get());
    const std::size_t index = distance / sizeof(slot);
    if (index >= capacity_ || control != &slots_[index].control || !slots_[index].in_kernel) {
      return nullptr;
    }
    return &slots_[index];
  }

  // --- the helper ---

  void help(slot& s) noexcept {
    s.job.run = &help_here;
    helper_used_ = true;
    if (!image_.helper().post(s.job)) {
      // No thread to be had. A flush blocks here rather than fail: a failed one would end the
      // device's writes.
      const bool flush = s.work->kind == operation::flush;
      ready(s, flush ? image_.flushed(
                           detail::perform_blocking(*s.work, file_.get(), image_.is_block_device()))
                     : -EAGAIN);
    }
  }

  /// On the helper's thread.
  static void help_here(helper_job& job) noexcept {
    slot& s = *reinterpret_cast<slot*>(reinterpret_cast<std::byte*>(&job) - offsetof(slot, job));
    s.result =
        detail::perform_blocking(*s.work, s.owner->file_.get(), s.owner->image_.is_block_device());
    s.owner->mail_.push(&s);
  }

  /// What the helper sent.
  template <class F>
  void helped(slot* from, F& f) noexcept {
    const transfer& work = *from->work;
    int error = from->result;
    if (work.kind == operation::flush) {
      error = image_.flushed(error);
    } else if (error == 0 && work.kind == operation::write_zeroes) {
      image_.written(work.offset + work.length);
    }
    report(*from, error, f);
  }

  // --- waiting ---

  /// Accounts for the signal of a helper that found us armed, and stays as armed as we were.
  void explain_mail() noexcept {
    wake_.expect((armed_ ? mail_.announce() : mail_.withdraw()) ? 1 : 0);
  }

  [[nodiscard]] bool has_work() const noexcept {
    return !ready_.empty() || !mail_.empty() || kernel_.sees_events() || retry_is_due();
  }

  /// Where something waits and nothing of ours will complete and make room, only time can. Then
  /// submit() tries at once, reap() after a pause.
  [[nodiscard]] bool waits_for_time() const noexcept {
    return waiting_count_ != 0 && kernel_.in_flight() == 0;
  }

  void pause_if_alone() noexcept {
    if (waits_for_time()) {
      pause_.begin();
    }
  }

  [[nodiscard]] bool retry_is_due() const noexcept { return waits_for_time() && pause_.is_over(); }

  file_image& image_;
  const std::uint32_t capacity_;
  unique_fd file_;
  detail::libaio_kernel kernel_;
  detail::wake_signals wake_;
  std::unique_ptr<slot[]> slots_;
  std::unique_ptr<slot*[]> free_;
  std::unique_ptr<iocb*[]> waiting_;
  std::uint32_t taken_ = 0;  // free_[taken_, capacity_) are free
  std::size_t waiting_count_ =
      0;                         // waiting_[0, waiting_count_) go to the kernel next, in this order
  std::size_t deferred_ = 0;     // the first of them, which the kernel had no room for
  std::size_t turned_back_ = 0;  // completions of the current reap that were EAGAIN
  std::size_t in_flight_ = 0;    // submitted and not reaped
  bool armed_ = false;
  bool fdsync_works_ = true;
  bool helper_used_ = false;
  ready_list ready_;
  mailbox<slot*> mail_;
  detail::retry_pause pause_;
};

static_assert(engine<libaio>);

}  // namespace pvring::aio
