// SPDX-License-Identifier: MIT
// A queue's context on a file whose transfers the kernel performs in the background, whichever
// interface it has for that: libaio's contexts, io_uring's rings. Everything but the calls
// themselves is here: order, short transfers, exhaustion, failed flushes, the helper.
#pragma once

#include <algorithm>
#include <boost/intrusive/list.hpp>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "../../base/error.hpp"
#include "../../base/unique_fd.hpp"
#include "../counters.hpp"
#include "../engine.hpp"
#include "../file_image.hpp"
#include "../helper_thread.hpp"
#include "../mailbox.hpp"
#include "blocking_io.hpp"
#include "cursor.hpp"
#include "progress.hpp"
#include "retry_pause.hpp"
#include "wake_signals.hpp"

namespace pvring::aio::detail {

struct any_result {
  bool operator()(std::uintptr_t, std::int64_t) const noexcept { return true; }
};

/// One of the kernel's interfaces, as one queue uses it. One thread uses it.
///
/// - `command`: one call that is ready for the kernel. Its address identifies it in results; the
///   kernel reads it while it is submitted only.
/// - `prepare_transfer(command, piece, offset, writes)`, `prepare_flush(command)`: nothing of an
///   earlier use stays in the command.
/// - `prepare_range(command, kind, offset, length)`: a discard or write_zeroes; false where only a
///   blocking call does it.
/// - `submit(commands)`: gives the kernel the first of them with one call; how many it took, or a
///   negative errno: EAGAIN and ENOMEM when it has no room, anything else is about the first. What
///   it did not take it has nothing of.
/// - `harvest(f)`: calls `f(std::uintptr_t command, std::int64_t result)`, a command's address, for
/// every result that is
///   there, which says whether that command is one of ours in the kernel; how many there were.
/// - `in_flight()`: commands that the kernel has.
/// - `sees_results()`: harvest() would find something, as far as one can tell without a call.
/// - `only_signals_tell()`: nothing but a signal says that something is complete.
/// - `fd()`: readable when something is complete or wake() was signalled.
/// - `wake()`: what the helper and the context itself signal.
/// - `most_in_flight`: the most that it can be made for.
/// - Its destructor returns when the kernel is done with every buffer.
template <class K>
concept async_kernel =
    std::constructible_from<K, const file_image&, int, context_options> &&
    requires(K& k, const K& c, typename K::command& one, const cursor::piece& piece,
             std::uint64_t n, std::span<typename K::command*> batch, any_result f) {
      { k.prepare_transfer(one, piece, n, true) } noexcept -> std::same_as<void>;
      { k.prepare_flush(one) } noexcept -> std::same_as<void>;
      { k.prepare_range(one, operation::discard, n, n) } noexcept -> std::same_as<bool>;
      { k.submit(batch) } noexcept -> std::same_as<long>;
      { k.harvest(f) } noexcept -> std::same_as<std::size_t>;
      { c.in_flight() } noexcept -> std::same_as<std::size_t>;
      { c.sees_results() } noexcept -> std::same_as<bool>;
      { c.only_signals_tell() } noexcept -> std::same_as<bool>;
      { c.fd() } noexcept -> std::same_as<int>;
      { k.wake() } noexcept -> std::same_as<wake_signals&>;
      { k.counters() } noexcept -> std::same_as<aio::counters&>;
      { K::most_in_flight } -> std::convertible_to<std::uint32_t>;
    };

/// Every transfer has one slot with one command; what does not fit into one call (buffers beyond
/// the kernel's limit, the rest of a short transfer) follows when the call before it is complete.
/// So the kernel never has more than `capacity` of ours, and there is always room for their
/// results.
///
/// A slot is in exactly one place: free, `waiting_` for the kernel, in the kernel, or with the
/// helper. A transfer that ended without any of these is in `ready_` until the next reap.
template <async_kernel Kernel>
class kernel_context {
  using command = typename Kernel::command;

 public:
  /// \throws std::system_error, configuration_error
  kernel_context(file_image& image, context_options options)
      : image_(image),
        capacity_(checked(options.capacity)),
        file_(image.reopen()),
        kernel_(image, file_.get(), options),
        slots_(std::make_unique<slot[]>(capacity_)),
        free_(std::make_unique<slot*[]>(capacity_)),
        waiting_(std::make_unique<command*[]>(capacity_)),
        mail_(capacity_, kernel_.wake().fd()) {
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      slots_[i].owner = this;
      free_[i] = &slots_[i];
    }
  }

  kernel_context(const kernel_context&) = delete;
  kernel_context& operator=(const kernel_context&) = delete;

