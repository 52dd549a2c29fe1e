// SPDX-License-Identifier: MIT
// A hostile frontend and a careless toolstack, played by the fuzzer: its bytes decide which nodes
// are written, with which values, which state follows which, when ports are kicked and grants end,
// and when the backend gets to look. One thread does everything, so that an input always plays the
// same. What must hold is checked whenever the backend has come to rest; at the end a frontend that
// behaves takes the device over.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "pvring/blk/backend.hpp"
#include "pvring/testing/delayed_engine.hpp"
#include "pvring/testing/queue_ring.hpp"
#include "pvring/testing/strict_frontend.hpp"
#include "pvring/xenbus/toolstack.hpp"
#include "support/fuzz_input.hpp"

namespace {

using namespace pvring;
using protocol::xenbus_state;
using test::fuzz_input;
using test::require;

constexpr domain_id driver_domain = 2;
constexpr domain_id hostile_domain = 3;
constexpr domain_id good_domain = 4;
constexpr std::uint64_t image_bytes = 64 * 512;

// The size changes when the toolstack says so; the bytes behind it stay.
class resizable_image : public testing::delayed_image {
 public:
  using testing::delayed_image::delayed_image;
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  void resize(std::uint64_t bytes) noexcept { size_ = bytes; }

 private:
  std::uint64_t size_ = image_bytes;
};

struct hand_engine {
  using policy_kind = pvring::policy_kind::engine;
  using image = resizable_image;
  using context = testing::scripted_context<resizable_image>;
};

// One strategy, and one that maps, as that leaves more behind when something is forgotten.
struct config : default_config {
  using grants = grant::first_usable<grant::map_each>;
  using engine = hand_engine;
};
using disk_type = blk::backend<config>;

blk::options served_here() {
  return {.max_queues = 2,
          .max_ring_page_order = 2,
          .max_indirect_segments = 32,
          .mapped_pages = 64,
          .threads = blk::threads::caller};
}

void fill_image(resizable_image& image) {
  std::uint32_t at = 0;
  for (std::byte& b : image.bytes()) {
    b = static_cast<std::byte>(at / 512 * 7 + at);
    ++at;
  }
}

void process(disk_type& disk) {
  try {
    (void)disk.process();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "process() threw: %s\n", e.what());
    require(false, "process() does not throw");
  }
  switch (disk.state()) {
    case xenbus_state::initialising:
    case xenbus_state::init_wait:
    case xenbus_state::connected:
    case xenbus_state::closing:
    case xenbus_state::closed:
      return;
    default:
      require(false, "the state is one of a backend's");
  }
}

// Until there is nothing to do for it; that has to happen soon when nobody else does anything.
void settle(disk_type& disk) {
  for (int round = 0; round < 100; ++round) {
    process(disk);
    bool rests = true;
    for (const auto& queue : disk.queues()) {
      rests = queue->turn() && rests;
    }
    pollfd ready{.fd = disk.fd(), .events = POLLIN, .revents = 0};
    if (rests && ::poll(&ready, 1, 0) == 0) {
      return;
    }
  }
  require(false, "the backend comes to rest");
}

// What lives as long as the process: the host, and a device that must not notice anything.
class world {
 public:
  world() {
    log::set_sink([](log::level, std::string_view) noexcept {});
    fill_image(image_);
    xenbus::create_device(toolstack_, xenbus::describe_vbd(identity_, {}));
    disk_.emplace(dom0_, blk::identity{.domain = good_domain, .device = blk::xvd('a')}, image_,
                  served_here());
    front_.emplace(host_, identity_);
    for (int round = 0; round < 10 && !front_->connected(); ++round) {
      settle(*disk_);
      front_->process();
    }
    require(front_->connected(), "the good device connects");
    settle(*disk_);
  }

