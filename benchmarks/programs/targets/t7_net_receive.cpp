// SPDX-License-Identifier: MIT
// T7: what a packet for the guest costs the backend, by grant strategy, delivery, burst, size, and
// how many of the guest's pages are kept mapped. Beside it, floors: the bare ring with one memcpy
// per packet, and with one copy call per burst.
#include <sys/eventfd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pvring/base/unique_fd.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/mapped_first.hpp"
#include "pvring/net/queue.hpp"
#include "pvring/observe/none.hpp"
#include "pvring/platform/emulated.hpp"
#include "pvring/ring/front_ring.hpp"
#include "support/clock.hpp"
#include "targets.hpp"

namespace bench {
namespace {

namespace net = pvring::net;
namespace grant = pvring::grant;
namespace platform = pvring::platform;
using rx_wire = pvring::protocol::netif::rx_wire;

constexpr std::size_t ring_slots = 256;
constexpr std::array<std::size_t, 4> bursts{1, 2, 8, 32};
constexpr std::array<std::size_t, 4> sizes{64, 256, 1496, 65'535};
constexpr std::array<unsigned, 4> rates{100, 90, 50, 0};

constexpr std::size_t slots_of(std::size_t length) { return (length + 4095) / 4096; }
/// Frames that one round delivers: as many whole bursts as the ring has pages for, 0 where none.
constexpr std::size_t frames_of(std::size_t burst, std::size_t length) {
  return ring_slots / slots_of(length) / burst * burst;
}

/// An uplink's port that has as many frames as it is told.
class burst_port {
 public:
  burst_port() : wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), frame_(net::max_frame_bytes) {}
  void refill(std::size_t count, std::size_t length) noexcept {
    left_ = count;
    length_ = length;
  }
  [[nodiscard]] int transmit(std::span<const iovec> /*bytes*/,
                             const net::packet_info& /*info*/) noexcept {
    return 0;
  }
  [[nodiscard]] std::ptrdiff_t receive(std::span<std::byte> into,
                                       net::packet_info& /*info*/) noexcept {
    if (left_ == 0) {
      return 0;
    }
    --left_;
    frame_[1] = static_cast<std::byte>(left_);
    std::memcpy(into.data(), frame_.data(), length_);
    return static_cast<std::ptrdiff_t>(length_);
  }
  [[nodiscard]] int fd() const noexcept { return wake_.get(); }
  [[nodiscard]] bool arm() const noexcept { return left_ != 0; }
  void disarm() const noexcept {}

 private:
  pvring::unique_fd wake_;
  std::vector<std::byte> frame_;
  std::size_t left_ = 0;
  std::size_t length_ = 0;
};
static_assert(net::uplink_port<burst_port>);

/// The guest: its receive ring and a page for each slot. It polls, so nobody notifies it.
class receiving_guest {
 public:
  receiving_guest()
      : guest_(host.create_domain(1)),
        tx_page(guest_.allocate_pages()),
        rx_page(guest_.allocate_pages()),
        tx_reference(guest_.grant(0, tx_page, platform::access::read_write)),
        rx_reference(guest_.grant(0, rx_page, platform::access::read_write)),
        tx_(std::span(tx_page, platform::page_size)),
        rx_(std::span(rx_page, platform::page_size)),
        pages_(guest_.allocate_pages(ring_slots)) {
    for (std::size_t i = 0; i < ring_slots; ++i) {
      references[i] =
          guest_.grant(0, pages_ + i * platform::page_size, platform::access::read_write);
    }
    post();
  }

  void post() noexcept {
    while (rx_.space() != 0) {
      const auto slot = static_cast<std::uint16_t>(put_++ % ring_slots);
      rx_.put({references[slot], slot});
    }
    (void)rx_.publish();
  }
  /// Takes what came; the bytes of all slots.
  std::uint64_t take() noexcept {
    std::uint64_t bytes = 0;
    rx_.take(ring_slots, [&](const rx_wire::response& r) {
      bytes += r.status() > 0 ? static_cast<std::uint64_t>(r.status()) : 0;
    });
    return bytes;
  }

  platform::emulated_host host = platform::emulated_host::create();

 private:
  platform::emulated_guest guest_;

 public:
  std::byte* const tx_page;
  std::byte* const rx_page;
  const platform::grant_reference tx_reference;
  const platform::grant_reference rx_reference;
  std::array<platform::grant_reference, ring_slots> references{};

