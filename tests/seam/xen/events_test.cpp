// SPDX-License-Identifier: MIT
// Event channels: ports are masked from the start, fire once, and never block whoever looks.
#include <cerrno>
#include <optional>
#include <set>

#include "fixture.hpp"

namespace seam {
namespace {

class xen_events_seam : public xen_seam {
 public:
  /// A bound and unmasked port that has fired for the bind.
  port connect(port remote) {
    const port p = events.bind(3, remote);
    events.unmask(p);
    EXPECT_EQ(events.pending(), p);
    events.unmask(p);
    return p;
  }

  xen_events events;
  fake::event_driver& driver = machine().events;
};

TEST_F(xen_events_seam, binds_to_the_port_asked_for) {
  (void)events.bind(3, 45);
  using bind = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_THAT(driver.binds, ElementsAre(bind(3, 45)));
}

TEST_F(xen_events_seam, a_bound_port_wakes_nobody_before_it_is_unmasked) {
  const port p = events.bind(3, 45);
  EXPECT_FALSE(readable(events.fd()));
  driver.kick(p);
  EXPECT_FALSE(readable(events.fd()));
  EXPECT_EQ(events.pending(), std::nullopt);
  events.unmask(p);
  EXPECT_TRUE(readable(events.fd()));
  EXPECT_EQ(events.pending(), p);
  EXPECT_FALSE(readable(events.fd()));
  EXPECT_EQ(events.pending(), std::nullopt) << "the two kicks were one";
  EXPECT_EQ(events.counters().refires.get(), 1U);
  events.unmask(p);
  EXPECT_TRUE(readable(events.fd())) << "the second one is in the kernel";
  EXPECT_EQ(events.pending(), p);
}

TEST_F(xen_events_seam, an_event_that_is_late_is_kept_too) {
  driver.raises_on_bind = false;
  const port p = events.bind(3, 45);
  driver.kick(p);
  EXPECT_EQ(events.pending(), std::nullopt);
  EXPECT_FALSE(readable(events.fd()));
  events.unmask(p);
  EXPECT_TRUE(readable(events.fd()));
  EXPECT_EQ(events.pending(), p);
}

TEST_F(xen_events_seam, an_event_that_never_comes_is_not_made_up) {
  driver.raises_on_bind = false;
  const port p = events.bind(3, 45);
  events.unmask(p);
  EXPECT_FALSE(readable(events.fd()));
  EXPECT_EQ(events.pending(), std::nullopt);
  driver.kick(p);
  EXPECT_TRUE(readable(events.fd()));
  EXPECT_EQ(events.pending(), p);
}

TEST_F(xen_events_seam, a_kick_of_another_port_during_a_bind_is_not_lost) {
  const port first = connect(45);
  driver.kick(first);
  const port second = events.bind(3, 46);
  EXPECT_TRUE(readable(events.fd()));
  EXPECT_EQ(events.pending(), first);
  EXPECT_FALSE(readable(events.fd()));
  driver.kick(first);
  EXPECT_EQ(events.pending(), std::nullopt) << "masked";
  events.unmask(first);
  EXPECT_EQ(events.pending(), first);
  events.unmask(second);
  EXPECT_EQ(events.pending(), second);
}

TEST_F(xen_events_seam, a_fired_port_is_masked_until_it_is_unmasked) {
  const port p = connect(45);
  driver.kick(p);
  EXPECT_EQ(events.pending(), p);
  driver.kick(p);
  EXPECT_FALSE(readable(events.fd()));
  EXPECT_EQ(events.pending(), std::nullopt);
  events.unmask(p);
  EXPECT_EQ(events.pending(), p);
  EXPECT_EQ(events.pending(), std::nullopt);
}

TEST_F(xen_events_seam, several_ports_of_one_wake_up_come_one_by_one) {
  std::vector<port> ports;
  for (port remote = 0; remote < 8; ++remote) {
    ports.push_back(connect(remote));
  }
  for (const port p : ports) {
    driver.kick(p);
  }
  std::vector<port> fired;
  while (const auto p = events.pending()) {
    fired.push_back(*p);
  }
  EXPECT_EQ(fired, ports);
  EXPECT_FALSE(readable(events.fd()));
}

TEST_F(xen_events_seam, looking_without_an_event_does_not_wait) {
  (void)connect(45);
  const auto looks = events.counters().empty_looks.get();
  EXPECT_EQ(events.pending(), std::nullopt);
  EXPECT_EQ(events.pending(), std::nullopt);
  EXPECT_EQ(events.counters().empty_looks.get(), looks + 2);
}

TEST_F(xen_events_seam, entries_of_ports_that_are_none_are_skipped) {
  const port p = connect(45);
  driver.enqueue(4000);
  driver.enqueue(0);
  driver.kick(p);
  EXPECT_EQ(events.pending(), p);
  driver.enqueue(4000);
  EXPECT_EQ(events.pending(), std::nullopt);
}

TEST_F(xen_events_seam, ports_that_are_not_bound_are_ignored) {
  const port p = connect(45);
  driver.kick(p);
  events.unbind(p);
  events.unbind(p);
  events.unbind(4000);
  events.notify(p);
  events.unmask(p);
  EXPECT_THAT(driver.unbound, ElementsAre(p));
  EXPECT_THAT(driver.notified, IsEmpty());
  EXPECT_EQ(events.pending(), std::nullopt);
}

TEST_F(xen_events_seam, a_port_that_is_unbound_while_it_fires_leaves_the_handle_silent) {
  const port p = events.bind(3, 45);
  events.unmask(p);
  EXPECT_TRUE(readable(events.fd()));
  events.unbind(p);
  EXPECT_FALSE(readable(events.fd()));
  EXPECT_EQ(events.pending(), std::nullopt);
}

TEST_F(xen_events_seam, a_number_that_is_used_again_fires_at_most_for_nothing) {
  const port p = connect(45);
  driver.kick(p);
  events.unbind(p);
  driver.next_port = p;
  EXPECT_EQ(events.bind(3, 46), p);
  EXPECT_FALSE(readable(events.fd()));
  events.unmask(p);
  EXPECT_EQ(events.pending(), p);
  events.unmask(p);
  while (events.pending()) {
    events.unmask(p);
  }
  driver.kick(p);
  EXPECT_EQ(events.pending(), p);
}

TEST_F(xen_events_seam, notifies_by_one_call_and_survives_a_peer_that_is_gone) {
  const port p = connect(45);
  const auto before = events.counters().system_calls.get();
  events.notify(p);
  EXPECT_EQ(events.counters().system_calls.get(), before + 1);
  driver.notify = {ENOTCONN};
  events.notify(p);
  EXPECT_EQ(driver.notified.size(), 2U);
  EXPECT_EQ(events.counters().notifies.get(), 2U);
}

TEST_F(xen_events_seam, a_signal_only_repeats_a_call) {
  driver.bind = {EINTR};
  const port p = connect(45);
  EXPECT_EQ(driver.binds.size(), 2U);
  driver.notify = {EINTR};
  events.notify(p);
  EXPECT_EQ(driver.notified.size(), 2U);
  driver.kick(p);
  driver.pending = {EINTR, EINTR};
  EXPECT_EQ(events.pending(), p);
  driver.kick(p);
  driver.unmask = {EINTR};
  events.unmask(p);
  EXPECT_EQ(events.pending(), p);
}

TEST_F(xen_events_seam, a_device_that_fails_is_reported_a_few_times) {
  driver.pending.assign(100, EFBIG);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(events.pending(), std::nullopt);
  }
  EXPECT_EQ(messages().size(), 5U);
  EXPECT_THAT(messages()[0], HasSubstr("/dev/xen/evtchn"));
}

TEST_F(xen_events_seam, a_bind_that_fails_names_both_ends_and_what_helps) {
  driver.bind = {EINVAL, ESRCH, ENOSPC};
  EXPECT_EQ(thrown_by([&] { (void)events.bind(12, 3999); }), EINVAL);
  EXPECT_THAT(said, AllOf(HasSubstr("domain 12"), HasSubstr("port 3999"), HasSubstr("offer")));
  EXPECT_EQ(thrown_by([&] { (void)events.bind(12, 3999); }), ESRCH);
  EXPECT_THAT(said, HasSubstr("no such domain"));
  EXPECT_EQ(thrown_by([&] { (void)events.alloc_unbound(12); }), ENOSPC);
  EXPECT_THAT(said, AllOf(HasSubstr("domain 12"), HasSubstr("no port is left")));
}

TEST_F(xen_events_seam, an_offered_port_is_masked_too) {
  const port p = events.alloc_unbound(3);
  driver.kick(p);
  EXPECT_EQ(events.pending(), std::nullopt);
  events.unmask(p);
  EXPECT_TRUE(readable(events.fd()));
  EXPECT_EQ(events.pending(), p);
}

TEST_F(xen_seam, the_event_handle_is_closed_before_its_logger) {
  { const xen_events events; }
  EXPECT_THAT(machine().order, ElementsAre("open evtchn", "close evtchn"));
}

TEST_F(xen_seam, an_event_device_that_cannot_be_opened_is_named) {
  machine().events.open = {EACCES};
  EXPECT_EQ(thrown_by([] { xen_events events; }), EACCES);
  EXPECT_THAT(said, HasSubstr("/dev/xen/evtchn"));
}

}  // namespace
}  // namespace seam
