// SPDX-License-Identifier: MIT
#include "pvring/net/backend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "net_fixture.hpp"
#include "pvring/grant/mapped_first.hpp"
#include "pvring/net/memory_uplink.hpp"
#include "pvring/net/pair_uplink.hpp"
#include "pvring/protocol/netif_control.hpp"
#include "pvring/ring/front_ring.hpp"
#include "pvring/testing/strict_net_frontend.hpp"
#include "pvring/xenbus/toolstack.hpp"

namespace pvring::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct memory_config : net::default_config {
  using uplink = net::memory_uplink;
};
struct pair_config : net::default_config {
  using uplink = net::pair_uplink;
};
static_assert(net::backend_config<memory_config>);
struct no_uplink : net::default_config {
  using uplink = int;
};
struct grants_for_a_platform : net::default_config {
  using platform = grant::batched_copy;
};
static_assert(!net::backend_config<no_uplink> && !net::backend_config<grants_for_a_platform>);

/// A device of domain 3 on a host of its own, its backend on a thread.
template <class Config>
class served_vif {
 public:
  using uplink_type = typename Config::uplink;

  served_vif(platform::emulated_host& host, domain_id domain, uplink_type& uplink,
             const net::options& wanted = {}, const xenbus::vif_options& nodes = {})
      : platform_(host), guest_(host.create_domain(domain)), toolstack_(platform_.open_store()) {
    identity.frontend_domain = domain;
    path_ = xenbus::create_device(toolstack_, xenbus::describe_vif(identity, nodes));
    backend_.emplace(platform_, net::identity{.domain = domain}, uplink, wanted);
    thread_ = std::thread([this] { backend_->run(); });
  }
  served_vif(const served_vif&) = delete;
  served_vif& operator=(const served_vif&) = delete;
  ~served_vif() { end(); }

  void end() {
    if (thread_.joinable()) {
      backend_->stop();
      thread_.join();
      backend_.reset();
    }
  }
  [[nodiscard]] std::string reason() {
    return toolstack_.read(path_->backend_error()).value_or("");
  }
  void write(const std::string& name, const std::string& value) {
    toolstack_.write(xenbus::join(path_->backend(), name), value);
  }
  [[nodiscard]] net::backend<Config>& backend() { return *backend_; }

  xenbus::device_identity identity{.backend_domain = 0, .frontend_domain = 3, .type = "vif"};

 private:
  platform::emulated platform_;
  platform::emulated_guest guest_;
  platform::emulated_store toolstack_;
  std::optional<xenbus::device_path> path_;
  std::optional<net::backend<Config>> backend_;
  std::thread thread_;
};

/// Serves the frontend's queue until `done()`.
template <class Done, class Received>
bool poll_until(testing::strict_net_queue& queue, Done&& done, Received&& received) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    queue.publish();
    if (queue.poll(received) == 0) {
      queue.wait(20ms);
    }
  }
  return true;
}

bool is_refused(testing::strict_net_frontend& front) {
  return front.process_until(
      [&] { return front.backend_state() == protocol::xenbus_state::closing || front.released(); },
      10s);
}

class NetBackend : public ::testing::Test {
 protected:
  platform::emulated_host host_ = platform::emulated_host::create();
};

TEST_F(NetBackend, connects_and_moves_packets_both_ways_on_every_queue) {
  for (const std::uint32_t queues : {1U, 3U}) {
    for (const bool split : {true, false}) {
      auto host = platform::emulated_host::create();
      net::memory_uplink uplink(4);
      served_vif<memory_config> vif(host, 3, uplink);
      testing::strict_net_options wanted;
      wanted.queues = queues;
      wanted.queue.split_channels = split;
      testing::strict_net_frontend front(host, vif.identity, wanted);
      ASSERT_TRUE(front.connect()) << front.error() << vif.reason();
      EXPECT_EQ(front.queue_count(), queues);
      EXPECT_TRUE(front.sends().gso_tcpv6);
      for (std::uint32_t i = 0; i < queues; ++i) {
        testing::strict_net_queue& queue = front.queue(i);
        queue.post();
        std::size_t sent = 0;
        std::size_t got = 0;
        for (int n = 0; n < 20; ++n) {
          ASSERT_TRUE(queue.send(frame_of(1000)));
          uplink.lane(i).put({frame_of(2000, static_cast<std::uint8_t>(i)), {}, 0});
        }
        EXPECT_TRUE(poll_until(
            queue,
            [&] {
              while (const auto frame = uplink.lane(i).take()) {
                EXPECT_EQ(frame->bytes, frame_of(1000));
                ++sent;
              }
              return sent == 20 && got == 20;
            },
            [&](const testing::received_packet& p) {
              EXPECT_EQ(p.bytes.size(), 2000U);
              ++got;
            }))
            << sent << " sent, " << got << " received";
      }
      EXPECT_TRUE(uplink.agreed().gso_tcpv4);
      EXPECT_TRUE(front.close());
      EXPECT_EQ(front.violations_text(), "");
      vif.end();
      EXPECT_EQ(host.leaked_pages(), 0U);
    }
  }
}

