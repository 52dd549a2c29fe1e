// SPDX-License-Identifier: MIT
// What a guest sees when an NBD server is killed, stalled, restarted, slow, full, or comes back as
// another one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <pvring/aio/nbd.hpp>

#include "support/image_files.hpp"
#include "support/nbd_server.hpp"

namespace pvring::aio {
namespace {

using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

constexpr std::uint64_t image_bytes = 4 << 20;
constexpr std::uint64_t block = 4096;

struct request {
  transfer work;
  std::vector<char> data;
  iovec buffer{};
  int reports = 0;
};

class nbd_faults : public testing::Test {
 public:
  void open(std::vector<std::string> arguments, milliseconds patience = milliseconds(20'000)) {
    server.emplace(std::move(arguments));
    image.emplace(server->uri(), nbd_options{.patience = patience});
    context.emplace(*image, context_options{.capacity = 32});
  }
  void open_script(const std::string& cases, const nbd_options& options = {}) {
    server.emplace(std::vector<std::string>{"memory", "4M"});
    server->become_script(cases);
    image.emplace(server->uri(), options);
    context.emplace(*image, context_options{.capacity = 4});
  }
  /// On a file, whose content a killed server leaves behind.
  void open_file(milliseconds patience = milliseconds(20'000)) {
    open({"file", file.path()}, patience);
  }

  request& make(operation kind, std::uint64_t offset = 0, std::uint64_t length = 0, char fill = 0) {
    request& r = requests.emplace_back();
    r.work.kind = kind;
    r.work.offset = offset;
    r.work.length = length;
    if (kind == operation::read || kind == operation::write) {
      r.data.assign(length, fill);
      r.buffer = {r.data.data(), length};
      r.work.buffers = {&r.buffer, 1};
    }
    return r;
  }

  void submit(const std::vector<request*>& batch) {
    std::vector<transfer*> works;
    for (request* r : batch) {
      works.push_back(&r->work);
    }
    context->submit(works);
  }

  std::size_t reap() {
    return context->reap([&](transfer& work, int error) noexcept {
      work.error = error;
      for (request& r : requests) {
        r.reports += &r.work == &work ? 1 : 0;
      }
    });
  }

  /// Serves as a queue would until `over`, or for a time; false when the time was over first. The
  /// engine may never keep us for long.
  template <class F>
  bool serve_until(F over, milliseconds limit = milliseconds(15'000)) {
    const auto end = steady::now() + limit;
    while (!over()) {
      const auto before = steady::now();
      if (before >= end) {
        return false;
      }
      reap();
      const bool work = context->arm();
      longest = std::max(longest, steady::now() - before);
      if (!work && !over()) {
        auto nap = std::chrono::ceil<milliseconds>(end - steady::now());
        if (const auto at = context->deadline()) {
          nap = std::min(nap, std::chrono::ceil<milliseconds>(*at - steady::now()));
        }
        pollfd p{context->fd(), POLLIN, 0};
        (void)::poll(&p, 1, static_cast<int>(std::max<long>(nap.count(), 0)));
      }
    }
    return true;
  }
  bool drain(milliseconds limit = milliseconds(15'000)) {
    return serve_until([this] { return context->in_flight() == 0; }, limit);
  }
  void serve_for(milliseconds time) {
    (void)serve_until([] { return false; }, time);
  }
  int run(request& r) {
    submit({&r});
    EXPECT_TRUE(drain());
    EXPECT_EQ(r.reports, 1);
    return r.work.error;
  }

  test::sparse_file file{"/tmp", image_bytes};
  std::deque<request> requests;
  std::optional<test::nbd_server> server;
  std::optional<nbd_image> image;
  std::optional<nbd::context> context;
  steady::duration longest{};
};

TEST_F(nbd_faults, does_again_what_a_killed_server_had) {
  open_file();
  std::minstd_rand random(1);
  std::vector<char> model(image_bytes, 0);
  for (int round = 0; round < 12; ++round) {
    requests.clear();
    std::vector<request*> batch;
    for (std::uint64_t i = 0; i < 32; ++i) {
      const std::uint64_t at = (i * 32 + random() % 31) * block;
      const bool writes = random() % 3 != 0;
      request& r = make(writes ? operation::write : operation::read, at, block,
                        static_cast<char>('a' + random() % 26));
      if (writes) {
        std::memset(&model[at], r.data[0], block);
      }
      batch.push_back(&r);
    }
    submit(batch);
    if (random() % 2 == 0) {
      reap();
    }
    server->stop();
    serve_for(milliseconds(20));
    server->start();
    ASSERT_TRUE(drain()) << "round " << round;
    for (const request* r : batch) {
      ASSERT_EQ(r->reports, 1);
      ASSERT_EQ(r->work.error, 0);
      ASSERT_EQ(std::memcmp(r->data.data(), &model[r->work.offset], block), 0)
          << "round " << round << ", offset " << r->work.offset;
    }
  }
  // Not each of the 12: where all was answered before the end, the next round may be the first to
  // notice, and two losses are one.
  EXPECT_GE(context->reconnections().get(), 6U);
  request& all = make(operation::read, 0, image_bytes);
  EXPECT_EQ(run(all), 0);
  EXPECT_EQ(all.data, model);
  EXPECT_LT(longest, milliseconds(1000)) << "the queue's thread was kept";
}

TEST_F(nbd_faults, comes_back_when_nothing_was_in_flight) {
  open_file();
  EXPECT_EQ(run(make(operation::write, 0, block, 'x')), 0);
  server->stop();
  serve_for(milliseconds(50));
  server->start();
  ASSERT_TRUE(serve_until([this] { return context->reconnections().get() == 1; }));
  request& back = make(operation::read, 0, block);
  EXPECT_EQ(run(back), 0);
  EXPECT_EQ(back.data[0], 'x');
}

TEST_F(nbd_faults, waits_for_a_stalled_server) {
  open_file();
  EXPECT_EQ(run(make(operation::read, 0, block)), 0);
  server->stall();
  request& late = make(operation::write, 0, block, 's');
  submit({&late});
  serve_for(milliseconds(300));
  EXPECT_EQ(late.reports, 0);
  server->go_on();
  ASSERT_TRUE(drain());
  EXPECT_EQ(late.work.error, 0);
  EXPECT_EQ(context->reconnections().get(), 0U);
  EXPECT_LT(longest, milliseconds(1000));
}

// Nothing is answered before the server has the rest, so it is room that a queue has to wait for.
TEST_F(nbd_faults, sends_the_rest_of_what_the_socket_had_no_room_for) {
  open_file();
  server->stall();
  request& large = make(operation::write, 0, image_bytes, 'l');
  submit({&large});
  EXPECT_FALSE(context->arm());
  server->go_on();
  pollfd room{context->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&room, 1, 5'000), 1) << "nobody tells that there is room";
  ASSERT_TRUE(drain());
  EXPECT_EQ(large.work.error, 0);
  EXPECT_EQ(context->reconnections().get(), 0U);
}

// What a stalled server still has may be applied at any time: nothing else reaches the disk before
// it has closed.
TEST_F(nbd_faults, fails_what_waits_too_long_and_reconnects_only_after_the_servers_end) {
  open_file(milliseconds(300));
  EXPECT_EQ(run(make(operation::read, 0, block)), 0);
  server->stall();
  request& late = make(operation::write, 0, block, 'l');
  const auto start = steady::now();
  submit({&late});
  ASSERT_TRUE(drain());
  EXPECT_EQ(late.work.error, -ETIMEDOUT);
  EXPECT_GE(steady::now() - start, milliseconds(300));
  EXPECT_LT(steady::now() - start, milliseconds(2000));
  EXPECT_EQ(run(make(operation::write, 0, block, 'n')), -ETIMEDOUT) << "at once";
  serve_for(milliseconds(400));
  EXPECT_EQ(context->reconnections().get(), 0U) << "the server still has a write";
  server->go_on();
  ASSERT_TRUE(serve_until([this] { return context->reconnections().get() == 1; }));
  EXPECT_EQ(run(make(operation::write, 0, block, 'n')), 0);
  request& back = make(operation::read, 0, block);
  EXPECT_EQ(run(back), 0);
  EXPECT_EQ(back.data[0], 'n') << "the late write came last";
}

TEST_F(nbd_faults, fails_when_the_server_stays_away_and_serves_again_when_it_is_back) {
  open_file(milliseconds(400));
  server->stop();
  request& lost = make(operation::read, 0, block);
  request& flush = make(operation::flush);
  submit({&lost, &flush});
  ASSERT_TRUE(drain());
  EXPECT_EQ(lost.work.error, -ETIMEDOUT);
  EXPECT_LT(flush.work.error, 0);
  server->start();
  ASSERT_TRUE(serve_until([this] { return context->reconnections().get() == 1; }));
  EXPECT_EQ(run(make(operation::read, 0, block)), 0);
  EXPECT_LT(run(make(operation::flush)), 0) << "a flush has failed: none is reported as done";
}

TEST_F(nbd_faults, takes_a_server_that_closes_on_every_request_for_one_that_stays_away) {
  open_script("get_size) echo 4M ;; pread) echo ESHUTDOWN >&2; exit 1 ;;",
              {.read_only = true, .patience = milliseconds(3000)});
  request& r = make(operation::read, 0, block);
  submit({&r});
  ASSERT_TRUE(drain());
  EXPECT_EQ(r.work.error, -ETIMEDOUT);
  EXPECT_LT(context->reconnections().get(), 20U) << "it tried without a pause";
  EXPECT_GE(context->reconnections().get(), 2U);
}

TEST_F(nbd_faults, does_not_take_a_smaller_disk_for_the_old_one) {
  open({"memory", "4M"}, milliseconds(500));
  EXPECT_EQ(run(make(operation::read, 0, block)), 0);
  server->stop();
  server->arguments() = {"memory", "1M"};
  server->start();
  request& r = make(operation::read, 3 << 20, block);
  submit({&r});
  ASSERT_TRUE(drain());
  EXPECT_EQ(r.work.error, -ETIMEDOUT);
  EXPECT_EQ(context->reconnections().get(), 0U);
}

TEST_F(nbd_faults, passes_the_servers_errors_on_to_the_transfer_they_are_about) {
  open({"--filter=error", "memory", "4M", "error-pwrite=ENOSPC", "error-pwrite-rate=100%"});
  request& full = make(operation::write, 0, block, 'f');
  request& fine = make(operation::read, 0, block);
  submit({&full, &fine});
  ASSERT_TRUE(drain());
  EXPECT_EQ(full.work.error, -ENOSPC);
  EXPECT_EQ(fine.work.error, 0);
  EXPECT_EQ(context->reconnections().get(), 0U);
}

TEST_F(nbd_faults, survives_errors_that_come_and_go) {
  open({"--filter=error", "memory", "4M", "error=EIO", "error-rate=30%"});
  int failed = 0;
  int done = 0;
  for (int round = 0; round < 20; ++round) {
    requests.clear();
    std::vector<request*> batch;
    for (std::uint64_t i = 0; i < 32; ++i) {
      batch.push_back(&make(i % 2 == 0 ? operation::read : operation::write, i * block, block));
    }
    submit(batch);
    ASSERT_TRUE(drain());
    for (const request* r : batch) {
      ASSERT_EQ(r->reports, 1);
      ASSERT_TRUE(r->work.error == 0 || r->work.error == -EIO);
      ++(r->work.error == 0 ? done : failed);
    }
  }
  EXPECT_GT(failed, 50);
  EXPECT_GT(done, 300);
}

TEST_F(nbd_faults, remembers_a_flush_that_failed) {
  open_script(
      "get_size) echo 4M ;; pread) head -c $3 /dev/zero ;; can_write) exit 0 ;; "
      "can_flush) exit 0 ;; pwrite) cat >/dev/null ;; "
      "flush) if [ -e $0.bad ]; then rm $0.bad; echo EIO >&2; exit 1; fi ;;");
  EXPECT_EQ(run(make(operation::write, 0, block)), 0);
  EXPECT_EQ(run(make(operation::flush)), 0);
  std::ofstream(server->directory() + "/script.bad") << "\n";
  EXPECT_EQ(run(make(operation::flush)), -EIO);
  EXPECT_EQ(run(make(operation::flush)), -EIO);
  context.reset();
  context.emplace(*image, context_options{.capacity = 4});
  EXPECT_EQ(run(make(operation::flush)), -EIO);
  EXPECT_EQ(run(make(operation::read, 0, block)), 0);
}

// The server counts: with one connection a flush on another queue would cover nothing.
TEST_F(nbd_faults, allows_one_queue_where_connections_do_not_see_each_other) {
  open({"--filter=multi-conn", "memory", "4M", "multi-conn-mode=disable"});
  EXPECT_EQ(image->most_contexts(), 1U);
  EXPECT_THROW((nbd::context{*image, context_options{}}), configuration_error);
  context.reset();
  context.emplace(*image, context_options{});
  ASSERT_TRUE(serve_until([this] { return context->reconnections().get() == 1; }));
  EXPECT_EQ(run(make(operation::read, 0, block)), 0);
}

TEST_F(nbd_faults, writes_through_where_the_server_cannot_flush_but_can_do_that) {
  open_script(
      "get_size) echo 4M ;; pread) head -c $3 /dev/zero ;; can_write) exit 0 ;; "
      "can_flush) exit 3 ;; can_fua) echo native ;; "
      "pwrite) cat >/dev/null; echo \"flags: $5\" >>$0.flags ;;");
  EXPECT_FALSE(image->can_flush());
  EXPECT_EQ(run(make(operation::write, 0, block)), 0);
  EXPECT_EQ(run(make(operation::flush)), 0);
  std::string line;
  std::getline(std::ifstream(server->directory() + "/script.flags") >> std::ws, line);
  EXPECT_EQ(line, "flags: fua");
}

TEST_F(nbd_faults, ends_while_it_connects_and_while_a_server_is_stalled) {
  open_file();
  server->stall();
  std::vector<request*> batch;
  for (std::uint64_t i = 0; i < 32; ++i) {
    batch.push_back(&make(operation::write, i * 65536, 65536));
  }
  submit(batch);
  serve_for(milliseconds(20));
  const auto start = steady::now();
  context.reset();
  requests.clear();  // whoever still uses the buffers is found by the address sanitizer
  EXPECT_LT(steady::now() - start, milliseconds(200));

  context.emplace(*image, context_options{});
  serve_for(milliseconds(50));  // the stalled server accepts nobody
  context.reset();
  EXPECT_LT(steady::now() - start, milliseconds(1000));
  server->go_on();
}

TEST(nbd_image_errors, name_the_server_and_the_remedy) {
  for (const std::string uri : {"nbd+unix:///?socket=/nowhere", "nbd://127.0.0.1:1/",
                                "nbds://127.0.0.1:1/", "nbd:broken", "http://x/"}) {
    try {
      nbd_image image(uri);
      ADD_FAILURE() << uri;
    } catch (const configuration_error& error) {
      EXPECT_NE(std::string(error.what()).find(uri), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(is_nbd_uri("nbd://host/disk"));
  EXPECT_TRUE(is_nbd_uri("nbd+unix:///disk?socket=/run/x"));
  EXPECT_FALSE(is_nbd_uri("/nbd://host"));
  EXPECT_FALSE(is_nbd_uri("nbds://host"));
  test::nbd_server frozen({"-r", "memory", "4M"});
  EXPECT_THROW(nbd_image(frozen.uri()), configuration_error);
  EXPECT_TRUE(nbd_image(frozen.uri(), {.read_only = true}).read_only());
}

}  // namespace
}  // namespace pvring::aio