  void good_device_works() {
    const std::uint64_t sector = ++reads_ % (image_bytes / 512 - 8);
    testing::strict_queue& queue = front_->queue(0);
    require(queue.submit({.sector = sector, .segments = segments_}).has_value(),
            "the good device takes a request");
    queue.publish();
    bool right = false;
    settle(*disk_);
    queue.poll([&](const testing::block_completion& end) {
      right = end.okay();
      end.for_each_part([&](std::size_t offset, std::span<const std::byte> bytes) {
        right = right && std::equal(bytes.begin(), bytes.end(),
                                    image_.bytes().begin() +
                                        static_cast<std::ptrdiff_t>(sector * 512 + offset));
      });
    });
    queue.acknowledge();
    require(right, "the good device reads what is there");
    require(!front_->disabled(), "the good device's backend keeps the rules");
  }

  // Handles of backends, guests and toolstacks.
  [[nodiscard]] std::size_t open_handles() const {
    const auto& state = *host_.state();
    std::size_t open = 0;
    for (std::uint32_t i = 0; i < state.options().grant_handles; ++i) {
      open += state.grants(i).owner.in_use;
    }
    for (std::uint32_t i = 0; i < state.options().event_handles; ++i) {
      open += state.events(i).owner.in_use;
    }
    for (std::uint32_t i = 0; i < state.options().store_connections; ++i) {
      open += state.connection(i).owner.in_use;
    }
    return open;
  }

  [[nodiscard]] platform::emulated_host& host() { return host_; }
  [[nodiscard]] platform::emulated_store& toolstack() { return toolstack_; }

 private:
  platform::emulated_host host_ = platform::emulated_host::create({.domains = 6,
                                                                   .pages_per_domain = 128,
                                                                   .grants_per_domain = 128,
                                                                   .grant_handles = 12,
                                                                   .event_handles = 16,
                                                                   .store_connections = 12,
                                                                   .store_nodes = 1024,
                                                                   .store_quota = 200});
  platform::emulated_guest driver_ = host_.create_domain(driver_domain);
  platform::emulated_guest guest_ = host_.create_domain(good_domain);
  platform::emulated dom0_{host_};
  platform::emulated_store toolstack_ = dom0_.open_store();
  xenbus::device_identity identity_{
      .frontend_domain = good_domain, .type = "vbd", .device = blk::xvd('a')};
  resizable_image image_{image_bytes};
  std::optional<disk_type> disk_;
  std::optional<testing::strict_frontend> front_;
  const std::vector<testing::block_segment> segments_ = testing::segments_for(8);
  std::uint64_t reads_ = 0;
};

// The hostile guest: its memory, ports and nodes, and the layout that it last claimed to have. What
// the platform refuses it is its own misfortune.
class puppet {
 public:
  static constexpr std::size_t rings = 2;
  static constexpr std::size_t pages_per_ring = 4;
  static constexpr std::size_t ring_pages = rings * pages_per_ring;
  static constexpr std::size_t data_pages = 4;

  puppet(const platform::emulated_host& host, const xenbus::device_path& path)
      : guest_(host.domain(hostile_domain)),
        store_(guest_.open_store()),
        events_(guest_.open_events()),
        path_(path),
        memory_(guest_.allocate_pages(ring_pages + data_pages)) {
    for (std::size_t page = 0; page < grants_.size(); ++page) {
      // One that may only be read, and one that belongs to somebody else.
      grants_[page] = guest_.grant(
          page == ring_pages + 3 ? good_domain : backend(), memory_ + page * platform::page_size,
          page == ring_pages + 2 ? platform::access::read_only : platform::access::read_write);
    }
    for (platform::port& port : ports_) {
      port = events_.alloc_unbound(backend());
      events_.unmask(port);
    }
    reset_rings();
  }

  template <class Body>
  void attempt(Body&& body) {
    try {
      std::forward<Body>(body)();
    } catch (const std::system_error&) {
      // refused
    }
  }

