// SPDX-License-Identifier: MIT
// A complete block backend: one device of one frontend, from the first node in the store to the
// last unmapped page. The composition decides how; the frontend's nodes decide which of its
// instances run.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "../aio/engine.hpp"
#include "../base/config.hpp"
#include "../base/log.hpp"
#include "../grant/batched_copy.hpp"
#include "../grant/choice.hpp"
#include "../grant/map_each.hpp"
#include "../grant/persistent_pool.hpp"
#include "../observe/none.hpp"
#include "../platform/emulated.hpp"
#include "../platform/platform.hpp"
#include "../xenbus/backend_port.hpp"
#include "connection.hpp"
#include "device.hpp"
#include "negotiation.hpp"

// The default engine. Without its library a composition has to name another one.
#if __has_include(<libaio.h>)
#include "../aio/libaio.hpp"
#endif

namespace pvring::blk {

/// One block device.
///
/// The thread that made it, or any one thread, calls process() whenever fd() is readable, or run().
/// Queues have threads of their own, unless options::threads says that the caller serves them. What
/// breaks this device is logged, written to the store's error node, and closes this device only.
template <backend_config Config = default_config>
  requires platform::host<typename Config::platform> && aio::engine<typename Config::engine> &&
           observe::observer<typename Config::observe> &&
           ring::journal_policy<typename Config::journal, protocol::blkif::request>
class backend {
 public:
  using platform_type = typename Config::platform;
  using image_type = typename Config::engine::image;
  using recorder_type = typename Config::observe::recorder;
  using queue_handle = connected_queue<recorder_type>;

  /// Looks at the store, and goes to InitWait. The toolstack has written the device before (see
  /// xenbus::create_device): one that is not there is over at once, with a warning. \param host,
  /// image outlive it
  /// \throws configuration_error for options that cannot be, and (node_error) for links of the
  /// toolstack that cannot be followed; in_use_error where the device's last process has not quite
  /// ended, which is worth trying again; std::system_error where the platform is not to be had
  backend(platform_type& host, const identity& device, image_type& image, options wanted = {})
      : host_(host),
        identity_(device),
        image_(image),
        wanted_(std::move(wanted)),
        store_(host.open_store()),
        device_(*this),
        port_(store_, device_,
              xenbus::resolve_from_backend(store_, {.backend_domain = device.backend_domain,
                                                    .frontend_domain = device.domain,
                                                    .type = device.type,
                                                    .device = device.device})) {
    validate(wanted_);
    if constexpr (requires { image_.most_contexts(); }) {
      wanted_.max_queues = std::min<std::uint32_t>(wanted_.max_queues, image_.most_contexts());
    }
    if (!wanted_.strategy.empty() && !grant::offers<typename Config::grants>(wanted_.strategy)) {
      throw configuration_error("grant strategy '" + wanted_.strategy +
                                "' is not in this composition: it has " +
                                grant::names<typename Config::grants>());
    }
    if (!wanted_.journal_directory.empty()) {
      check_journals();
    }
    export_image(image_, wanted_, shared_);
    known_.has_copy = host_.open_grants(1).has_copy();
    known_.mapping_safe = wanted_.allow_unsafe_mapping ||
                          (image_.buffers_free_at_completion() && image_.buffers_free_at_exit());
    advertised_ = grant::wants_persistent<typename Config::grants>(known_, wanted_.strategy);
    look_at_journals();
    port_.process();
    if (queues_.empty()) {
      forget_journals(most_queues);  // of a connection that nobody can continue any more
    }
    if (port_.finished()) {
      log::write(log::level::warning, port_.path().name() + " is not in the store: node " +
                                          xenbus::join(port_.path().backend(), "state") +
                                          " is missing; create the device first");
    }
  }
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  /// Ends without ceremony: in-flight I/O is waited for and everything is unmapped, but the
  /// frontend is told nothing.
  ~backend() = default;

  /// Readable when process() has something to do.
  [[nodiscard]] int fd() const noexcept { return port_.fd(); }

  /// Handles what the store and the queues have to say; never waits for either. False once the
  /// device is over.
  bool process() {
    // The port clears the wake-up that stop() sends, so stop_ is looked at after that, never
    // before: a stop between the look and the clearing would be forgotten.
    bool more = port_.process();
    if (stop_.exchange(false, std::memory_order_acq_rel)) {
      port_.stop();
      more = port_.process();
    }
    tell_size();
    return more;
  }

  /// process() until the device is over: unplugged, its frontend gone, or stop() called and
  /// everything closed.
  void run() {
    while (process()) {
      pollfd ready{.fd = fd(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, -1) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "waiting for the store");
      }
    }
  }

  /// Any thread: closes the device, after what is in flight.
  void stop() noexcept {
    stop_.store(true, std::memory_order_release);
    port_.wake();
  }