 private:
  pvring::ring::front_ring<pvring::protocol::netif::tx_wire> tx_;
  pvring::ring::front_ring<rx_wire> rx_;
  std::byte* pages_;
  std::uint32_t put_ = 0;
};

/// Anything that delivers bursts.
class subject {
 public:
  subject() = default;
  subject(const subject&) = delete;
  subject& operator=(const subject&) = delete;
  virtual ~subject() = default;
  virtual void deliver(std::size_t burst, std::size_t length) noexcept = 0;

  /// Nanoseconds of the backend's side per packet.
  double round(std::size_t burst, std::size_t length, std::int64_t overhead, result& out) {
    const std::size_t frames = frames_of(burst, length);
    const std::int64_t start = wall_ns();
    for (std::size_t done = 0; done < frames; done += burst) {
      deliver(burst, length);
    }
    const std::int64_t spent = wall_ns() - start - overhead;
    out.check_equal(guest.take(), std::uint64_t{frames} * length, "bytes that reached the guest");
    guest.post();
    return static_cast<double>(spent) / static_cast<double>(frames);
  }

  receiving_guest guest;
};

template <class Strategy>
class queue_subject final : public subject {
 public:
  /// \param mapped percent of the guest's pages that are kept mapped
  queue_subject(bool at_once, unsigned mapped) : passes_(at_once ? 1 : 2) {
    platform::emulated platform(guest.host);
    mapper_.emplace(platform.open_grants(4096));
    events_.emplace(platform.open_events());
    tx_ = mapper_->map(1, {&guest.tx_reference, 1}, platform::access::read_write).pages;
    rx_ = mapper_->map(1, {&guest.rx_reference, 1}, platform::access::read_write).pages;
    net::queue_setup setup{.domain = 1,
                           .tx_ring = {tx_.address, platform::page_size},
                           .rx_ring = {rx_.address, platform::page_size}};
    setup.receive.receives.offloads = {true, true, true, true, true};
    setup.receive.delivery.when = at_once ? net::delivery::at_once : net::delivery::deferred;
    queue_.emplace(setup, net::packet_grants(1), device_, *mapper_, *events_, *events_, port_);
    if constexpr (requires { queue_->strategy().table(); }) {
      std::vector<grant::mapped_entry> entries;
      for (std::size_t i = 0; i < ring_slots; ++i) {
        if (i * 37 % 100 < mapped) {
          entries.push_back({.reference = guest.references[i]});
        }
      }
      (void)queue_->strategy().table().add(entries);
    }
  }
  ~queue_subject() override {
    queue_->stop();
    (void)queue_->service(1);
    queue_->clear();
    queue_.reset();
    (void)mapper_->unmap(tx_);
    (void)mapper_->unmap(rx_);
  }

  void deliver(std::size_t burst, std::size_t length) noexcept override {
    port_.refill(burst, length);
    for (int i = 0; i < passes_; ++i) {
      (void)queue_->service(ring_slots);
    }
  }
  [[nodiscard]] std::uint64_t calls() const noexcept {
    return queue_->mover_counters().calls.get();
  }

 private:
  int passes_;
  std::optional<platform::emulated_grants> mapper_;
  std::optional<platform::emulated_events> events_;
  platform::mapping tx_;
  platform::mapping rx_;
  burst_port port_;
  net::shared_state device_;
  std::optional<net::queue<platform::emulated_grants, platform::emulated_events, Strategy,
                           burst_port, pvring::observe::none::recorder>>
      queue_;
};

/// The bare ring: a frame is received, its bytes are moved, its slots are answered. Nothing is
/// checked and nothing can fail.
class floor_subject final : public subject {
 public:
  explicit floor_subject(bool mapped) : mapped_(mapped), buffer_(32 * net::max_frame_bytes) {
    platform::emulated platform(guest.host);
    mapper_.emplace(platform.open_grants(4096));
    page_ = mapper_->map(1, {&guest.rx_reference, 1}, platform::access::read_write).pages;
    ring_.emplace(std::span(page_.address, platform::page_size));
    if (mapped) {
      for (std::size_t i = 0; i < ring_slots; ++i) {
        pages_[i] = mapper_->map(1, {&guest.references[i], 1}, platform::access::read_write).pages;
      }
    }
    operations_.reserve(2 * ring_slots);
  }
  ~floor_subject() override {
    (void)mapper_->unmap(page_);
    for (const platform::mapping& page : pages_) {
      if (page) {
        (void)mapper_->unmap(page);
      }
    }
  }