  void write(std::string_view name, std::string_view value) {
    attempt([&] { store_.write(xenbus::join(path_.frontend(), name), value); });
  }
  void remove(std::string_view name) {
    attempt([&] { store_.remove(xenbus::join(path_.frontend(), name)); });
  }
  void remove_all() {
    attempt([&] { store_.remove(path_.frontend()); });
  }
  void go(xenbus_state to) { write("state", std::string(1, protocol::to_digit(to))); }

  void set_permissions(std::string_view name, bool readable) {
    attempt([&] {
      store_.set_permissions(
          name.empty() ? path_.frontend() : xenbus::join(path_.frontend(), name),
          {hostile_domain, readable ? std::optional<domain_id>(backend()) : std::nullopt});
    });
  }

  // All that a connection needs, in one of the layouts there are.
  void write_good_nodes(fuzz_input& input) {
    const std::uint8_t how = input.byte();
    is_32_ = (how & 1U) != 0;
    order_ = how / 2U % 3U;
    const std::size_t queues = (how & 8U) != 0 ? 2 : 1;
    for (const std::string_view name :
         {"ring-page-order", "num-ring-pages", "multi-queue-num-queues", "ring-ref0"}) {
      remove(name);
    }
    reset_rings();
    write("protocol", is_32_ ? "x86_32-abi" : "x86_64-abi");
    if (order_ != 0 || (how & 16U) != 0) {
      write("ring-page-order", std::to_string(order_));
    }
    if (queues != 1) {
      write("multi-queue-num-queues", std::to_string(queues));
    }
    for (std::size_t queue = 0; queue < queues; ++queue) {
      const std::string below = queues == 1 ? "" : "queue-" + std::to_string(queue) + '/';
      write(below + "event-channel", std::to_string(ports_[queue]));
      if (order_ == 0) {
        write(below + "ring-ref", std::to_string(grants_[queue * pages_per_ring]));
      }
      for (std::size_t page = 0; order_ != 0 && page < std::size_t{1} << order_; ++page) {
        write(below + "ring-ref" + std::to_string(page),
              std::to_string(grants_[queue * pages_per_ring + page]));
      }
    }
  }

  void kick(std::size_t queue) { events_.notify(ports_[queue % rings]); }

  // A request that makes some sense, and its publication.
  void request(fuzz_input& input) {
    const std::size_t queue = input.pick(rings);
    protocol::blkif::request out{};
    out.operation = static_cast<std::uint8_t>(input.pick(8));
    out.id = input.byte();
    out.sector_number = untrusted<std::uint64_t>(input.byte());
    out.nr_sectors = untrusted<std::uint64_t>(input.byte());
    out.indirect_operation = static_cast<std::uint8_t>(input.pick(3));
    const std::uint8_t shape = input.byte();
    out.nr_segments = untrusted(static_cast<std::uint16_t>(shape % 13));
    for (auto& segment : out.direct) {
      segment = {grants_[ring_pages + shape / 16 % data_pages], 0, 7, {}};
    }
    out.indirect_grefs[0] = grants_[ring_pages + shape / 64];
    if (is_32_) {
      put<protocol::blkif::abi::x86_32>(queue, out);
    } else {
      put<protocol::blkif::abi::x86_64>(queue, out);
    }
    kick(queue);
  }

  void scribble(fuzz_input& input) {
    const std::size_t at = input.word() % (ring_pages * platform::page_size);
    input.fill(memory_ + at,
               std::min<std::size_t>(input.pick(32), ring_pages * platform::page_size - at));
  }
  void set_producer(fuzz_input& input) {
    const std::size_t queue = input.pick(rings);
    const std::uint8_t ahead = input.byte();
    producer(queue).store(ahead == 0xff ? input.word() : produced_[queue] + ahead,
                          std::memory_order_seq_cst);
  }
  void reset_rings() {
    for (std::size_t queue = 0; queue < rings; ++queue) {
      std::byte* const ring = memory_ + queue * pages_per_ring * platform::page_size;
      std::fill_n(ring, platform::page_size, std::byte{0});
      index(ring + offsetof(indices, req_event)).store(1, std::memory_order_seq_cst);
      index(ring + offsetof(indices, rsp_event)).store(1, std::memory_order_seq_cst);
      produced_[queue] = 0;
    }
  }