  /// Reads the image's size again and tells a connected frontend. True when it changed. The thread
  /// of process(). Where the store is busy, process() tells it later.
  bool resize() {
    if constexpr (requires { image_.refresh_size(); }) {
      image_.refresh_size();
    }
    const std::uint64_t unit = wanted_.sector_size;
    const std::uint64_t sectors = image_.size() / unit * unit / protocol::blkif::sector_bytes;
    const bool changed = shared_.sectors.exchange(sectors, std::memory_order_relaxed) != sectors;
    size_untold_ = size_untold_ || changed;
    tell_size();
    return changed;
  }

  [[nodiscard]] protocol::xenbus_state state() const noexcept { return port_.state(); }
  [[nodiscard]] bool connected() const noexcept { return port_.connected(); }
  [[nodiscard]] bool finished() const noexcept { return port_.finished(); }
  /// The log line about the grant strategy of the current or last connection.
  [[nodiscard]] const std::string& choice() const noexcept { return choice_; }
  [[nodiscard]] const shared_state& exported() const noexcept { return shared_; }

  /// The connected queues, for a caller's own event loop: while connected, on the thread of
  /// process().
  [[nodiscard]] const std::vector<std::unique_ptr<queue_handle>>& queues() const noexcept {
    return queues_;
  }
  /// How often queues were connected. One process() may disconnect and connect anew; a caller that
  /// watches the queues' descriptors finds by this that they are others.
  [[nodiscard]] std::uint64_t connections() const noexcept { return connections_; }

  /// `sink(queue, recorder)` is called on the thread of process() for each queue that has ended,
  /// when nobody writes its recorder any more: what it recorded can be read without a race. It must
  /// not throw. Set it before the device connects.
  void set_recorder_sink(std::function<void(std::uint32_t, const recorder_type&)> sink) {
    recorder_sink_ = std::move(sink);
  }

  /// Any thread; empty while not connected.
  [[nodiscard]] std::vector<queue_statistics> statistics() const {
    const std::lock_guard lock(queues_mutex_);
    std::vector<queue_statistics> out;
    out.reserve(queues_.size());
    for (const auto& queue : queues_) {
      out.push_back(queue->statistics());
    }
    return out;
  }

 private:
  using transaction = typename platform_type::store_handle::transaction;

  // The hooks of the handshake; see xenbus::device_handler.
  class handler {
   public:
    explicit handler(backend& device) noexcept : device_(device) {}
    void advertise(transaction& t) {
      write_offer(t, device_.port_.path().backend(), device_.wanted_);
    }
    void connect() {
      try {
        device_.connect(false);
      } catch (...) {
        // A frontend may try and fail as often as it likes.
        device_.forget_journals(device_.wanted_.max_queues);
        throw;
      }
    }
    bool take_over() {
      if (device_.wanted_.journal_directory.empty()) {
        return false;
      }
      const auto told =
          device_.store_.read(xenbus::join(device_.port_.path().backend(), "sectors"));
      device_.connect(true);
      // The image may have grown while nobody served it.
      device_.size_untold_ =
          told != std::to_string(device_.shared_.sectors.load(std::memory_order_relaxed));
      return true;
    }
    void publish(transaction& t) {
      write_export(t, device_.port_.path().backend(), device_.allowed_, device_.shared_,
                   device_.image_.physical_block_size(), device_.advertised_);
    }
    void begin_disconnect() noexcept {
      for (const auto& queue : device_.queues_) {
        queue->stop();
      }
    }
    [[nodiscard]] bool drained() const noexcept {
      for (const auto& queue : device_.queues_) {
        if (!queue->idle()) {
          return false;
        }
      }
      return true;
    }
    void finish_disconnect() noexcept { device_.end_queues(); }
    void resized(transaction& t) {
      t.write(xenbus::join(device_.port_.path().backend(), "sectors"),
              std::to_string(device_.shared_.sectors.load(std::memory_order_relaxed)));
    }

   private:
    backend& device_;
  };