  /// Waits until neither the kernel nor the helper works for this context. Nobody is told of what
  /// was in flight.
  ~kernel_context() {
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
      kernel_.wake().signal();  // nobody may arm again, or ask for the deadline, before sleeping
    }
  }

  template <class F>
  std::size_t reap(F&& f) noexcept {
    const std::size_t before = in_flight_;
    turned_back_ = 0;
    const std::size_t results =
        kernel_.harvest([&](std::uintptr_t about, std::int64_t result) noexcept {
          return handle(about, result, f);
        });
    if (helper_used_) {
      mail_.consume([&](slot* from) noexcept { helped(from, f); });
    }
    if (results == 0 && kernel_.wake().unexplained()) {
      explain_mail();
      kernel_.wake().forget_unexplained();
    }
    if (waiting_count_ != 0) {
      // A completion makes room, unless all that it said was that there is none.
      if (results > turned_back_) {
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

  // One descriptor serves the kernel's completions, the helper's results and our own signals. That
  // the kernel wakes who waits on it needs no call, so arming costs one read of what was
  // signalled, or nothing.
  [[nodiscard]] int fd() const noexcept { return kernel_.fd(); }

  [[nodiscard]] bool arm() noexcept {
    armed_ = true;
    explain_mail();
    if (has_work()) {
      return true;
    }
    // Where results cannot be seen, an unexplained signal is the only sign of one that needs no
    // call of its own.
    if (kernel_.wake().stale() || kernel_.only_signals_tell()) {
      kernel_.wake().read();
      if (kernel_.wake().unexplained()) {
        explain_mail();
      }
    }
    return kernel_.wake().unexplained() || has_work();
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

 protected:
  [[nodiscard]] Kernel& kernel() noexcept { return kernel_; }
  [[nodiscard]] const Kernel& kernel() const noexcept { return kernel_; }

 private:
  struct slot {
    command call{};  // its address comes back in the result
    helper_job job{};
    kernel_context* owner = nullptr;
    transfer* work = nullptr;
    progress pieces;
    std::uint64_t range = 0;  // bytes of the part of a range that is on its way
    int result = 0;           // the helper's
    bool in_kernel = false;
  };

  using ready_list =
      boost::intrusive::list<transfer,
                             boost::intrusive::member_hook<
                                 transfer, boost::intrusive::list_member_hook<>, &transfer::hook>,
                             boost::intrusive::constant_time_size<false>>;

  static std::uint32_t checked(std::uint32_t capacity) {
    constexpr std::uint32_t most =
        std::min<std::uint32_t>(mailbox<slot*>::most_places, Kernel::most_in_flight);
    if (capacity == 0 || capacity > most) {
      throw configuration_error("an I/O context for " + std::to_string(capacity) +
                                " transfers: choose a capacity from 1 to " + std::to_string(most));
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
          kernel_.prepare_flush(s.call);
          queue(s);
        } else {
          help(s);
        }
        return;
      case operation::discard:
        if (image_.discard_granularity() == 0) {
          ready(work, -EOPNOTSUPP);
          return;
        }
        [[fallthrough]];
      case operation::write_zeroes:
        if (slot& s = take(work); !queue_next_range(s)) {
          help(s);
        }
        return;
    }
    ready(work, -EOPNOTSUPP);
  }

  slot& take(transfer& work) noexcept {
    slot& s = *free_[taken_++];
    s.work = &work;
    s.pieces = progress(work);
    return s;
  }

  void give_back(slot& s) noexcept {
    s.work = nullptr;
    free_[--taken_] = &s;
  }

  void queue(slot& s) noexcept { waiting_[waiting_count_++] = &s.call; }

  void queue_next_piece(slot& s) noexcept {
    const cursor::piece piece = s.pieces.next();
    kernel_.prepare_transfer(s.call, piece, s.pieces.offset(), s.work->kind == operation::write);
    queue(s);
  }

  /// False where only the helper can do it.
  bool queue_next_range(slot& s) noexcept {
    const transfer& work = *s.work;
    if (!works(work.kind)) {
      return false;
    }
    s.range = std::min(work.length - work.done, longest_range);
    if (!kernel_.prepare_range(s.call, work.kind, work.offset + work.done, s.range)) {
      works(work.kind) = false;
      return false;
    }
    queue(s);
    return true;
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
        // only the first is known to be at fault
        refused(slot_of(*waiting_[first]), static_cast<int>(n));
        ++first;
      }
      for (const std::size_t last = first + static_cast<std::size_t>(std::max(n, 0L)); first < last;
           ++first) {
        slot_of(*waiting_[first]).in_kernel = true;
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

  /// False for a result that is about none of our commands in the kernel.
  template <class F>
  bool handle(std::uintptr_t about, std::int64_t result, F& f) noexcept {
    slot* s = find(about);
    if (s == nullptr || !s->in_kernel) {
      return false;
    }
    s->in_kernel = false;
    if (result == -EAGAIN || result == -EINTR) {
      queue(*s);  // as it is
      ++turned_back_;
      return true;
    }
    switch (s->work->kind) {
      case operation::flush:
        if (result == -EINVAL) {
          refused(*s, -EINVAL);
        } else {
          report(*s, image_.flushed(static_cast<int>(std::min<std::int64_t>(result, 0))), f);
        }
        break;
      case operation::discard:
      case operation::write_zeroes:
        changed(*s, static_cast<int>(std::min<std::int64_t>(result, 0)), f);
        break;
      case operation::read:
      case operation::write:
        if (result < 0) {
          report(*s, static_cast<int>(result), f);
        } else {
          transferred(*s, static_cast<std::uint64_t>(result), f);
        }
        break;
    }
    return true;
  }

  template <class F>
  void transferred(slot& s, std::uint64_t got, F& f) noexcept {
    switch (s.pieces.transferred(got, image_)) {
      case progress::step::whole:
        report(s, 0, f);
        return;
      case progress::step::failed:
        report(s, s.pieces.error(), f);
        return;
      case progress::step::continued:
        counters().continuations.add();
        [[fallthrough]];
      case progress::step::more:
        queue_next_piece(s);
        return;
    }
  }

  /// What came of a part of a range. Where the kernel's background has no such call, the helper
  /// does the whole: doing some of it twice changes nothing.
  template <class F>
  void changed(slot& s, int error, F& f) noexcept {
    transfer& work = *s.work;
    if (unified(error) == -EOPNOTSUPP || error == -EINVAL) {
      works(work.kind) = false;
      help(s);
      return;
    }
    work.done += error == 0 ? s.range : 0;
    if (error == 0 && work.done < work.length && queue_next_range(s)) {
      return;
    }
    if (error == 0 && work.kind == operation::write_zeroes) {
      image_.written(work.offset + work.length);
    }
    report(s, error, f);
  }

  /// The slot that a command is in, if it is one of ours.
  slot* find(std::uintptr_t about) noexcept {
    const std::uintptr_t distance = about - reinterpret_cast<std::uintptr_t>(slots_.get());
    const std::size_t index = distance / sizeof(slot);
    if (index >= capacity_ || about != address_of(slots_[index].call)) {
      return nullptr;
    }
    return &slots_[index];
  }

  slot& slot_of(const command& call) noexcept { return *find(address_of(call)); }
  static std::uintptr_t address_of(const command& call) noexcept {
    return reinterpret_cast<std::uintptr_t>(&call);
  }

  bool& works(operation kind) noexcept {
    return kind == operation::discard ? discard_works_ : zeroes_work_;
  }

  // --- the helper ---

  void help(slot& s) noexcept {
    s.job.run = &help_here;
    helper_used_ = true;
    if (!image_.helper().post(s.job)) {
      // No thread to be had. A flush blocks here rather than fail: a failed one would end the
      // device's writes.
      const bool flush = s.work->kind == operation::flush;
      ready(s,
            flush ? image_.flushed(perform_blocking(*s.work, file_.get(), image_.is_block_device()))
                  : -EAGAIN);
    }
  }

  /// On the helper's thread.
  static void help_here(helper_job& job) noexcept {
    slot& s = *reinterpret_cast<slot*>(reinterpret_cast<std::byte*>(&job) - offsetof(slot, job));
    s.result = perform_blocking(*s.work, s.owner->file_.get(), s.owner->image_.is_block_device());
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
    kernel_.wake().expect((armed_ ? mail_.announce() : mail_.withdraw()) ? 1 : 0);
  }

  [[nodiscard]] bool has_work() const noexcept {
    return !ready_.empty() || !mail_.empty() || kernel_.sees_results() || retry_is_due();
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

  // So that no single call occupies the device for long.
  static constexpr std::uint64_t longest_range = std::uint64_t{1} << 30U;

  file_image& image_;
  const std::uint32_t capacity_;
  unique_fd file_;
  Kernel kernel_;
  std::unique_ptr<slot[]> slots_;
  std::unique_ptr<slot*[]> free_;
  std::unique_ptr<command*[]> waiting_;
  std::uint32_t taken_ = 0;  // free_[taken_, capacity_) are free
  std::size_t waiting_count_ =
      0;                         // waiting_[0, waiting_count_) go to the kernel next, in this order
  std::size_t deferred_ = 0;     // the first of them, which the kernel had no room for
  std::size_t turned_back_ = 0;  // results of the current reap that were EAGAIN
  std::size_t in_flight_ = 0;    // submitted and not reaped
  bool armed_ = false;
  bool fdsync_works_ = true;
  bool discard_works_ = true;
  bool zeroes_work_ = true;
  bool helper_used_ = false;
  ready_list ready_;
  mailbox<slot*> mail_;
  retry_pause pause_;
};

}  // namespace pvring::aio::detail