  void grant_again(fuzz_input& input) {
    const std::size_t page = input.pick(grants_.size());
    const std::uint8_t how = input.byte();
    if (guest_.end_grant(grants_[page])) {
      attempt([&] {
        grants_[page] = guest_.grant(
            how % 4 == 3 ? good_domain : backend(), memory_ + page * platform::page_size,
            how % 4 == 2 ? platform::access::read_only : platform::access::read_write);
      });
    }
  }
  void open_port_again(fuzz_input& input) {
    platform::port& port = ports_[input.pick(rings)];
    const std::uint8_t how = input.byte();
    attempt([&] {
      events_.unbind(port);
      port = events_.alloc_unbound(how % 4 == 3 ? good_domain : backend());
      events_.unmask(port);
    });
  }
  void acknowledge() {
    while (const auto fired = events_.pending()) {
      events_.unmask(*fired);
    }
  }

  [[nodiscard]] bool is_anything_mapped() const {
    return std::any_of(grants_.begin(), grants_.end(),
                       [&](platform::grant_reference g) { return guest_.is_mapped(g); });
  }
  [[nodiscard]] bool is_anything_bound() const {
    return std::any_of(ports_.begin(), ports_.end(),
                       [&](platform::port p) { return events_.is_bound(p); });
  }
  [[nodiscard]] std::span<const platform::grant_reference> grants() const { return grants_; }
  [[nodiscard]] std::span<const platform::port> ports() const { return ports_; }
  [[nodiscard]] platform::emulated_guest& guest() { return guest_; }

 private:
  using indices = protocol::ring_indices<>;

  [[nodiscard]] domain_id backend() const { return path_.identity().backend_domain; }
  static ring::shared_index<std::uint32_t> index(std::byte* at) {
    return ring::shared_index<std::uint32_t>(at);
  }
  [[nodiscard]] ring::shared_index<std::uint32_t> producer(std::size_t queue) const {
    return index(memory_ + queue * pages_per_ring * platform::page_size +
                 offsetof(indices, req_prod));
  }

  template <protocol::blkif::abi Abi>
  void put(std::size_t queue, const protocol::blkif::request& request) {
    using wire = protocol::blkif::wire<Abi>;
    std::byte* const ring = memory_ + queue * pages_per_ring * platform::page_size;
    const std::size_t slots = protocol::ring_slots(platform::page_size << order_, wire::slot_bytes);
    wire::store_request(ring::slot_sink(ring + protocol::ring_header_bytes +
                                        (produced_[queue] & (slots - 1)) * wire::slot_bytes),
                        request);
    producer(queue).store(++produced_[queue], std::memory_order_seq_cst);
  }

  platform::emulated_guest guest_;
  platform::emulated_store store_;
  platform::emulated_events events_;
  xenbus::device_path path_;
  std::byte* memory_;
  std::array<platform::grant_reference, ring_pages + data_pages> grants_{};
  std::array<platform::port, rings> ports_{};
  std::array<std::uint32_t, rings> produced_{};
  bool is_32_ = false;
  std::size_t order_ = 0;
};

constexpr std::string_view frontend_names[] = {"state",
                                               "ring-ref",
                                               "ring-ref0",
                                               "ring-ref1",
                                               "ring-ref2",
                                               "ring-ref3",
                                               "ring-page-order",
                                               "num-ring-pages",
                                               "event-channel",
                                               "protocol",
                                               "feature-persistent",
                                               "multi-queue-num-queues",
                                               "queue-0/ring-ref",
                                               "queue-0/ring-ref0",
                                               "queue-0/ring-ref1",
                                               "queue-0/event-channel",
                                               "queue-1/ring-ref",
                                               "queue-1/ring-ref0",
                                               "queue-1/ring-ref1",
                                               "queue-1/event-channel",
                                               "queue-0",
                                               "queue-1",
                                               "backend",
                                               "backend-id",
                                               "virtual-device",
                                               "state/below",
                                               "protocol/state"};
