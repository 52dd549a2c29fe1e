// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <sys/socket.h>

#include <set>

#include "emulated_fixture.hpp"

namespace pvring::platform::test {
namespace {

using transaction = emulated_store::transaction;

class EmulatedProcesses : public EmulatedMachine {
 public:
  // Handles that live in the child for as long as it does.
  struct backend {
    explicit backend(const emulated_host& machine)
        : platform(machine),
          grants(platform.open_grants(64)),
          events(platform.open_events()),
          store(platform.open_store()) {}
    emulated platform;
    emulated_grants grants;
    emulated_events events;
    emulated_store store;
  };
  std::unique_ptr<backend> in_child;

  static bool wait_readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 10'000) == 1;
  }
};

TEST_F(EmulatedProcesses, FrontendAndBackendMayBeTwoProcesses) {
  const auto r = grant_pages(2);
  emulated_events events = guest.open_events();
  const port front = events.alloc_unbound(0);
  events.unmask(front);
  guest.open_store().write("data", "from the parent");
  const child_process child([&] {
    in_child = std::make_unique<backend>(machine);
    const map_result mapped = in_child->grants.map(guest_id, r, access::read_write);
    mapped.pages.address[page_size] = std::byte{'M'};
    char local = 'C';
    copy_operation op = piece(&local, r[0], 10, 1);
    const bool copied = in_child->grants.copy(guest_id, direction::to_peer, {&op, 1}) == 0;
    in_child->store.write("/answer", *in_child->store.read("/local/domain/3/data"));
    in_child->events.notify(in_child->events.bind(guest_id, front));
    return mapped.error == 0 && copied && op.status == grant_status::okay;
  });
  ASSERT_TRUE(child.succeeded());
  EXPECT_EQ(memory[page_size], std::byte{'M'});
  EXPECT_EQ(memory[10], std::byte{'C'});
  EXPECT_EQ(dom0.open_store().read("/answer"), "from the parent");
  EXPECT_TRUE(wait_readable(events.fd()));
  EXPECT_EQ(events.pending(), front);
  EXPECT_TRUE(events.is_bound(front));
  EXPECT_TRUE(guest.is_mapped(r[0]));
  EXPECT_FALSE(guest.end_grant(r[0]));
}

TEST_F(EmulatedProcesses, OneThatIsKilledLosesItsMapsAndPorts) {
  const auto r = grant_pages(2);
  emulated_events events = guest.open_events();
  const port front = events.alloc_unbound(0);
  events.unmask(front);
  child_process child([&] {
    in_child = std::make_unique<backend>(machine);
    (void)in_child->events.bind(guest_id, front);
    return in_child->grants.map(guest_id, r, access::read_write).error == 0;
  });
  ASSERT_TRUE(child.succeeded());
  EXPECT_FALSE(guest.end_grant(r[0]));
  EXPECT_TRUE(events.is_bound(front));
  events.notify(front);

  child.kill();  // a zombie is dead enough
  EXPECT_FALSE(guest.is_mapped(r[0]));
  EXPECT_TRUE(guest.end_grant(r[0]));
  EXPECT_FALSE(events.is_bound(front));
  events.notify(front);
  child.bury();
  EXPECT_TRUE(guest.end_grant(r[1]));
  EXPECT_EQ(machine.lost_pages(), 2U);
  EXPECT_EQ(machine.leaked_pages(), 0U);

  // Another backend takes over, and hears of the kicks that the dead one missed.
  emulated_events heir = dom0.open_events();
  const port back = heir.bind(guest_id, front);
  EXPECT_TRUE(events.is_bound(front));
  heir.unmask(back);
  EXPECT_EQ(heir.pending(), back);
}

TEST_F(EmulatedProcesses, APortOfAProcessThatDiedCannotBeBound) {
  port offered = 0;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  child_process child([&] {
    static emulated_events events = guest.open_events();
    offered = events.alloc_unbound(0);
    return ::write(pipe[1], &offered, sizeof offered) == sizeof offered;
  });
  ASSERT_EQ(::read(pipe[0], &offered, sizeof offered), static_cast<ssize_t>(sizeof offered));
  emulated_events events = dom0.open_events();
  const port back = events.bind(guest_id, offered);
  EXPECT_TRUE(events.is_bound(back));
  child.kill();
  EXPECT_FALSE(events.is_bound(back));
  events.notify(back);
  expect_system_error(EINVAL, "no such port", [&] { (void)events.bind(guest_id, offered); });
  (void)::close(pipe[0]);
  (void)::close(pipe[1]);
}

TEST_F(EmulatedProcesses, SlotsOfTheDeadAreUsedAgain) {
  for (int i = 0; i < 30; ++i) {
    child_process child([&] {
      in_child = std::make_unique<backend>(machine);
      in_child->store.watch("/w", "t");
      return true;
    });
    ASSERT_TRUE(child.succeeded());
    child.kill();
  }
}

TEST_F(EmulatedProcesses, AChildThatInheritedHandlesDoesNotCloseThem) {
  const auto r = grant_pages(1);
  auto parent = std::make_unique<backend>(machine);
  const map_result mapped = parent->grants.map(guest_id, r, access::read_write);
  emulated_events events = guest.open_events();
  const port front = events.alloc_unbound(0);
  (void)parent->events.bind(guest_id, front);
  child_process child(
      [&] {
        parent.reset();
        return true;
      },
      child_process::then::end);
  child.bury();
  EXPECT_TRUE(guest.is_mapped(r[0]));
  EXPECT_TRUE(events.is_bound(front));
  EXPECT_EQ(machine.leaked_pages(), 0U);
  EXPECT_EQ(parent->grants.unmap(mapped.pages), 0);
}

TEST_F(EmulatedProcesses, AMachineIsPassedOverASocket) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  machine.send(sockets[0]);
  const emulated_host received = emulated_host::receive(sockets[1]);
  const auto r = grant_pages(1);
  emulated other{received};
  emulated_grants grants = other.open_grants(1);
  const map_result mapped = grants.map(guest_id, r, access::read_write);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_EQ(mapped.pages.address[0], std::byte{'a'});
  EXPECT_FALSE(guest.end_grant(r[0]));
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  emulated_events back = other.open_events();
  emulated_events front = guest.open_events();
  const port p = front.alloc_unbound(0);
  const port q = back.bind(guest_id, p);
  back.unmask(q);
  front.notify(p);
  EXPECT_TRUE(is_readable(back.fd()));