  void connect(bool take_over) {
    // Everything anew: another frontend may be there, with another ABI, queue count or ring size.
    allowed_ =
        as_the_toolstack_allows(store_, port_.path().backend(), identity_.backend_domain, wanted_);
    const agreement with =
        read_agreement(store_, port_.path().frontend(), identity_.domain, wanted_);
    export_image(image_, allowed_, shared_);
    grant::circumstances known = known_;
    known.frontend_persistent = advertised_ && with.persistent;
    const bool chosen =
        grant::choose<typename Config::grants>(known, wanted_.strategy, [&]<class Strategy>() {
          choice_ = grant::explain(Strategy::name, known, advertised_);
          frees_pages_ = frees_pages_at_exit<Strategy>(known);
          if (take_over && !frees_pages_) {
            throw configuration_error("the grant strategy is " + std::string(Strategy::name) +
                                      ", and what the earlier backend had mapped may be mapped or "
                                      "written still; use another strategy to be succeeded");
          }
          if (with.abi == protocol::blkif::abi::x86_32) {
            connect_queues<protocol::blkif::abi::x86_32, Strategy>(with, take_over);
          } else {
            connect_queues<protocol::blkif::abi::x86_64, Strategy>(with, take_over);
          }
        });
    if (!chosen) {
      throw configuration_error(
          "no grant strategy can run (" + grant::explain("none", known, advertised_) +
          "); allow another one of " + grant::names<typename Config::grants>());
    }
    connected_log_.write(log::level::info,
                         port_.path().name() + ": " + (take_over ? "taken over; " : "") + choice_ +
                             "; " + std::to_string(with.queues.size()) + " queues of " +
                             std::to_string(with.queues.front().ring_references.size()) +
                             " ring pages, " + std::string(to_string(with.abi)));
  }

  // Whether a process that is gone leaves the frontend its pages. Its journal's lock goes with its
  // mappings, but I/O that outlives it may still read into them, and of an image that is only read
  // nobody waits for that.
  template <class Strategy>
  [[nodiscard]] bool frees_pages_at_exit(grant::circumstances known) const noexcept {
    if constexpr (grant::answer_frees_grants<Strategy>) {
      return false;
    } else {
      known.mapping_safe = image_.buffers_free_at_exit();
      return Strategy::usable(known);
    }
  }

  template <protocol::blkif::abi Abi, class Strategy>
  void connect_queues(const agreement& with, bool take_over) {
    static_assert(grant::strategy<Strategy, typename platform_type::grant_handle>);
    std::vector<std::unique_ptr<queue_handle>> queues;
    // Where one cannot be connected, leaving this function disconnects those before it.
    for (const xenbus::queue_nodes& nodes : with.queues) {
      queues.push_back(std::make_unique<connected_queue_of<Abi, Config, Strategy>>(
          connection_setup<platform_type, image_type>{
              .host = host_,
              .image = image_,
              .wanted = wanted_,
              .device = shared_,
              .nodes = nodes,
              .domain = identity_.domain,
              .ring_start = where_it_ended(nodes),
              .journal = journal_path(queues.size()),
              .agreement = keeps_journal ? terms(with, nodes) : std::string(),
              .take_over = take_over,
              .scatter = image_.alignment() <= protocol::blkif::sector_bytes,
              .attention = &attention,
              .who = this}));
    }
    // Only now that all are there: until here nothing was done that could not be undone.
    for (std::size_t i = 0; take_over && i < queues.size(); ++i) {
      queues[i]->take_over();
    }
    if (wanted_.threads == threads::own) {
      for (std::size_t i = 0; i < queues.size(); ++i) {
        wait::runner_options how;
        how.name = "pvring-blk-" + std::to_string(i);
        how.wait = wanted_.wait;
        how.waiter.budget = wanted_.pass_budget;
        if (!wanted_.cpus.empty()) {
          how.cpu = static_cast<unsigned>(wanted_.cpus[i % wanted_.cpus.size()]);
        }
        queues[i]->start(how);
      }
    }
    const std::lock_guard lock(queues_mutex_);
    queues_ = std::move(queues);
    ++connections_;
  }

  using journal_type = typename Config::journal::template bind<protocol::blkif::request>;
  static constexpr bool keeps_journal = journal_type::keeps;

  void check_journals() const {
    const std::string option = "option journal_directory is " + wanted_.journal_directory + ": ";
    if (!keeps_journal) {
      throw configuration_error(
          option + "this composition keeps no journal; name ring::shared_journal in it");
    }
    if constexpr (requires { image_.guarded(); }) {
      if (!image_.guarded()) {
        throw configuration_error(
            option + "image " + std::string(image_.name()) +
            " is not guarded, so that I/O of a process that was killed could "
            "land on what is newer; open it with image_sharing::guarded where its "
            "engine knows that, or keep no journals");
      }
    }
  }

  // Before anything else is looked at. What a process that is ending has mapped, and reads into, is
  // the frontend's only when it is gone. And a flush that failed stays failed for this image,
  // whether or not the connection can be continued: what was acknowledged may be gone.
  void look_at_journals() {
    if constexpr (keeps_journal) {
      const std::string image = terms_of_image();
      for (std::size_t i = 0; i < most_queues && !wanted_.journal_directory.empty(); ++i) {
        const auto file = mapped_file::open_any(journal_path(i), journal_type::least_bytes());
        if (!file) {
          continue;
        }
        const auto left = journal_type::look_at(file->memory());
        if (!left || !left->failed) {
          continue;
        }
        const std::string_view agreed(reinterpret_cast<const char*>(left->agreement.data()),
                                      left->agreement.size());
        if (agreed.ends_with(image)) {
          shared_.flush_failed.store(true, std::memory_order_relaxed);
        }
      }
    }
  }