TEST_F(NetBackend, connects_again_and_to_a_frontend_of_another_kind) {
  net::memory_uplink uplink(4);
  served_vif<memory_config> vif(host_, 3, uplink);
  for (int round = 0; round < 5; ++round) {
    testing::strict_net_options wanted;
    wanted.queues = static_cast<std::uint32_t>(1 + round % 3);
    wanted.takes.scatter_gather = round % 2 == 0;
    testing::strict_net_frontend front(host_, vif.identity, wanted);
    if (round != 0) {
      front.reopen();
    }
    ASSERT_TRUE(front.connect()) << front.error() << vif.reason();
    EXPECT_EQ(vif.backend().statistics().size(), wanted.queues);
    EXPECT_TRUE(front.close());
    EXPECT_EQ(front.violations_text(), "");
  }
}

TEST_F(NetBackend, follows_rings_whose_indices_are_anywhere) {
  net::memory_uplink uplink;
  served_vif<memory_config> vif(host_, 3, uplink);
  testing::strict_net_options wanted;
  wanted.queue.tx_start = 0xffffffffU;
  wanted.queue.rx_start = 77;
  testing::strict_net_frontend front(host_, vif.identity, wanted);
  ASSERT_TRUE(front.connect()) << front.error();
  ASSERT_TRUE(front.queue(0).send(frame_of(100)));
  EXPECT_TRUE(poll_until(
      front.queue(0), [&] { return uplink.lane(0).take().has_value(); },
      [](const testing::received_packet&) {}));
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
}

TEST_F(NetBackend, says_what_a_frontend_has_to_do_that_does_not_copy) {
  net::memory_uplink uplink;
  served_vif<memory_config> vif(host_, 3, uplink);
  testing::strict_net_frontend front(host_, vif.identity, {.copies = false});
  EXPECT_TRUE(is_refused(front));
  EXPECT_THAT(vif.reason(), HasSubstr("request-rx-copy"));
  EXPECT_THAT(vif.reason(), HasSubstr("write 1"));
}

TEST_F(NetBackend, names_a_rate_that_is_none_and_follows_one_that_changes) {
  net::memory_uplink uplink;
  {
    served_vif<memory_config> vif(host_, 3, uplink, {}, {.rate = "1000;50"});
    testing::strict_net_frontend front(host_, vif.identity);
    EXPECT_TRUE(is_refused(front));
    EXPECT_THAT(vif.reason(), HasSubstr("rate"));
    EXPECT_THAT(vif.reason(), HasSubstr("1000;50"));
  }
  served_vif<memory_config> vif(host_, 4, uplink, {}, {.rate = "100,1000000"});
  testing::strict_net_frontend front(host_, vif.identity);
  ASSERT_TRUE(front.connect()) << vif.reason();
  testing::strict_net_queue& queue = front.queue(0);
  std::size_t put = 0;
  std::size_t got = 0;
  const auto push = [&] {
    while (put < 400 && queue.send(frame_of(1000))) {
      ++put;
    }
    while (uplink.lane(0).take()) {
      ++got;
    }
    return got;
  };
  const auto ignore = [](const testing::received_packet&) {};
  // What may be saved up goes at once, and then next to nothing.
  EXPECT_TRUE(poll_until(
      queue, [&] { return push() >= 131; }, ignore));
  EXPECT_LE(got, 132U);
  vif.write("rate", "1000000000,1000");
  EXPECT_TRUE(poll_until(
      queue, [&] { return push() == 400; }, ignore))
      << got;
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
}

TEST_F(NetBackend, waits_for_the_hotplug_script_and_holds_up_no_other_device) {
  net::memory_uplink slow_uplink;
  net::memory_uplink uplink;
  served_vif<memory_config> slow(host_, 3, slow_uplink);
  served_vif<memory_config> other(host_, 4, uplink);
  slow.write("hotplug-status", "");
  testing::strict_net_frontend slow_front(host_, slow.identity);
  testing::strict_net_frontend front(host_, other.identity);
  EXPECT_FALSE(slow_front.connect(200ms));
  EXPECT_EQ(slow_front.error(), "");
  EXPECT_EQ(slow_front.backend_state(), protocol::xenbus_state::init_wait);
  ASSERT_TRUE(front.connect()) << front.error() << other.reason();
  slow.write("hotplug-status", "connected");
  ASSERT_TRUE(slow_front.connect()) << slow_front.error() << slow.reason();
  EXPECT_TRUE(slow_front.close());
  EXPECT_TRUE(front.close());
}

