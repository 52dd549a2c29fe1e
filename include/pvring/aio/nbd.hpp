// SPDX-License-Identifier: MIT
// The engine on network block devices, through libnbd: a connection per queue. A server that goes
// and comes back is a pause, not an error: what was in flight is done again, once the old
// connection can apply nothing more.
#pragma once

#include <libnbd.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
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
#include <system_error>

#include "../base/error.hpp"
#include "../base/log.hpp"
#include "../base/unique_fd.hpp"
#include "counters.hpp"
#include "detail/cursor.hpp"
#include "engine.hpp"
#include "nbd_image.hpp"
#include "nbd_link.hpp"

namespace pvring::aio {

struct nbd {
  using policy_kind = pvring::policy_kind::engine;
  using image = nbd_image;
  class context;
};

/// One queue's connection.
///
/// The protocol moves one run of bytes per command, so a transfer is as many commands as it has
/// buffers. libnbd works only inside our calls, and may complete a command in any of them, also
/// while another one is given: its callback only notes the result, and what that means is seen to
/// after the call.
///
/// A connection is up, or ending (closed on our side, the server may still have requests of it),
/// or down (nobody has anything of it), or connecting. Only from down a new one is made: a write
/// that a server still has must not land on a newer one. Who waits longer than the image's patience
/// for any progress gets an error, and while there is no connection after that, so does everybody
/// else at once.
class nbd::context {
  using clock = std::chrono::steady_clock;

