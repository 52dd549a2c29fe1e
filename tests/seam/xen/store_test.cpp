// SPDX-License-Identifier: MIT
// The store: missing nodes are no errors, conflicts are repeated, and a store that dies is named.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "fixture.hpp"

namespace seam {
namespace {

class xen_store_seam : public xen_seam {
 public:
  xen_store store;
  fake::store_daemon& daemon = machine().store;
};

TEST_F(xen_store_seam, reads_and_writes_nodes) {
  EXPECT_EQ(store.read("/a"), std::nullopt);
  store.write("/a", "value");
  store.write("/b", "");
  EXPECT_EQ(store.read("/a"), "value");
  EXPECT_EQ(store.read("/b"), "");
  const std::string with_zero("x\0y", 3);
  store.write("/a", with_zero);
  EXPECT_EQ(store.read("/a"), with_zero);
  store.remove("/a");
  EXPECT_EQ(store.read("/a"), std::nullopt);
  EXPECT_NO_THROW(store.remove("/a"));
}

TEST_F(xen_store_seam, lists_children) {
  EXPECT_THAT(store.list("/a"), IsEmpty());
  store.write("/a", "");
  EXPECT_THAT(store.list("/a"), IsEmpty());
  store.write("/a/x", "1");
  store.write("/a/y", "2");
  EXPECT_THAT(store.list("/a"), ElementsAre("x", "y"));
}

TEST_F(xen_store_seam, the_owner_comes_first_and_others_may_do_nothing) {
  store.set_permissions("/a", {.owner = 0, .reader = 5});
  ASSERT_EQ(daemon.permissions["/a"].size(), 2U);
  EXPECT_EQ(daemon.permissions["/a"][0].id, 0U);
  EXPECT_EQ(daemon.permissions["/a"][0].perms, static_cast<unsigned>(XS_PERM_NONE));
  EXPECT_EQ(daemon.permissions["/a"][1].id, 5U);
  EXPECT_EQ(daemon.permissions["/a"][1].perms, static_cast<unsigned>(XS_PERM_READ));
  store.set_permissions("/a", {.owner = 4, .reader = std::nullopt});
  ASSERT_EQ(daemon.permissions["/a"].size(), 1U);
  EXPECT_EQ(daemon.permissions["/a"][0].id, 4U);
}

TEST_F(xen_store_seam, failures_name_the_node_and_what_helps) {
  daemon.calls["read"] = {EACCES};
  EXPECT_EQ(thrown_by([&] { (void)store.read("/a/b"); }), EACCES);
  EXPECT_THAT(said, AllOf(HasSubstr("read '/a/b'"), HasSubstr("permissions")));
  daemon.calls["write"] = {ENOSPC};
  EXPECT_EQ(thrown_by([&] { store.write("/a/b", "1"); }), ENOSPC);
  EXPECT_THAT(said, AllOf(HasSubstr("write '/a/b'"), HasSubstr("quota")));
  daemon.calls["rm"] = {EACCES};
  EXPECT_EQ(thrown_by([&] { store.remove("/a/b"); }), EACCES);
  EXPECT_THAT(said, HasSubstr("remove '/a/b'"));
  daemon.calls["directory"] = {E2BIG};
  EXPECT_EQ(thrown_by([&] { (void)store.list("/a/b"); }), E2BIG);
  EXPECT_THAT(said, HasSubstr("list '/a/b'"));
  daemon.calls["set_permissions"] = {ENOENT};
  EXPECT_EQ(thrown_by([&] { store.set_permissions("/a/b", {}); }), ENOENT);
  EXPECT_THAT(said, HasSubstr("permissions of '/a/b'"));
  daemon.calls["watch"] = {EEXIST};
  EXPECT_EQ(thrown_by([&] { store.watch("/a/b", "t"); }), EEXIST);
  EXPECT_THAT(said, HasSubstr("watch '/a/b'"));
}

TEST_F(xen_store_seam, a_bad_path_is_told_from_a_lost_connection) {
  daemon.calls["read"] = {EINVAL};
  EXPECT_EQ(thrown_by([&] { (void)store.read("no path"); }), EINVAL);
  EXPECT_THAT(said, testing::Not(HasSubstr("lost")));
  daemon.dead = true;
  daemon.dead_error = EINVAL;
  EXPECT_EQ(thrown_by([&] { (void)store.read("/a"); }), EIO);
}

TEST_F(xen_store_seam, a_dead_store_is_an_error_that_names_the_node) {
  store.watch("/w", "t");
  (void)store.next_event();
  daemon.dead = true;
  for (const int error : {EBADF, EPIPE, ECONNRESET, EINVAL}) {
    daemon.dead_error = error;
    EXPECT_EQ(thrown_by([&] { (void)store.read("/a/b"); }), EIO);
    EXPECT_THAT(said, AllOf(HasSubstr("'/a/b'"), HasSubstr("xenstored")));
    EXPECT_EQ(thrown_by([&] { store.write("/a/b", ""); }), EIO);
    EXPECT_EQ(thrown_by([&] { store.remove("/a/b"); }), EIO);
    EXPECT_EQ(thrown_by([&] { (void)store.list("/a/b"); }), EIO);
    EXPECT_EQ(thrown_by([&] { store.set_permissions("/a/b", {}); }), EIO);
    EXPECT_EQ(thrown_by([&] { store.watch("/a/b", "t"); }), EIO);
    EXPECT_EQ(thrown_by([&] { store.transact([](xen_store::transaction&) {}); }), EIO);
  }
  EXPECT_EQ(thrown_by([&] { (void)store.next_event(); }), EIO);
  EXPECT_THAT(said, HasSubstr("'/w'"));
  EXPECT_EQ(thrown_by([&] { store.unwatch("/w", "t"); }), EIO);
}

TEST_F(xen_store_seam, a_path_with_a_zero_in_it_is_refused) {
  EXPECT_EQ(thrown_by([&] { store.write(std::string_view("/a\0b", 4), "1"); }), EINVAL);
  EXPECT_TRUE(daemon.nodes.empty());
}

TEST_F(xen_store_seam, a_transaction_is_committed_once_its_body_is_done) {
  store.write("/one", "0");
  store.transact([&](xen_store::transaction& t) {
    t.write("/one", "1");
    EXPECT_EQ(t.read("/one"), "1");
    EXPECT_EQ(store.read("/one"), "0");
  });
  EXPECT_EQ(store.read("/one"), "1");
  EXPECT_THAT(daemon.ends, ElementsAre("commit"));
}

TEST_F(xen_store_seam, a_body_that_throws_aborts) {
  EXPECT_THROW(store.transact([](xen_store::transaction& t) {
    t.write("/one", "1");
    throw std::runtime_error("enough");
  }),
               std::runtime_error);
  EXPECT_EQ(store.read("/one"), std::nullopt);
  EXPECT_THAT(daemon.ends, ElementsAre("abort"));
}

// Case 106.
TEST_F(xen_store_seam, conflicts_run_the_body_again) {
  daemon.commit = {EAGAIN, EAGAIN};
  int calls = 0;
  store.transact([&](xen_store::transaction& t) { t.write("/n", std::to_string(++calls)); });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(daemon.starts, 3U);
  EXPECT_EQ(store.read("/n"), "3");
  EXPECT_THAT(daemon.ends, ElementsAre("commit", "commit", "commit"));
}

TEST_F(xen_store_seam, conflicts_have_an_end) {
  daemon.commit.assign(1000, EAGAIN);
  int calls = 0;
  EXPECT_EQ(thrown_by([&] { store.transact([&](xen_store::transaction&) { ++calls; }); }), EAGAIN);
  EXPECT_EQ(calls, xen_store::most_attempts);
  EXPECT_THAT(said, HasSubstr("64 conflicts"));
}

TEST_F(xen_store_seam, a_commit_that_fails_otherwise_is_not_repeated) {
  daemon.commit = {ENOSPC};
  int calls = 0;
  EXPECT_EQ(thrown_by([&] { store.transact([&](xen_store::transaction&) { ++calls; }); }), ENOSPC);
  EXPECT_EQ(calls, 1);
  daemon.calls["transaction_start"] = {ENOSPC};
  EXPECT_EQ(thrown_by([&] { store.transact([&](xen_store::transaction&) { ++calls; }); }), ENOSPC);
  EXPECT_EQ(calls, 1);
}

TEST_F(xen_store_seam, a_watch_fires_at_registration_and_for_changes_below) {
  store.watch("/w", "mine");
  EXPECT_TRUE(readable(store.fd()));
  auto event = store.next_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->path, "/w");
  EXPECT_EQ(event->token, "mine");
  EXPECT_EQ(store.next_event(), std::nullopt);
  EXPECT_FALSE(readable(store.fd()));
  daemon.fire("/w/a/b", "mine");
  daemon.fire("/w", "mine");
  EXPECT_EQ(store.next_event()->path, "/w/a/b");
  EXPECT_EQ(store.next_event()->path, "/w");
  daemon.calls["check_watch"] = {EINTR};
  EXPECT_EQ(store.next_event(), std::nullopt);
}

TEST_F(xen_store_seam, no_event_of_an_ended_watch_is_returned) {
  store.watch("/w", "mine");
  store.watch("/w/b", "other");
  store.watch("/", "all");
  store.watch("@releaseDomain", "gone");
  daemon.fire("/w/a", "mine");
  store.unwatch("/w", "mine");
  EXPECT_EQ(store.next_event()->token, "other");
  EXPECT_EQ(store.next_event()->token, "all");
  EXPECT_EQ(store.next_event()->path, "@releaseDomain");
  EXPECT_EQ(store.next_event(), std::nullopt);
  daemon.fire("/anything", "all");
  EXPECT_EQ(store.next_event()->path, "/anything");
  daemon.fire("/w/bc", "other");
  EXPECT_EQ(store.next_event(), std::nullopt) << "not below /w/b";
  EXPECT_NO_THROW(store.unwatch("/w", "mine"));
}

TEST_F(xen_store_seam, a_watch_that_was_refused_is_none) {
  daemon.calls["watch"] = {EACCES};
  EXPECT_THROW(store.watch("/w", "mine"), std::system_error);
  daemon.fire("/w", "mine");
  EXPECT_EQ(store.next_event(), std::nullopt);
}

TEST_F(xen_store_seam, what_the_library_returns_is_freed) {
  store.write("/a/b", std::string(3000, 'x'));
  store.watch("/a", "t");
  const auto use_all = [&] {
    (void)store.read("/a/b");
    (void)store.list("/a");
    daemon.fire("/a/" + std::string(2000, 'y'), "t");
    daemon.fire("/a/" + std::string(2000, 'y'), "unknown");
    (void)store.next_event();
    (void)store.next_event();
    daemon.calls["read"] = {EINVAL};
    EXPECT_THROW((void)store.read("/a/b"), std::system_error);
  };
  use_all();
  const std::size_t before = ::mallinfo2().uordblks;
  for (int i = 0; i < 500; ++i) {
    use_all();
  }
  EXPECT_LT(::mallinfo2().uordblks, before + 100'000);
}

TEST_F(xen_store_seam, handles_move) {
  store.watch("/w", "mine");
  xen_store other(std::move(store));
  other.write("/a", "1");
  EXPECT_EQ(other.next_event()->path, "/w");
  store = std::move(other);
  EXPECT_EQ(store.read("/a"), "1");
  EXPECT_THAT(machine().order, ElementsAre("open store"));
}

TEST_F(xen_seam, the_store_is_closed_once) {
  { const xen_store store; }
  EXPECT_THAT(machine().order, ElementsAre("open store", "close store"));
}

TEST_F(xen_seam, a_child_does_not_wait_for_the_parents_reader) {
  std::optional<xen_store> store(std::in_place);
  const pid_t child = ::fork();
  if (child == 0) {
    store.reset();
    ::_exit(machine().order.back() == "drop store" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(xen_seam, a_store_that_cannot_be_opened_is_named_with_what_helps) {
  machine().store.open = {ENOENT};
  EXPECT_EQ(thrown_by([] { xen_store store; }), ENOENT);
  EXPECT_THAT(said, HasSubstr("store"));
  machine().store.calls["fileno"] = {EMFILE};
  EXPECT_EQ(thrown_by([] { xen_store store; }), EMFILE);
  EXPECT_THAT(machine().order, ElementsAre("open store", "close store"));
}

}  // namespace
}  // namespace seam