constexpr std::string_view backend_names[] = {"frontend",
                                              "frontend-id",
                                              "mode",
                                              "params",
                                              "sectors",
                                              "sector-size",
                                              "info",
                                              "max-ring-page-order",
                                              "multi-queue-max-queues",
                                              "feature-max-indirect-segments",
                                              "feature-flush-cache",
                                              "hotplug-error",
                                              "hotplug-status",
                                              "resize"};
constexpr std::string_view values[] = {"",
                                       "0",
                                       "1",
                                       "2",
                                       "3",
                                       "4",
                                       "5",
                                       "6",
                                       "7",
                                       "8",
                                       "9",
                                       "-1",
                                       " 1",
                                       "1 ",
                                       "01",
                                       "+1",
                                       "0x1",
                                       "1.0",
                                       "10",
                                       "16",
                                       "4096",
                                       "65536",
                                       "2147483648",
                                       "4294967295",
                                       "4294967296",
                                       "18446744073709551615",
                                       "18446744073709551616",
                                       "999999999999999999999999999999",
                                       "x86_32-abi",
                                       "x86_64-abi",
                                       "arm-abi",
                                       "sparc-abi",
                                       "/local/domain/0/backend/vbd/4/51712",
                                       "../../..",
                                       "\xff\xfe\n\t%s%n"};

// One input: a device, everything that is done to it, and its recovery.
class play {
 public:
  play(world& w, fuzz_input& input)
      : world_(w),
        input_(input),
        how_(input.byte()),
        path_({.backend_domain = (how_ & 1U) != 0 ? driver_domain : domain_id{0},
               .frontend_domain = hostile_domain,
               .type = "vbd",
               .device = blk::xvd('b')}),
        image_(image_bytes, {.script = {.by_hand = (how_ & 2U) != 0, .watch = &in_flight_}}),
        platform_(w.host(), path_.identity().backend_domain) {
    fill_image(image_);
    platform_.set_faults(&faults_);
    platform_.set_in_flight(&in_flight_);
    (void)world_.host().create_domain(hostile_domain);
    plug_in();
    puppet_.emplace(world_.host(), path_);
    start();
  }

  void run() {
    // An input that has ended would go on with zeroes.
    for (int step = 0; step < 300 && !input_.ended(); ++step) {
      act();
    }
    rest();
    recover();
  }

 private:
  void act() {
    switch (input_.pick(32)) {
      case 0:
      case 1:
      case 2: {
        const std::string name = pick_name();
        puppet_->write(name, pick_value());
        break;
      }
      case 3:
        puppet_->remove(pick_name());
        break;
      case 4:
      case 5:
        puppet_->go(static_cast<xenbus_state>(input_.pick(9)));
        break;
      case 6:
        puppet_->write_good_nodes(input_);
        break;
      case 7:
        puppet_->kick(input_.byte());
        puppet_->acknowledge();
        break;
      case 8:
        puppet_->request(input_);
        break;
      case 9:
        puppet_->scribble(input_);
        break;
      case 10:
        puppet_->set_producer(input_);
        break;
      case 11:
        process(*disk_);
        break;
      case 12:
        if (!disk_->queues().empty()) {
          (void)disk_->queues()[input_.pick(disk_->queues().size())]->turn();
        }
        break;
      case 13:
        puppet_->write_good_nodes(input_);
        puppet_->go(xenbus_state::initialised);
        rest();
        puppet_->go(xenbus_state::connected);
        rest();
        break;
      case 14:
        toolstack([&](auto& store, const std::string& home) {
          store.write(home + "/online", pick_value());
        });
        break;
      case 15:
        meddled_ = true;
        toolstack([&](auto& store, const std::string& home) {
          store.write(home + "/state", pick_value());
        });
        break;
      case 16:
        meddled_ = true;
        xenbus::request_unplug(world_.toolstack(), path_);
        break;
      case 17:
        remove_directories();
        break;
      case 18:
        plug_in_again();
        break;
      case 19:
        image_.resize(
            std::min(input_.pick(5) * (image_bytes / 4) + input_.pick(2) * 511, image_bytes));
        resize();
        break;
      case 20:
        puppet_->set_permissions(pick_name(), input_.byte() % 2 == 0);
        break;
      case 21:
        puppet_->grant_again(input_);
        break;
      case 22:
        puppet_->open_port_again(input_);
        break;
      case 23:
        image_.release(input_.pick(8));
        break;
      case 24:
        break_platform();
        break;
      case 25:
        restart();
        break;
      case 26:
        vanish();
        break;
      case 27:
        toolstack([&](auto& store, const std::string& home) {
          const std::string node =
              home + '/' + std::string(backend_names[input_.pick(std::size(backend_names))]);
          if (input_.byte() % 4 == 0) {
            store.remove(node);
          } else {
            store.write(node, pick_value());
          }
        });
        break;
      case 28:
        puppet_->remove_all();
        break;
      default:
        rest();
        break;
    }
  }