  void forget_journals(std::size_t queues) const noexcept {
    for (std::size_t i = 0; i < queues && !wanted_.journal_directory.empty(); ++i) {
      (void)::unlink(journal_path(i).c_str());
    }
  }

  [[nodiscard]] std::string journal_path(std::size_t queue) const {
    if (wanted_.journal_directory.empty()) {
      return {};
    }
    return wanted_.journal_directory + '/' + journal_prefix(identity_) + std::to_string(queue);
  }

  // All that a successor has to do as this backend does, for what the frontend knows of the device
  // and what is in its rings to stay right.
  [[nodiscard]] std::string terms(const agreement& with, const xenbus::queue_nodes& nodes) const {
    std::string out;
    const auto add = [&out](std::string_view name, const auto& value) {
      out += name;
      out += '=';
      if constexpr (requires { std::to_string(value); }) {
        out += std::to_string(value);
      } else {
        out += value;
      }
      out += '\n';
    };
    add("abi", to_string(with.abi));
    add("channel", nodes.event_channel);
    for (const platform::grant_reference reference : nodes.ring_references) {
      add("ring", reference);
    }
    add("queues", with.queues.size());
    add("sector-size", shared_.sector_size);
    add("indirect", shared_.max_indirect_segments);
    add("discard", shared_.discard_granularity);
    add("read-only", shared_.read_only);
    add("flush", shared_.flush);
    add("barrier", shared_.barrier);
    add("persistent", advertised_ && with.persistent);
    add("frees-pages", frees_pages_);
    return out + terms_of_image();
  }

  // The last line.
  [[nodiscard]] std::string terms_of_image() const {
    std::string name(image_.name());
    if constexpr (requires { image_.identity(); }) {
      name = image_.identity();
    }
    return "image=" + name + '\n';
  }

  // A frontend may keep its rings over a reconnect. Only for a ring that this backend drained
  // itself is it known that everything that was taken was answered; the ring's own index a peer can
  // write.
  [[nodiscard]] std::uint32_t where_it_ended(const xenbus::queue_nodes& nodes) const noexcept {
    for (const ended_ring& ring : ended_) {
      if (ring.references == nodes.ring_references) {
        return ring.at;
      }
    }
    return 0;
  }

  void end_queues() noexcept {
    const std::size_t count = queues_.size();
    {
      const std::lock_guard lock(queues_mutex_);
      ended_.clear();
      for (std::uint32_t i = 0; i < count; ++i) {
        queues_[i]->join();
        ended_.push_back({queues_[i]->ring_references(), queues_[i]->answered()});
        if (recorder_sink_) {
          recorder_sink_(i, queues_[i]->recorder());
        }
      }
      queues_.clear();
    }
    forget_journals(count);
  }

  void tell_size() {
    if (!size_untold_) {
      return;
    }
    try {
      (void)
          port_.announce_resize();  // false where nobody is connected: the next connection reads it
      size_untold_ = false;
    } catch (const std::system_error& busy) {
      if (busy.code() != std::errc::resource_unavailable_try_again) {
        throw;
      }
      port_.wake();  // asked again
    }
  }

  static void attention(void* who, protocol_error why) noexcept {
    auto& device = *static_cast<backend*>(who);
    if (why != protocol_error::none) {
      device.port_.report(why);
    } else {
      device.port_.wake();
    }
  }

  platform_type& host_;
  identity identity_;
  image_type& image_;
  options wanted_;
  options allowed_;  ///< of these, what the toolstack's nodes allow
  shared_state shared_;
  grant::circumstances known_;
  bool advertised_ = false;
  bool frees_pages_ = false;  ///< the strategy that runs; see frees_pages_at_exit
  bool size_untold_ = false;
  std::string choice_;
  log::rate_limit connected_log_;  ///< a frontend may connect as often as it likes
  std::atomic<bool> stop_{false};
  typename platform_type::store_handle store_;
  handler device_;
  xenbus::backend_port<typename platform_type::store_handle, handler> port_;
  struct ended_ring {
    std::vector<platform::grant_reference> references;
    std::uint32_t at = 0;
  };
  std::vector<ended_ring> ended_;  ///< of the last connection
  std::uint64_t connections_ = 0;
  std::function<void(std::uint32_t, const recorder_type&)> recorder_sink_;
  mutable std::mutex queues_mutex_;
  std::vector<std::unique_ptr<queue_handle>>
      queues_;  // last: queues call port_ until they are gone
};

}  // namespace pvring::blk