  void deliver(std::size_t burst, std::size_t length) noexcept override {
    port_.refill(burst, length);
    net::packet_info info;
    std::size_t base = 0;
    for (std::size_t i = 0; i < burst; ++i) {
      std::byte* const from = buffer_.data() + base;
      (void)port_.receive({from, net::max_frame_bytes}, info);
      std::size_t done = 0;
      ring_->take(slots_of(length), [&](pvring::ring::taken<rx_wire>& taken) {
        rx_wire::request request;
        taken.fetch(request);
        const std::size_t some = std::min<std::size_t>(length - done, platform::page_size);
        move(from + done, request, some);
        ring_->respond(taken.owe(rx_wire::echo_of(request))
                           .settle({.status = static_cast<std::int16_t>(some)}));
        done += some;
      });
      base += (length + platform::page_size - 1) / platform::page_size * platform::page_size;
    }
    if (!operations_.empty()) {
      (void)mapper_->copy(1, platform::direction::to_peer, operations_);
      operations_.clear();
    }
    (void)ring_->publish();
  }

 private:
  void move(std::byte* from, const rx_wire::request& to, std::size_t length) noexcept {
    if (mapped_) {
      std::memcpy(pages_[to.id].address, from, length);
    } else {
      operations_.push_back({.local = from,
                             .reference = to.gref,
                             .offset = 0,
                             .length = static_cast<std::uint16_t>(length)});
    }
  }

  bool mapped_;
  std::vector<std::byte> buffer_;
  std::optional<platform::emulated_grants> mapper_;
  platform::mapping page_;
  std::array<platform::mapping, ring_slots> pages_{};
  std::optional<pvring::ring::back_ring<rx_wire>> ring_;
  std::vector<platform::copy_operation> operations_;
  burst_port port_;
};

struct candidate {
  std::string name;
  std::unique_ptr<subject> what;
};

using copying = queue_subject<grant::batched_copy>;
using keeping = queue_subject<grant::mapped_first<>>;

/// Medians of nanoseconds per packet, of all candidates in turns. NaN where the ring has no room.
std::vector<std::vector<double>> values_of(std::vector<candidate>& all, std::size_t burst,
                                           std::size_t length, const settings& how, result& out) {
  const std::int64_t overhead = wall_overhead_ns();
  const std::size_t rounds = how.smoke ? 3 : 40;
  std::vector<std::vector<double>> values(all.size());
  for (std::size_t repetition = 0; repetition < how.repetitions; ++repetition) {
    const auto some = interleave(all.size(), rounds, [&](std::size_t which) {
      return all[which].what->round(burst, length, overhead, out);
    });
    for (std::size_t i = 0; i < all.size(); ++i) {
      values[i].push_back(median(some[i]));
    }
  }
  return values;
}

std::string number(double value) {
  char text[32];
  (void)std::snprintf(text, sizeof text, value < 1000 ? "%.0f" : "%.3g", value);
  return text;
}

void measure_matrix(std::vector<candidate>& all, const settings& how, result& out) {
  table of{"ns per packet; bursts of 32 super-frames find no room in a ring", {"", "burst"}, {}};
  for (const std::size_t length : sizes) {
    of.columns.push_back(std::to_string(length) + " B");
  }
  chart lines{.name = "t7-burst",
              .title = "T7: guest receive, 64 B, backend side (emulated: order, not size)",
              .x_label = "packets per burst",
              .y_label = "ns per packet",
              .style = chart::kind::lines,
              .log_x = true};
  std::vector<std::vector<std::string>> rows(all.size() * bursts.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    lines.plots.push_back({all[i].name, {}, {}, {}});
    for (std::size_t b = 0; b < bursts.size(); ++b) {
      rows[i * bursts.size() + b] = {all[i].name, std::to_string(bursts[b])};
    }
  }
  for (const std::size_t length : sizes) {
    for (std::size_t b = 0; b < bursts.size(); ++b) {
      if (frames_of(bursts[b], length) == 0) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          rows[i * bursts.size() + b].emplace_back("-");
        }
        continue;
      }
      const auto values = values_of(all, bursts[b], length, how, out);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const summary middle = summarize(values[i]);
        rows[i * bursts.size() + b].push_back(number(middle.middle));
        out.keep(all[i].name + ", burst " + std::to_string(bursts[b]) + ", " +
                     std::to_string(length) + " B",
                 "ns per packet", values[i]);
        if (length == sizes[0]) {
          lines.plots[i].x.push_back(static_cast<double>(bursts[b]));
          lines.plots[i].y.push_back(middle.middle);
        }
      }
      if (length == sizes[0] && bursts[b] == 1) {
        out.at_most("64 B, burst 1: persistent inline / its floor",
                    summarize(ratios(values[2], values[4])), 1.5);
        out.report("64 B, burst 1: copy deferred / persistent deferred (published 0.87)",
                   summarize(ratios(values[1], values[3])));
        out.report("64 B, burst 1: copy deferred / persistent inline (published 1.42)",
                   summarize(ratios(values[1], values[2])));
        out.report("64 B, burst 1: copy deferred / copy inline",
                   summarize(ratios(values[1], values[0])));
      }
      if (length == sizes[0] && bursts[b] == 2) {
        out.report("64 B, burst 2: copy deferred / persistent inline (published 2.17)",
                   summarize(ratios(values[1], values[2])));
        out.report("64 B, burst 2: copy deferred / persistent deferred (published 1.25)",
                   summarize(ratios(values[1], values[3])));
      }
      if (length == sizes[0] && bursts[b] == 32) {
        out.at_most("64 B, burst 32: copy deferred / its floor",
                    summarize(ratios(values[1], values[5])), 1.3);
        out.report("64 B, burst 32: persistent inline / its floor",
                   summarize(ratios(values[2], values[4])));
      }
    }
  }
  of.rows = std::move(rows);
  out.tables.push_back(std::move(of));
  out.charts.push_back(std::move(lines));
}