 public:
  /// Never waits for the server: a connection that is still to be made is made in the background.
  /// \throws std::system_error, configuration_error
  context(nbd_image& image, context_options options)
      : image_(image),
        capacity_(checked(options.capacity)),
        membership_(image),
        link_(image.take_first_link()),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        set_(::epoll_create1(EPOLL_CLOEXEC)),
        slots_(std::make_unique<slot[]>(capacity_)),
        free_(std::make_unique<slot*[]>(capacity_)),
        state_(link_ ? state::up : state::down) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (!wake_ || !set_ || ::epoll_ctl(set_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "descriptors of an NBD context");
    }
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      free_[i] = &slots_[i];
    }
    for (command& one : commands_) {
      one.owner = this;
      give_back(one);
    }
    connector_.owner = this;
    connector_.run = &connect_here;
  }

  context(const context&) = delete;
  context& operator=(const context&) = delete;

  ~context() {
    abandon_.store(true, std::memory_order_relaxed);
    image_.helper().quiesce();
    if (link_ && active_.empty() && !link_.dead()) {
      (void)::nbd_aio_disconnect(link_.get(), 0);  // told, where that needs no waiting
    }
    active_.clear();
    pending_.clear();
    ready_.clear();
  }

  void submit(std::span<transfer* const> batch) noexcept {
    assert(batch.size() <= capacity_ - in_flight_);
    if (active_.empty()) {
      progress_at_ = clock::now();  // patience begins with the first that waits
    }
    for (transfer* work : batch) {
      begin(*work);
    }
    counters_.transfers.add(batch.size());
    issue();
    if (armed_) {
      watch();
      if (!ready_.empty()) {
        signal();
      }
    }
  }

  template <class F>
  std::size_t reap(F&& f) noexcept {
    pump();
    std::size_t n = 0;
    while (!ready_.empty()) {
      transfer& work = ready_.front();
      ready_.pop_front();
      --in_flight_;
      ++n;
      f(work, work.error);
    }
    return n;
  }

  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] int fd() const noexcept { return set_.get(); }

  [[nodiscard]] bool arm() noexcept {
    armed_ = true;
    if (signalled_) {
      clear_signal();
    }
    pump();
    watch();
    return !ready_.empty();
  }
  void disarm() noexcept { armed_ = false; }

  /// The next attempt to connect, or the end of somebody's patience.
  [[nodiscard]] std::optional<clock::time_point> deadline() const noexcept {
    std::optional<clock::time_point> at;
    if (state_ == state::down) {
      at = connect_at_;
    }
    if (!active_.empty()) {
      const clock::time_point end = progress_at_ + image_.options().patience;
      at = at ? std::min(*at, end) : end;
    }
    return at;
  }

  /// Calls into libnbd that submitted, and that looked for completions; each may be some system
  /// calls.
  [[nodiscard]] aio::counters& counters() noexcept { return counters_; }
  /// Connections that were made after the first one was lost.
  [[nodiscard]] const counter& reconnections() const noexcept { return reconnections_; }

 private:
  static constexpr std::size_t most_commands = 256;
  static constexpr std::uint64_t longest_range = std::uint64_t{1} << 30U;
  static constexpr std::chrono::milliseconds shortest_pause{10};
  static constexpr std::chrono::milliseconds longest_pause{1000};

  enum class state : std::uint8_t { up, ending, down, connecting };

  struct slot {
    transfer* work = nullptr;
    detail::cursor at;           // the next piece of a read or write
    std::uint64_t given = 0;     // bytes that have been given to the connection
    std::uint32_t commands = 0;  // that the connection has
    int error = 0;
    bool redone = false;  // given once more, after its connection was lost
    bool all_given = false;
    boost::intrusive::list_member_hook<> active_hook;
    boost::intrusive::list_member_hook<> pending_hook;
  };
  struct command {
    context* owner = nullptr;
    slot* of = nullptr;
    command* next = nullptr;
    int error = 0;
  };
  struct connector : helper_job {
    context* owner = nullptr;
    detail::nbd_link made;
    std::string failure;
    std::atomic<bool> done{false};
  };
  // Gives the place among the image's queues back, also when the constructor fails.
  struct membership {
    explicit membership(nbd_image& image) : of(image) { of.add_context(); }
    membership(const membership&) = delete;
    membership& operator=(const membership&) = delete;
    ~membership() { of.remove_context(); }
    nbd_image& of;
  };

  template <class T, auto Hook>
  using list_of = boost::intrusive::list<
      T, boost::intrusive::member_hook<T, boost::intrusive::list_member_hook<>, Hook>,
      boost::intrusive::constant_time_size<false>>;

  static std::uint32_t checked(std::uint32_t capacity) {
    if (capacity == 0) {
      throw configuration_error("an NBD context for 0 transfers: choose a capacity of at least 1");
    }
    return capacity;
  }

  // --- starting ---

  void begin(transfer& work) noexcept {
    ++in_flight_;
    work.done = 0;
    work.error = 0;
    if (const int refused = refusal(work); refused != 0 || is_empty(work)) {
      finish(work, work.kind == operation::flush ? image_.flushes().flushed(refused) : refused);
      return;
    }
    slot& s = *free_[taken_++];
    s.work = &work;
    s.redone = false;
    restart(s);
    active_.push_back(s);
    pending_.push_back(s);
  }

  [[nodiscard]] int refusal(const transfer& work) const noexcept {
    const bool changes = work.kind != operation::read && work.kind != operation::flush;
    if (changes && image_.read_only()) {
      return -EROFS;
    }
    if (work.kind == operation::flush) {
      return image_.flushes().failure() != 0 ? image_.flushes().failure() : broken_;
    }
    if (work.offset > image_.size() || work.length > image_.size() - work.offset) {
      return -EIO;
    }
    if ((work.kind == operation::discard && image_.discard_granularity() == 0) ||
        (work.kind == operation::write_zeroes && !image_.traits().can_zero)) {
      return -EOPNOTSUPP;
    }
    return broken_;
  }

  [[nodiscard]] bool is_empty(const transfer& work) const noexcept {
    return work.kind == operation::flush ? !image_.can_flush() : work.length == 0;
  }

  void restart(slot& s) noexcept {
    s.at = detail::cursor(s.work->buffers);
    s.given = 0;
    s.commands = 0;
    s.error = 0;
    s.all_given = false;
  }

  /// Gives the connection what waits, in order, as far as it has places.
  void issue() noexcept {
    while (state_ == state::up && !pending_.empty() && idle_ != nullptr) {
      slot& s = pending_.front();
      if (s.work->kind == operation::flush && redoing_ != 0) {
        break;  // it covers what is being done again
      }
      pending_.pop_front();
      if (s.error == 0) {
        give_next(s);
      }
      if (s.error == 0 && !s.all_given) {
        pending_.push_front(s);
      }
      settle(s);
      take_results();
      if (link_.dead() || lost_one_) {
        lost();
      }
    }
  }

  void give_next(slot& s) noexcept {
    const transfer& work = *s.work;
    const std::uint64_t offset = work.offset + s.given;
    command& c = take(s);
    const nbd_completion_callback done{&completed, &c, nullptr};
    std::int64_t cookie = -1;
    switch (work.kind) {
      case operation::read:
      case operation::write: {
        const auto [address, bytes] = next_run(s);
        cookie = work.kind == operation::read
                     ? ::nbd_aio_pread(link_.get(), address, bytes, offset, done, 0)
                     : ::nbd_aio_pwrite(link_.get(), address, bytes, offset, done, write_flags());
        s.at.advance(bytes);
        s.given += bytes;
        s.all_given = s.at.at_end();
        break;
      }
      case operation::flush:
        cookie = ::nbd_aio_flush(link_.get(), done, 0);
        s.all_given = true;
        break;
      case operation::discard:
      case operation::write_zeroes: {
        const std::uint64_t bytes = std::min(work.length - s.given, longest_range);
        cookie = work.kind == operation::discard
                     ? ::nbd_aio_trim(link_.get(), bytes, offset, done, write_flags())
                     : ::nbd_aio_zero(link_.get(), bytes, offset, done, write_flags());
        s.given += bytes;
        s.all_given = s.given == work.length;
        break;
      }
    }
    counters_.submit_calls.add();
    if (cookie < 0) {  // then the callback is not called
      const int error = ::nbd_get_errno();
      c.error = error != 0 ? error : EIO;
      note(c);
    }
  }

  [[nodiscard]] std::uint32_t write_flags() const noexcept {
    return image_.writes_through() ? std::uint32_t{LIBNBD_CMD_FLAG_FUA} : 0U;
  }

  struct run {
    void* address;
    std::size_t bytes;
  };
  [[nodiscard]] run next_run(const slot& s) const noexcept {
    const detail::cursor::piece piece = s.at.next();
    const run whole = piece.entries.empty()
                          ? run{piece.address, static_cast<std::size_t>(piece.bytes)}
                          : run{piece.entries[0].iov_base, piece.entries[0].iov_len};
    return {whole.address, std::min<std::size_t>(whole.bytes, image_.traits().most)};
  }

  // --- results ---

  /// Called inside of libnbd, which must not be called from here.
  static int completed(void* user, int* error) noexcept {
    command& c = *static_cast<command*>(user);
    c.error = *error;
    c.owner->note(c);
    return 1;
  }

  void note(command& c) noexcept {
    c.next = noted_;
    noted_ = &c;
  }

  /// What was noted during a call. \return whether there was anything
  bool take_results() noexcept {
    const bool any = noted_ != nullptr;
    while (noted_ != nullptr) {
      command& c = *noted_;
      noted_ = c.next;
      slot& s = *c.of;
      if (is_loss(c.error)) {
        lost_one_ = true;  // it stays with the connection, whose end is seen to after the call
        continue;
      }
      --s.commands;
      s.error = s.error != 0 ? s.error : -c.error;
      give_back(c);
      progress_seen_ = true;
      settle(s);
    }
    return any;
  }

  /// The protocol has no ENOTCONN: libnbd says so of what a dead connection had. A server that is
  /// shutting down says ESHUTDOWN, and that the request is not done.
  [[nodiscard]] static bool is_loss(int error) noexcept {
    return error == ENOTCONN || error == ESHUTDOWN || error == EPIPE || error == ECONNRESET;
  }

  /// Ends a transfer when the connection has nothing of it any more.
  void settle(slot& s) noexcept {
    if (s.commands == 0 && (s.all_given || s.error != 0)) {
      finish(s, s.error);
    }
  }

  void finish(slot& s, int error) noexcept {
    transfer& work = *s.work;
    if (s.pending_hook.is_linked()) {
      pending_.erase(pending_.iterator_to(s));
    }
    active_.erase(active_.iterator_to(s));
    if (s.redone && work.kind != operation::flush) {
      --redoing_;
    }
    s.work = nullptr;
    free_[--taken_] = &s;
    finish(work, work.kind == operation::flush ? image_.flushes().flushed(error) : error);
  }
  void finish(transfer& work, int error) noexcept {
    work.error = error;
    ready_.push_back(work);
  }

  /// All that can be done without waiting.
  void pump() noexcept {
    switch (state_) {
      case state::up:
        converse();
        break;
      case state::ending:
        if (link_.ended()) {
          all_seen();
        }
        break;
      case state::down:
        if (clock::now() >= connect_at_) {
          connect();
        }
        break;
      case state::connecting:
        if (connector_.done.load(std::memory_order_acquire)) {
          connected();
        }
        break;
    }
    issue();
    if (progress_seen_) {
      progress_seen_ = false;
      progress_at_ = clock::now();
      fruitless_ = false;
      pause_ = shortest_pause;
    } else if (!active_.empty() && clock::now() >= progress_at_ + image_.options().patience) {
      give_up();
    }
  }

  /// Takes every answer that is there, and sends what the socket has room for.
  void converse() noexcept {
    while (const unsigned step = possible()) {
      const bool reads = step == LIBNBD_AIO_DIRECTION_READ;
      (reads ? counters_.reap_calls : counters_.submit_calls).add();
      const int told =
          reads ? ::nbd_aio_notify_read(link_.get()) : ::nbd_aio_notify_write(link_.get());
      const bool any = take_results();
      if (link_.dead() || lost_one_) {
        lost();
        return;
      }
      if (any) {
        issue();
      }
      if (told < 0 || state_ != state::up) {
        return;
      }
    }
  }

  /// The direction in which libnbd can go on: 0 where it is waiting, and reading first. It is never
  /// told of an answer that is not there: in the middle of sending it would then wait for that
  /// answer, while the server waits for the rest of what is sent.
  [[nodiscard]] unsigned possible() noexcept {
    const unsigned wants = ::nbd_aio_get_direction(link_.get());
    pollfd socket{link_.fd(), 0, 0};
    socket.events = static_cast<short>(((wants & LIBNBD_AIO_DIRECTION_READ) != 0 ? POLLIN : 0) |
                                       ((wants & LIBNBD_AIO_DIRECTION_WRITE) != 0 ? POLLOUT : 0));
    counters_.other_calls.add();
    if (wants == 0 || ::poll(&socket, 1, 0) <= 0) {
      return 0;
    }
    const bool reads = (wants & LIBNBD_AIO_DIRECTION_READ) != 0 && socket.revents != POLLOUT;
    return reads ? LIBNBD_AIO_DIRECTION_READ : LIBNBD_AIO_DIRECTION_WRITE;
  }

  // --- losing a connection, and getting another ---

  /// The connection is dead, or of no more use. What it had begins anew: flushes last.
  void lost() noexcept {
    if (link_.dead()) {
      link_.died_of(::nbd_get_errno());
    }
    cut();
    pending_.clear();
    redoing_ = 0;
    for (const bool flushes : {false, true}) {
      for (slot& s : active_) {
        if ((s.work->kind == operation::flush) == flushes) {
          s.redone = true;
          redoing_ += flushes ? 0 : 1;
          restart(s);
          pending_.push_back(s);
        }
      }
    }
    log::write(log::level::warning, "NBD server " + image_.uri() + ": the connection is lost, " +
                                        std::to_string(pending_.size()) + " transfers wait");
    if (link_.ended()) {
      all_seen();
    }
  }

  /// Our side of the connection ends; libnbd tells nobody of what it had.
  void cut() noexcept {
    ignore_socket();
    link_.close();
    noted_ = nullptr;
    idle_ = nullptr;
    for (command& one : commands_) {
      give_back(one);
    }
    lost_one_ = false;
    state_ = state::ending;
  }

  /// The old connection can apply nothing more.
  void all_seen() noexcept {
    link_ = detail::nbd_link();
    state_ = state::down;
    if (fruitless_) {
      retry_later();
    } else {
      connect_at_ = clock::now();
    }
  }

  void connect() noexcept {
    connector_.done.store(false, std::memory_order_relaxed);
    state_ = state::connecting;
    if (!image_.helper().post(connector_)) {
      state_ = state::down;
      retry_later();
    }
  }

  /// On the helper's thread: resolving a name, and the handshake, may take their time.
  static void connect_here(helper_job& job) noexcept {
    auto& c = static_cast<connector&>(job);
    context& self = *c.owner;
    try {
      c.made =
          detail::nbd_link(self.image_.uri(), self.image_.options().connect_limit, &self.abandon_);
      c.failure.clear();
    } catch (const std::exception& error) {
      c.failure = error.what();
    }
    // release: whoever sees it sees the connection.
    c.done.store(true, std::memory_order_release);
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(self.wake_.get(), &one, sizeof one);
  }

  void connected() noexcept {
    signalled_ = true;  // by the helper
    detail::nbd_link made = std::exchange(connector_.made, detail::nbd_link());
    if (made && !fits(made.traits())) {
      connector_.failure = "NBD server " + image_.uri() +
                           ": it has come back with another disk: smaller, read-only, or unable to "
                           "do what the old one could";
      made = detail::nbd_link();
    }
    if (!made) {
      if (said_ != connector_.failure) {
        said_ = connector_.failure;
        log::write(log::level::warning, said_);
      }
      state_ = state::down;
      retry_later();
      return;
    }
    said_.clear();
    link_ = std::move(made);
    state_ = state::up;
    broken_ = 0;
    reconnections_.add();
    fruitless_ = true;
    log::write(log::level::info, "NBD server " + image_.uri() + ": connected");
  }

  [[nodiscard]] bool fits(const detail::nbd_traits& now) const noexcept {
    const detail::nbd_traits& then = image_.traits();
    return now.bytes >= then.bytes && (image_.read_only() || !now.read_only) &&
           now.can_flush >= then.can_flush && now.can_fua >= then.can_fua &&
           now.can_trim >= then.can_trim && now.can_zero >= then.can_zero &&
           now.least <= then.least && now.most >= then.most &&
           now.many_connections >= then.many_connections;
  }

  void retry_later() noexcept {
    connect_at_ = clock::now() + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
  }

  /// Patience is over.
  void give_up() noexcept {
    if (state_ == state::up) {
      cut();
    }
    broken_ = -ETIMEDOUT;
    log::write(log::level::error, "NBD server " + image_.uri() +
                                      ": no answer for too long: what waits fails, and whatever "
                                      "comes until it is back");
    while (!active_.empty()) {
      finish(active_.front(), broken_);
    }
  }

  // --- waiting ---

  /// Has the set tell what the connection needs now.
  void watch() noexcept {
    std::uint32_t wanted = 0;
    if (state_ == state::up) {
      const unsigned wants = ::nbd_aio_get_direction(link_.get());
      wanted = ((wants & LIBNBD_AIO_DIRECTION_READ) != 0 ? EPOLLIN : 0U) |
               ((wants & LIBNBD_AIO_DIRECTION_WRITE) != 0 ? EPOLLOUT : 0U);
    } else if (state_ == state::ending) {
      wanted = EPOLLIN;
    }
    if (wanted == 0) {
      ignore_socket();
      return;
    }
    if (wanted == watched_) {
      return;
    }
    epoll_event event{};
    event.events = wanted;
    counters_.other_calls.add();
    if (::epoll_ctl(set_.get(), watched_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, link_.fd(),
                    &event) == 0) {
      watched_ = wanted;
    }
  }

  void ignore_socket() noexcept {
    if (watched_ != 0) {
      counters_.other_calls.add();
      (void)::epoll_ctl(set_.get(), EPOLL_CTL_DEL, link_.fd(), nullptr);
      watched_ = 0;
    }
  }

  void signal() noexcept {
    const std::uint64_t one = 1;
    counters_.other_calls.add();
    signalled_ = ::write(wake_.get(), &one, sizeof one) == sizeof one;
  }
  void clear_signal() noexcept {
    std::uint64_t count = 0;
    counters_.other_calls.add();
    // Else the helper's signal is still on its way.
    signalled_ = ::read(wake_.get(), &count, sizeof count) != sizeof count;
  }

  // --- commands ---

  command& take(slot& s) noexcept {
    command& c = *idle_;
    idle_ = c.next;
    c.of = &s;
    c.error = 0;
    ++s.commands;
    return c;
  }
  void give_back(command& c) noexcept {
    c.of = nullptr;
    c.next = idle_;
    idle_ = &c;
  }

  nbd_image& image_;
  const std::uint32_t capacity_;
  membership membership_;
  detail::nbd_link link_;
  unique_fd wake_;
  unique_fd set_;
  std::unique_ptr<slot[]> slots_;
  std::unique_ptr<slot*[]> free_;
  std::array<command, most_commands> commands_;
  command* idle_ = nullptr;   // commands that the connection has not
  command* noted_ = nullptr;  // those that completed during a call
  state state_;
  std::uint32_t taken_ = 0;    // free_[taken_, capacity_) are free
  std::size_t in_flight_ = 0;  // submitted and not reaped
  std::size_t redoing_ = 0;    // transfers, not flushes, that are being done once more
  std::uint32_t watched_ = 0;  // what the set asks of the socket
  int broken_ = 0;             // what everybody gets until there is a connection again
  bool armed_ = false;
  bool signalled_ = false;
  bool lost_one_ = false;   // the connection said so of a command
  bool fruitless_ = false;  // the connection has brought nothing since it was made
  bool progress_seen_ = false;
  clock::time_point progress_at_{};
  clock::time_point connect_at_{};
  std::chrono::milliseconds pause_ = shortest_pause;
  list_of<slot, &slot::active_hook> active_;    // in the order in which they were submitted
  list_of<slot, &slot::pending_hook> pending_;  // of these, what is not given as a whole
  list_of<transfer, &transfer::hook> ready_;
  connector connector_;
  std::atomic<bool> abandon_{false};
  std::string said_;
  aio::counters counters_;
  counter reconnections_;
};

static_assert(engine<nbd>);

}  // namespace pvring::aio