  // Something else than a machine is refused.
  detail::send_descriptors(sockets[0], std::array<int, 2>{sockets[0], sockets[1]});
  EXPECT_THROW((void)emulated_host::receive(sockets[1]), std::exception);
  detail::send_descriptors(sockets[0], std::array<int, 1>{sockets[0]});
  EXPECT_THROW((void)emulated_host::receive(sockets[1]), std::runtime_error);
  (void)::close(sockets[0]);
  expect_system_error(EPROTO, "descriptors came",
                      [&] { (void)emulated_host::receive(sockets[1]); });
  (void)::close(sockets[1]);
}

TEST_F(EmulatedProcesses, KilledAnywhereAStoreWriterLeavesAWholeStore) {
  emulated_store store = dom0.open_store();
  const auto space = [&] {
    detail::store_session session(*machine.state());
    return session.tree().left();
  };
  store.write("/p/a", "0");
  store.write("/p/b", "0");
  const auto before = space();
  store.watch("/p/b", "t");
  std::string last = "0";
  for (int round = 0; round < 60; ++round) {
    while (store.next_event()) {
    }
    last = *store.read("/p/b");
    child_process child([&] {
      std::array<int, 2> unused{};
      (void)unused;
      if (const pid_t worker = ::fork(); worker == 0) {
        emulated_store mine = dom0.open_store();
        for (int i = round * 1'000'000;; ++i) {
          mine.transact([&](transaction& t) {
            t.write("/p/a", std::to_string(i) + std::string(200, 'x'));
            t.write("/p/tree/" + std::to_string(i % 7) + "/deep", std::string(100, 'y'));
            if (i % 3 == 0) {
              t.remove("/p/tree");
            }
            t.write("/p/b", std::to_string(i) + std::string(200, 'x'));
          });
        }
      } else {
        ::usleep(static_cast<useconds_t>(500 + 137 * (round % 11)));
        (void)::kill(worker, SIGKILL);
        (void)::waitpid(worker, nullptr, 0);
      }
      return true;
    });
    ASSERT_TRUE(child.succeeded());
    const auto a = store.read("/p/a");
    const auto b = store.read("/p/b");
    EXPECT_EQ(a, b);
    if (b != last) {
      EXPECT_TRUE(is_readable(store.fd()));
      EXPECT_TRUE(store.next_event());
    }
    for (const std::string& name : store.list("/p/tree")) {
      EXPECT_EQ(store.read("/p/tree/" + name + "/deep"), std::string(100, 'y'));
    }
  }
  store.remove("/p/tree");
  store.write("/p/a", "0");
  store.write("/p/b", "0");
  EXPECT_EQ(space().nodes, before.nodes);
  EXPECT_EQ(space().chunks, before.chunks);
}