  // ---- what is picked

  std::string pick_name() {
    const std::size_t which = input_.pick(std::size(frontend_names) + 1);
    return which < std::size(frontend_names) ? std::string(frontend_names[which]) : input_.text(12);
  }
  std::string pick_value() {
    const std::uint8_t which = input_.byte();
    if (which < 128) {
      return std::string(values[which % std::size(values)]);
    }
    if (which < 176) {
      return std::to_string(puppet_->grants()[which % puppet_->grants().size()]);
    }
    if (which < 192) {
      return std::to_string(puppet_->ports()[which % puppet_->ports().size()]);
    }
    if (which < 200) {
      return std::string(std::size_t{1} << (which % 13), static_cast<char>('0' + which % 10));
    }
    if (which < 208) {
      return std::to_string(input_.word());
    }
    return input_.text(24);
  }

  // ---- what happens around the frontend

  template <class Body>
  void toolstack(Body&& body) {
    try {
      body(world_.toolstack(), path_.backend());
    } catch (const std::system_error&) {
      // a value that the store refuses
    }
  }

  void plug_in() {
    xenbus::create_device(world_.toolstack(), xenbus::describe_vbd(path_.identity(), {}));
    meddled_ = false;
  }

  void remove_directories() {
    const std::size_t which = input_.pick(3);
    if (which != 0) {
      world_.toolstack().remove(path_.backend());
      meddled_ = true;
    }
    if (which != 1) {
      world_.toolstack().remove(path_.frontend());
    }
  }

  // The backend of a device that was made anew is another one, which has to see an empty directory
  // first.
  void plug_in_again() {
    end_backend();
    forget_error();
    plug_in();
    start();
  }