// Where keeping pages mapped stops to pay: a packet of several slots needs all of them.
void measure_rates(const settings& how, result& out) {
  table of{"ns per packet by how many of the guest's pages are mapped, inline", {"mapped"}, {}};
  chart lines{.name = "t7-hit-rate",
              .title = "T7: guest receive by hit rate, inline (emulated: order, not size)",
              .x_label = "percent of pages that are kept mapped",
              .y_label = "ns per packet",
              .style = chart::kind::lines};
  std::vector<candidate> all;
  for (const unsigned rate : rates) {
    all.push_back({std::to_string(rate) + " %", std::make_unique<keeping>(true, rate)});
  }
  all.push_back({"copy", std::make_unique<copying>(true, 0)});
  std::vector<std::vector<std::string>> rows(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    rows[i] = {all[i].name};
  }
  for (const std::size_t length : {sizes[0], sizes[2]}) {
    for (const std::size_t burst : {bursts[0], bursts[3]}) {
      of.columns.push_back(std::to_string(length) + " B, burst " + std::to_string(burst));
      const auto values = values_of(all, burst, length, how, out);
      plot line{of.columns.back(), {}, {}, {}};
      for (std::size_t i = 0; i < all.size(); ++i) {
        rows[i].push_back(number(summarize(values[i]).middle));
        if (i < rates.size()) {
          line.x.push_back(rates[i]);
          line.y.push_back(summarize(values[i]).middle);
        }
      }
      lines.plots.push_back(std::move(line));
    }
  }
  of.rows = std::move(rows);
  out.tables.push_back(std::move(of));
  out.charts.push_back(std::move(lines));
}

}  // namespace

result measure_net_receive(const settings& how) {
  result out("T7", "guest receive, backend side per packet", !how.smoke);
  out.method =
      "A guest that polls posts 256 pages; bursts of frames come from a port that copies them from "
      "memory, and the passes that it takes are timed: one where delivery is inline, two where it "
      "is deferred. A round fills the ring, candidates take turns, a repetition's value is its "
      "median round of 40. Floors do the same with the bare ring: one memcpy per packet, or one "
      "copy call per burst. A copy call is a system call here and a hypercall within one on Xen, "
      "so "
      "where it crosses with memcpy is this machine's own. A thread of its own for deferred "
      "packets, whose wake-ups made up most of what was published, is not what is measured: "
      "deferred means the next pass of the same thread.";
  std::vector<candidate> all;
  all.push_back({"copy, inline", std::make_unique<copying>(true, 0)});
  all.push_back({"copy, deferred", std::make_unique<copying>(false, 0)});
  all.push_back({"persistent, inline", std::make_unique<keeping>(true, 100)});
  all.push_back({"persistent, deferred", std::make_unique<keeping>(false, 100)});
  all.push_back({"floor: ring and memcpy", std::make_unique<floor_subject>(true)});
  all.push_back({"floor: ring and a copy call", std::make_unique<floor_subject>(false)});
  measure_matrix(all, how, out);
  measure_rates(how, out);
  return out;
}

}  // namespace bench