TEST_F(EmulatedProcesses, KilledAnywhereABackendLeavesNothingMappedOrBound) {
  const auto r = grant_pages(8);
  emulated_events events = guest.open_events();
  const port front = events.alloc_unbound(0);
  for (int round = 0; round < 40; ++round) {
    const pid_t worker = ::fork();
    if (worker == 0) {
      backend mine(machine);
      std::vector<char> local(page_size);
      while (true) {
        const map_result mapped = mine.grants.map(guest_id, r, access::read_write);
        std::array<copy_operation, 4> ops{};
        for (std::size_t i = 0; i < ops.size(); ++i) {
          ops[i] = piece(local.data(), r[i], 0, page_size);
        }
        (void)mine.grants.copy(guest_id, direction::to_peer, ops);
        const port back = mine.events.bind(guest_id, front);
        mine.events.unmask(back);
        mine.events.notify(back);
        mine.events.unbind(back);
        (void)mine.grants.unmap(mapped.pages);
      }
    }
    ::usleep(static_cast<useconds_t>(1000 + 211 * (round % 13)));
    (void)::kill(worker, SIGKILL);
    siginfo_t info{};
    (void)::waitid(P_PID, static_cast<id_t>(worker), &info, WEXITED | WNOWAIT);
    EXPECT_FALSE(events.is_bound(front));
    for (const grant_reference reference : r) {
      EXPECT_FALSE(guest.is_mapped(reference));
    }
    const grant_reference ended = r[static_cast<std::size_t>(round) % r.size()];
    EXPECT_TRUE(guest.end_grant(ended));
    EXPECT_EQ(guest.grant(0, memory + static_cast<std::size_t>(round) % r.size() * page_size,
                          access::read_write),
              ended);
    emulated_events heir = dom0.open_events();
    EXPECT_NO_THROW((void)heir.bind(guest_id, front));
    (void)::waitpid(worker, nullptr, 0);
  }
  std::set<port> offered;
  for (port free = detail::ports - 2; free != 0; --free) {
    offered.insert(events.alloc_unbound(0));
  }
  EXPECT_EQ(offered.size(), detail::ports - 2) << "no port was lost";
}

TEST(ProcessIdentity, TellsTheLivingFromTheDeadAndTheReborn) {
  using namespace detail;
  process_identity self = this_process();
  EXPECT_EQ(self.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_NE(self.start_time, 0U);
  EXPECT_TRUE(is_alive(self));
  ++self.start_time;
  EXPECT_FALSE(is_alive(self)) << "another process with the same number";
  EXPECT_FALSE(is_alive({0x3fff'ffff, 0, 1}));
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  const process_identity born{static_cast<std::uint32_t>(child), 0,
                              read_process_status(static_cast<std::uint32_t>(child)).start_time};
  siginfo_t info{};
  (void)::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(is_alive(born));
  (void)::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_alive(born));
}

}  // namespace
}  // namespace pvring::platform::test