  void resize() {
    try {
      (void)disk_->resize();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "resize() threw: %s\n", e.what());
      require(false, "resize() does not throw");
    }
  }

  void break_platform() {
    const std::uint8_t what = input_.byte();
    constexpr int errors[] = {EINVAL, EAGAIN, ENOMEM, EACCES};
    switch (what % 4) {
      case 0:
        faults_.fail_map(1 + what / 4 % 16, errors[what / 64]);
        break;
      case 1:
        faults_.fail_bind(1 + what / 4 % 4, errors[what / 64]);
        break;
      case 2:
        faults_.busy(1 + what / 4 % 4);
        break;
      default:
        faults_.conflict(what);
        break;
    }
  }

  void vanish() {
    puppet_->guest().vanish();
    if (input_.byte() % 2 == 0) {
      rest();
    }
    puppet_.reset();
    end_backend();
    (void)world_.host().create_domain(hostile_domain);
    forget_error();
    plug_in();
    puppet_.emplace(world_.host(), path_);
    start();
  }

  // ---- the backend

  void start() {
    try {
      disk_.emplace(platform_,
                    blk::identity{.domain = hostile_domain,
                                  .device = path_.identity().device,
                                  .backend_domain = path_.identity().backend_domain},
                    image_, served_here());
    } catch (const std::exception& e) {
      std::fprintf(stderr, "the backend's constructor threw: %s\n", e.what());
      require(false, "a backend starts");
    }
    // A Closing that an earlier backend left behind looks like the toolstack's.
    meddled_ = meddled_ || stored_state() == "5";
  }

  // With or without ceremony.
  void end_backend() {
    image_.release(1000);
    if (input_.byte() % 2 == 0) {
      disk_->stop();
      rest();
      require(disk_->finished(), "a backend that was told to stop has finished");
    }
    disk_.reset();
    require(in_flight_.in_flight() == 0, "no I/O goes on without its backend");
    check_nothing_is_held();
  }
  void restart() {
    end_backend();
    start();
  }

  // ---- what must hold

  std::optional<std::string> stored_state() {
    return world_.toolstack().read(path_.backend() + "/state");
  }
  std::string stored_error() { return world_.toolstack().read(path_.backend_error()).value_or(""); }
  void forget_error() { world_.toolstack().remove(path_.backend_error()); }

  void check_nothing_is_held() {
    require(in_flight_.violations() == 0, "nothing is unmapped while it is in flight");
    require(world_.host().leaked_pages() == 0, "no mapping outlives its handle");
    if (puppet_) {
      require(!puppet_->is_anything_mapped(), "nothing is mapped without a connection");
      require(!puppet_->is_anything_bound(), "no port is bound without a connection");
    }
  }

  void rest() {
    settle(*disk_);
    if (disk_->queues().empty()) {
      check_nothing_is_held();
    }
    require(disk_->connected() ? !disk_->queues().empty() : true, "who is connected has queues");
    const std::optional<std::string> stored = stored_state();
    if (meddled_ || !stored) {
      return;
    }
    require(*stored == std::string(1, protocol::to_digit(disk_->state())),
            "the store says the backend's state");
    const auto online = xenbus::parse_unsigned<std::uint32_t>(
        world_.toolstack().read(path_.backend() + "/online").value_or(""));
    // A frontend that wants to be connected and finds Closing was refused; unless the last
    // connection's I/O is still in flight.
    if (disk_->state() == xenbus_state::closing && disk_->queues().empty() &&
        online.value_or(0) != 0 && puppet_ && is_frontend_waiting()) {
      require(!stored_error().empty(), "a device that was closed says why");
    }
  }

  bool is_frontend_waiting() {
    platform::emulated_store eyes = platform_.open_store();
    switch (xenbus::read_state(eyes, path_.frontend())) {
      case xenbus_state::initialising:
      case xenbus_state::initialised:
      case xenbus_state::connected:
        return true;
      default:
        return false;
    }
  }

  // ---- somebody who behaves

  void recover() {
    platform_.set_faults(nullptr);
    faults_.conflict(0);
    image_.release(1000);
    image_.resize(image_bytes);
    resize();
    rest();
    const bool gone = disk_->finished() || meddled_ || !stored_state() ||
                      world_.toolstack().read(path_.backend() + "/online") != "1";
    if (gone) {
      end_backend();
      forget_error();
      plug_in();
      start();
      rest();
    } else {
      come_back();
    }
    require(disk_->state() == xenbus_state::init_wait, "the backend waits for a new frontend");
    connect_and_read();
    require(disk_->state() == xenbus_state::closed, "a device that was closed is Closed");
    end_backend();
    xenbus::force_remove(world_.toolstack(), path_);
    forget_error();
    puppet_.reset();
    world_.host().destroy_domain(hostile_domain);
  }

  // The same device, by the same backend: Closed, clean nodes, Initialising.
  void come_back() {
    puppet_->go(xenbus_state::closed);
    rest();
    require(disk_->state() == xenbus_state::closed, "a backend follows its frontend to Closed");
    for (const std::string& name : world_.toolstack().list(path_.frontend())) {
      if (name != "state") {
        puppet_->remove(name);
      }
    }
    // What the toolstack says of the device is as it was: a mode that means nothing would be
    // refused.
    for (const auto& [name, value] : xenbus::describe_vbd(path_.identity(), {}).backend) {
      world_.toolstack().write(xenbus::join(path_.backend(), name), value);
    }
    puppet_->set_permissions("", true);
    puppet_->set_permissions("state", true);
    puppet_->go(xenbus_state::initialising);
    rest();
  }

  void connect_and_read() {
    const bool is_32 = (how_ & 4U) != 0;
    const std::uint32_t order = how_ / 8U % 3U;
    const domain_id backend = path_.identity().backend_domain;
    platform::emulated_guest& guest = puppet_->guest();
    platform::emulated_events events = guest.open_events();
    const platform::port port = events.alloc_unbound(backend);
    testing::queue_ring ring(guest, backend);
    ring.make(1U << order, is_32 ? protocol::blkif::abi::x86_32 : protocol::blkif::abi::x86_64, 0);
    std::byte* const page = guest.allocate_pages();
    const platform::grant_reference reference =
        guest.grant(backend, page, platform::access::read_write);

    puppet_->write("protocol", is_32 ? "x86_32-abi" : "x86_64-abi");
    puppet_->write("event-channel", std::to_string(port));
    if (order != 0) {
      puppet_->write("ring-page-order", std::to_string(order));
    }
    for (std::size_t i = 0; i < ring.references().size(); ++i) {
      puppet_->write(order == 0 ? "ring-ref" : "ring-ref" + std::to_string(i),
                     std::to_string(ring.references()[i]));
    }
    puppet_->go(xenbus_state::initialised);
    rest();
    if (!disk_->connected()) {
      std::fprintf(stderr, "the store's error: %s\n", stored_error().c_str());
    }
    require(disk_->connected(), "a frontend that behaves is served");
    require(stored_error().empty(), "a device that works has no error");
    puppet_->go(xenbus_state::connected);

    const std::uint64_t sector = how_ % 50U;
    protocol::blkif::request read{};
    read.operation = protocol::blkif::operation::read;
    read.id = 7;
    read.sector_number = untrusted(sector);
    read.nr_segments = untrusted<std::uint16_t>(1);
    read.direct[0] = {reference, 0, 7, {}};
    ring.put(read);
    (void)ring.publish();
    events.notify(port);
    rest();
    std::size_t answers = 0;
    ring.take(8, [&](std::uint64_t id, std::uint8_t operation, std::int16_t status) {
      ++answers;
      require(id == 7 && operation == protocol::blkif::operation::read && status == 0,
              "the read succeeds");
    });
    require(answers == 1, "the read is answered once");
    require(std::equal(page, page + platform::page_size,
                       image_.bytes().begin() + static_cast<std::ptrdiff_t>(sector * 512)),
            "the read brings what is there");
    require(guest.end_grant(reference), "an answered request holds no grant");
    // Before its channel is closed: what is unbound first can be bound by nobody.
    puppet_->go(xenbus_state::closing);
    rest();
    puppet_->go(xenbus_state::closed);
    rest();
    require(ring.free() == 0, "a device that is Closed holds no ring");
    require(!events.is_bound(port), "a device that is Closed holds no port");
  }

  world& world_;
  fuzz_input& input_;
  std::uint8_t how_;
  xenbus::device_path path_;
  platform::fault_plan faults_;
  platform::in_flight_registry in_flight_;
  resizable_image image_;
  platform::emulated platform_;
  std::optional<puppet> puppet_;
  std::optional<disk_type> disk_;
  bool meddled_ = false;  ///< the toolstack did something to the backend's state
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static world the_world;
  const std::size_t before = the_world.open_handles();
  fuzz_input input({data, size});
  {
    play one(the_world, input);
    one.run();
  }
  require(the_world.open_handles() == before, "no handle is left");
  the_world.good_device_works();
  return 0;
}