struct mapping_config : memory_config {
  using grants = grant::mapped_first<>;
};

/// A guest's end of a control ring, beside a strict frontend that names it.
class guest_control {
 public:
  using wire = protocol::netif::control_wire;

  guest_control(const platform::emulated_host& host, domain_id domain)
      : guest(host.domain(domain)),
        events_(guest.open_events()),
        channel_(events_.alloc_unbound(0)),
        page_(guest.allocate_pages()),
        reference_(guest.grant(0, page_, platform::access::read_write)),
        list(guest.allocate_pages()),
        list_reference(guest.grant(0, list, platform::access::read_write)),
        ring_({page_, platform::page_size}) {}

  [[nodiscard]] net::control_nodes nodes() const { return {reference_, channel_}; }

  wire::response ask(std::uint16_t type, std::uint32_t a = 0, std::uint32_t b = 0,
                     std::uint32_t c = 0) {
    wire::request request;
    request.id = 77;
    request.type = type;
    request.data = {untrusted(a), untrusted(b), untrusted(c)};
    ring_.put(request);
    if (ring_.publish()) {
      events_.notify(channel_);
    }
    wire::response out{0, 0, 999, 0};
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (ring_.take(1, [&](const wire::response& r) { out = r; }) == 0 &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    return out;
  }
  void write_list(const std::vector<platform::grant_reference>& references) {
    std::vector<protocol::netif::grant_entry_layout> entries;
    for (const auto r : references) {
      entries.push_back({r, 0, 9});
    }
    std::memcpy(list, entries.data(), entries.size() * sizeof entries[0]);
  }
  // Producers of requests that nobody put.
  void overrun() {
    std::memset(page_, 0xff, sizeof(std::uint32_t));
    page_[1] = std::byte{0};
    events_.notify(channel_);
  }

  platform::emulated_guest guest;

 private:
  platform::emulated_events events_;
  platform::port channel_;
  std::byte* page_;
  platform::grant_reference reference_;

 public:
  std::byte* list;
  platform::grant_reference list_reference;

 private:
  ring::front_ring<wire> ring_;
};

TEST_F(NetBackend, keeps_pages_mapped_that_the_guest_names_on_the_control_ring) {
  namespace type = protocol::netif::control_type;
  net::memory_uplink uplink(2);
  served_vif<mapping_config> vif(host_, 3, uplink);
  guest_control control(host_, 3);
  testing::strict_net_options wanted;
  wanted.queues = 2;
  wanted.control = control.nodes();
  testing::strict_net_frontend front(host_, vif.identity, wanted);
  ASSERT_TRUE(front.connect()) << front.error() << vif.reason();

  EXPECT_EQ(control.ask(type::get_grant_mapping_size, 1).data, 512U);
  EXPECT_EQ(control.ask(type::get_grant_mapping_size, 2).status, 2U) << "there is no such queue";
  EXPECT_EQ(control.ask(type::set_hash_algorithm, 1).status, 1U) << "nobody steers";

  std::vector<platform::grant_reference> pages;
  for (int i = 0; i < 3; ++i) {
    pages.push_back(
        control.guest.grant(0, control.guest.allocate_pages(), platform::access::read_write));
  }
  control.write_list(pages);
  EXPECT_EQ(control.ask(type::add_grant_mapping, 1, control.list_reference, 3).status, 0U);
  for (const auto page : pages) {
    EXPECT_TRUE(control.guest.is_mapped(page));
  }
  EXPECT_EQ(control.ask(type::add_grant_mapping, 1, control.list_reference, 3).status, 2U)
      << "they are there";
  EXPECT_EQ(control.ask(type::delete_grant_mapping, 0, control.list_reference, 3).data, 0U)
      << "not on this queue";
  EXPECT_EQ(control.ask(type::delete_grant_mapping, 1, control.list_reference, 2).data, 2U);
  EXPECT_TRUE(control.guest.end_grant(pages[0]));
  EXPECT_TRUE(control.guest.end_grant(pages[1]));
  EXPECT_TRUE(control.guest.is_mapped(pages[2]));

  EXPECT_TRUE(front.close());
  EXPECT_FALSE(control.guest.is_mapped(pages[2])) << "nothing stays behind a connection";
  EXPECT_FALSE(control.guest.is_mapped(control.nodes().reference));
  vif.end();
  EXPECT_EQ(host_.leaked_pages(), 0U);
}

TEST_F(NetBackend, closes_the_device_whose_control_ring_breaks) {
  net::memory_uplink uplink;
  served_vif<mapping_config> vif(host_, 3, uplink);
  guest_control control(host_, 3);
  testing::strict_net_options wanted;
  wanted.control = control.nodes();
  testing::strict_net_frontend front(host_, vif.identity, wanted);
  ASSERT_TRUE(front.connect()) << front.error() << vif.reason();
  control.overrun();
  EXPECT_TRUE(is_refused(front));
  EXPECT_THAT(vif.reason(), HasSubstr("overran"));
}

TEST_F(NetBackend, closes_a_device_that_breaks_the_protocol_and_only_that) {
  net::memory_uplink bad_uplink;
  net::memory_uplink good_uplink;
  served_vif<memory_config> bad(host_, 3, bad_uplink);
  served_vif<memory_config> good(host_, 4, good_uplink);
  testing::strict_net_frontend villain(host_, bad.identity);
  testing::strict_net_frontend front(host_, good.identity);
  ASSERT_TRUE(villain.connect());
  ASSERT_TRUE(front.connect());
  // More requests than there are slots.
  const std::uint32_t far = 1000;
  std::memcpy(villain.queue(0).tx_page().data(), &far, sizeof far);
  villain.queue(0).kick();
  EXPECT_TRUE(villain.process_until(
      [&] {
        return villain.backend_state() == protocol::xenbus_state::closing || villain.released();
      },
      10s));
  EXPECT_THAT(bad.reason(), HasSubstr("producer"));
  ASSERT_TRUE(front.queue(0).send(frame_of(100)));
  EXPECT_TRUE(poll_until(
      front.queue(0), [&] { return good_uplink.lane(0).take().has_value(); },
      [](const testing::received_packet&) {}));
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
}

TEST_F(NetBackend, joins_two_guests_with_super_frames_and_many_threads) {
  auto [left, right] = net::pair_uplink::make(2);
  served_vif<pair_config> one(host_, 3, left);
  served_vif<pair_config> two(host_, 4, right);
  testing::strict_net_frontend a(host_, one.identity, {.queues = 2});
  testing::strict_net_frontend b(host_, two.identity, {.queues = 2});
  ASSERT_TRUE(a.connect()) << a.error();
  ASSERT_TRUE(b.connect()) << b.error();
  constexpr std::uint32_t packets = 3000;
  const net::packet_info info{
      .checksum = net::checksum::blank, .gso = net::gso::tcpv4, .gso_size = 1448, .hash = {}};
  for (std::uint32_t q = 0; q < 2; ++q) {
    std::uint32_t sent = 0;
    std::uint32_t got = 0;
    const auto numbered = [](std::uint32_t number) {
      auto frame = frame_of(number % 3 == 0 ? 20'000 : 500);
      std::memcpy(frame.data() + 14, &number, sizeof number);
      return frame;
    };
    const auto end = std::chrono::steady_clock::now() + 20s;
    // Only as many under way as the other side has room for: a network may drop, and this test
    // counts.
    while (got < packets && std::chrono::steady_clock::now() < end) {
      while (sent < packets && sent - got < 8 &&
             a.queue(q).send(numbered(sent), sent % 3 == 0 ? info : net::packet_info{})) {
        ++sent;
      }
      b.queue(q).post();
      b.queue(q).publish();
      a.queue(q).publish();
      (void)a.queue(q).poll();
      const std::size_t some = b.queue(q).poll([&](const testing::received_packet& p) {
        const auto expected = numbered(got);
        EXPECT_TRUE(std::equal(p.bytes.begin(), p.bytes.end(), expected.begin(), expected.end()))
            << got;
        EXPECT_EQ(p.info.gso, got % 3 == 0 ? net::gso::tcpv4 : net::gso::none);
        ++got;
      });
      if (some == 0) {
        b.queue(q).wait(5ms);
      }
    }
    EXPECT_EQ(got, packets);
  }
  EXPECT_TRUE(a.close());
  EXPECT_TRUE(b.close());
  EXPECT_EQ(a.violations_text(), "");
  EXPECT_EQ(b.violations_text(), "");
  one.end();
  two.end();
  EXPECT_EQ(host_.leaked_pages(), 0U);
}

}  // namespace
}  // namespace pvring::test
