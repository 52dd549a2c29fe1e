// SPDX-License-Identifier: MIT
// The backend's process is killed at each stage of the pass, with the frontend in another process.
// Nothing acknowledged is lost, the kernel's part is played by the emulated host (no grant and no
// port stays behind), and a new backend serves the device: over a new connection, or, where the
// dead one kept a journal, over the one that there was, and then the guest notices a pause and
// nothing else.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pvring/aio/file_image.hpp"
#include "pvring/base/mapped_file.hpp"
#include "pvring/blk/backend.hpp"
#include "pvring/ring/journal.hpp"
#include "pvring/testing/block_load.hpp"
#include "pvring/testing/scripted_frontend.hpp"
#include "pvring/testing/strict_frontend.hpp"
#include "pvring/xenbus/toolstack.hpp"

namespace pvring::test {
namespace {

using observe::stage;

// Kills its own process when a request reaches a stage for the n-th time.
struct fatal {
  using policy_kind = pvring::policy_kind::observer;
  static inline stage where = stage::notified;
  static inline std::atomic<int> countdown = 0;  // 0: never

  class recorder {
   public:
    static constexpr bool active = true;
    explicit recorder(std::uint32_t /*slots*/) noexcept {}
    void stage(std::uint32_t /*slot*/, observe::stage reached) noexcept {
      if (reached == where) {
        count();
      }
    }
    void published(bool /*notified*/) noexcept {
      if (where == observe::stage::notified) {
        count();
      }
    }
    void pass(std::uint32_t /*taken*/, std::uint32_t /*answered*/) noexcept {}

   private:
    static void count() noexcept {
      if (countdown.load() != 0 && countdown.fetch_sub(1) == 1) {
        ::kill(::getpid(), SIGKILL);
      }
    }
  };
};

// Completions as they come, told in another order, and some of them later.
class shuffling_context : public aio::libaio::context {
 public:
  using aio::libaio::context::context;

  template <class F>
  std::size_t reap(F&& f) noexcept {
    (void)context::reap([this](aio::transfer& done, int error) {
      held_.emplace_back(&done, error);  // NOLINT(bugprone-exception-escape): of a test
    });
    const std::size_t now = held_.size() < 4 ? held_.size() : random_() % held_.size();
    for (std::size_t i = 0; i < now; ++i) {
      std::swap(held_[random_() % held_.size()], held_.back());
      const auto [done, error] = held_.back();
      held_.pop_back();
      f(*done, error);
    }
    return now;
  }
  [[nodiscard]] std::size_t in_flight() const noexcept {
    return context::in_flight() + held_.size();
  }
  [[nodiscard]] bool arm() noexcept { return context::arm() || !held_.empty(); }

 private:
  std::vector<std::pair<aio::transfer*, int>> held_;
  std::minstd_rand random_{static_cast<unsigned>(::getpid())};
};

// Says what io_uring's image says where a test wants that.
class doubtful_image : public aio::file_image {
 public:
  static inline bool io_outlives_process = false;
  using aio::file_image::file_image;
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return !io_outlives_process; }
};

struct shuffling_engine {
  using policy_kind = pvring::policy_kind::engine;
  using image = doubtful_image;
  using context = shuffling_context;
};

struct mortal_config : default_config {
  using observe = fatal;
  using engine = shuffling_engine;
  using journal = ring::shared_journal;
};

constexpr domain_id guest_domain = 5;
constexpr std::uint64_t blocks = 256;
constexpr std::uint64_t half = blocks * 8 / 2;  // sectors

// A host with one disk, whose backend is another process.
class disk_of_mortals : public ::testing::Test {
 protected:
  explicit disk_of_mortals(const char* strategy)
      : strategy_(strategy),
        path_(std::filesystem::temp_directory_path() /
              ("pvring-killed-" + std::to_string(::getpid()))),
        host_(platform::emulated_host::create()),
        guest_(host_.create_domain(guest_domain)),
        dom0_(host_),
        toolstack_(dom0_.open_store()) {
    std::FILE* file = std::fopen(path_.c_str(), "w");
    EXPECT_EQ(::ftruncate(::fileno(file), blocks * 4096), 0);
    std::fclose(file);
    plug_in();
  }
  ~disk_of_mortals() override {
    if (keeper_ > 0) {
      kill(keeper_);
    }
    std::filesystem::remove(path_);
    std::filesystem::remove_all(journals_);
  }

  void plug_in() { xenbus::create_device(toolstack_, xenbus::describe_vbd(identity_, {})); }

  // Serves the device in a process of its own until it is over, or killed.
  pid_t serve(stage where, int countdown, const std::string& journals = {}) const {
    const pid_t child = ::fork();
    if (child != 0) {
      return child;
    }
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);  // none outlives a test that fails
    fatal::where = where;
    fatal::countdown = countdown;
    try {
      platform::emulated dom0(host_);
      doubtful_image image(path_, {.sharing = aio::image_sharing::guarded});
      blk::backend<mortal_config> disk(dom0, {.domain = guest_domain, .device = identity_.device},
                                       image,
                                       {.strategy = strategy_,
                                        .allow_unsafe_mapping = true,  // whatever /tmp lies on
                                        .journal_directory = journals});
      disk.run();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "backend: %s\n", e.what());
      ::_exit(3);
    }
    ::_exit(0);
  }

  static void kill(pid_t process) {
    EXPECT_EQ(::kill(process, SIGKILL), 0);
    EXPECT_EQ(::waitpid(process, nullptr, 0), process);
  }

  // Serves the device in one process after another: `deaths` of them are killed on the way. A
  // process of its own does so, that has no other thread when it forks.
  pid_t serve_mortals(stage where, std::atomic<int>& deaths, int most) {
    std::filesystem::create_directory(journals_);
    const pid_t child = ::fork();
    if (child != 0) {
      return keeper_ = child;
    }
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      const int dead = deaths.load();
      const pid_t one = serve(where, dead < most ? 20 + 17 * dead : 0, journals_.string());
      int status = 0;
      if (::waitpid(one, &status, 0) != one) {
        ::_exit(4);
      }
      if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
      }
      deaths.fetch_add(1);
    }
  }

  // Writes until the backend answers no more; the last acknowledged version of each block.
  static std::vector<std::uint64_t> write_until_silence(testing::strict_frontend& front) {
    std::vector<std::uint64_t> acknowledged(blocks);
    std::vector<std::uint64_t> versions(blocks);
    auto& queue = front.queue(0);
    const auto segments = testing::segments_for(8);
    std::uint64_t version = 0;
    std::uint64_t block = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    bool silent = false;
    while (!silent && std::chrono::steady_clock::now() < end) {
      // Each block is written again only once the window has passed it, so no two versions are in
      // flight.
      while (queue.in_flight() < 16) {
        versions[block] = ++version;
        const std::uint64_t number = version;
        if (!queue.submit({.operation = protocol::blkif::operation::write,
                           .sector = block * 8,
                           .segments = segments,
                           .cookie = block},
                          [number](std::size_t, std::span<std::byte> bytes) {
                            std::memset(bytes.data(), 0, bytes.size());
                            std::memcpy(bytes.data(), &number, sizeof number);
                          })) {
          break;
        }
        block = (block + 1) % blocks;
      }
      queue.publish();
      const std::size_t ended = queue.poll([&](const testing::block_completion& done) {
        if (done.okay()) {
          acknowledged[done.cookie] = versions[done.cookie];
        }
      });
      silent = ended == 0 && !queue.wait(std::chrono::milliseconds(300));
    }
    return acknowledged;
  }

  std::string strategy_;
  pid_t keeper_ = 0;  // whoever serves and would go on if the test failed
  const xenbus::device_identity identity_{
      .frontend_domain = guest_domain, .type = "vbd", .device = blk::xvd('a')};
  std::filesystem::path path_;
  std::filesystem::path journals_{path_.string() + ".journals"};
  platform::emulated_host host_;
  platform::emulated_guest guest_;
  platform::emulated dom0_;
  platform::emulated_store toolstack_;
};

class KilledBackend : public disk_of_mortals,
                      public ::testing::WithParamInterface<std::tuple<stage, const char*>> {
 protected:
  KilledBackend() : disk_of_mortals(std::get<1>(GetParam())) {}
};

TEST_P(KilledBackend, loses_nothing_acknowledged_and_leaves_nothing_behind) {
  const pid_t child = serve(std::get<0>(GetParam()), 40);
  ASSERT_GT(child, 0);
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  const auto acknowledged = write_until_silence(front);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;

  // The toolstack notices, and takes the device away from the frontend.
  xenbus::request_unplug(toolstack_, front.path());
  toolstack_.write(xenbus::join(front.path().backend(), "state"), "6");
  EXPECT_TRUE(front.process_until([&] { return front.released(); }, std::chrono::seconds(10)))
      << "the frontend sees a closed device, and can end all its grants";
  EXPECT_EQ(front.violations_text(), "");

  // What was acknowledged is in the image; a later version that was not acknowledged may be.
  std::FILE* file = std::fopen(path_.c_str(), "r");
  for (std::uint64_t block = 0; block < blocks; ++block) {
    std::uint64_t version = 0;
    ASSERT_EQ(std::fseek(file, static_cast<long>(block * 4096), SEEK_SET), 0);
    ASSERT_EQ(std::fread(&version, sizeof version, 1, file), 1U);
    EXPECT_GE(version, acknowledged[block]) << "block " << block;
  }
  std::fclose(file);

  // A new backend, a new connection: nothing of the old one is in the way.
  plug_in();
  const pid_t next = serve(stage::notified, 0);
  testing::strict_frontend again(host_, identity_);
  ASSERT_TRUE(again.connect()) << again.error();
  EXPECT_TRUE(again.close());
  EXPECT_EQ(again.violations_text(), "");
  xenbus::force_remove(toolstack_, again.path());
  ASSERT_EQ(::waitpid(next, &status, 0), next);
  EXPECT_EQ(status, 0);
}

class SucceededBackend : public KilledBackend {};

TEST_P(SucceededBackend, with_a_journal_the_guest_notices_a_pause_only) {
  constexpr int deaths_wanted = 4;
  const mapped_file shared = mapped_file::anonymous(sizeof(std::atomic<int>));
  auto& deaths = *new (shared.memory().data()) std::atomic<int>(0);
  const pid_t keeper = serve_mortals(std::get<0>(GetParam()), deaths, deaths_wanted);
  ASSERT_GT(keeper, 0);
  testing::strict_frontend front(host_, identity_, {.queues = 2, .guard_pages = true});
  ASSERT_TRUE(front.connect()) << front.error();
  ASSERT_EQ(front.queue_count(), 2U);
  testing::block_model models[2]{{0, half}, {half, half}};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto use = [&](std::uint32_t queue) {
    testing::block_load load(front.queue(queue), {{.model = &models[queue]}},
                             {.seed = 5 + queue,
                              .write_percent = 60,
                              .discard_percent = 5,
                              .requests_per_flush = 20,
                              .largest_sectors = 256,
                              .scattered = true});
    std::uint64_t requests = 0;
    while (deaths.load() < deaths_wanted && std::chrono::steady_clock::now() < end) {
      load.run_requests(requests += 100);
    }
    load.run_requests(requests + 300);  // and the last one serves as if nothing had been
  };
  auto other = std::async(std::launch::async, use, 1);
  use(0);
  other.get();
  EXPECT_EQ(deaths.load(), deaths_wanted);
  EXPECT_TRUE(front.connected());
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
  xenbus::force_remove(toolstack_, front.path());
  int status = 0;
  ASSERT_EQ(::waitpid(keeper, &status, 0), keeper);
  keeper_ = 0;
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(journals_)) << "a device that was closed needs none";

  std::ifstream file(path_, std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(content.size(), blocks * 4096);
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto bytes = std::as_bytes(std::span(content)).subspan(i * half * 512, half * 512);
    const auto wrong = models[i].check(i * half, bytes);
    EXPECT_FALSE(wrong) << wrong->what;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<stage, const char*>>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(
    at_each_stage, KilledBackend,
    ::testing::Combine(::testing::Values(stage::seen, stage::acquired, stage::submitted,
                                         stage::completed, stage::responded, stage::notified),
                       ::testing::Values("batched_copy", "persistent_pool", "map_each")),
    name_of);
INSTANTIATE_TEST_SUITE_P(at_each_stage, SucceededBackend,
                         ::testing::Combine(::testing::Values(stage::seen, stage::acquired,
                                                              stage::submitted, stage::completed,
                                                              stage::responded, stage::notified),
                                            ::testing::Values("batched_copy", "persistent_pool")),
                         name_of);

// --- what a successor finds may be anything
// ----------------------------------------------------------------------------------------------

class Successor : public disk_of_mortals {
 protected:
  explicit Successor(const char* strategy = "batched_copy") : disk_of_mortals(strategy) {
    std::filesystem::create_directory(journals_);
    start();
  }

  void start() { keeper_ = serve(stage::notified, 0, journals_.string()); }
  void kill_it() { kill(std::exchange(keeper_, 0)); }
  // The device is taken away, and whoever serves it ends well.
  void expect_good_end() {
    xenbus::force_remove(toolstack_, xenbus::device_path(identity_));
    int status = -1;
    const pid_t process = std::exchange(keeper_, 0);
    ASSERT_EQ(::waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(std::filesystem::is_empty(journals_));
  }
  [[nodiscard]] std::filesystem::path journal(int queue) const {
    return journals_ / ("vbd-0-5-51712-" + std::to_string(queue));
  }
  [[nodiscard]] std::string reason() {
    return toolstack_.read(xenbus::device_path(identity_).backend_error()).value_or("");
  }
  // What the successor says where it cannot continue.
  [[nodiscard]] bool is_refused(testing::strict_frontend& front) {
    return front.process_until([&] { return front.released(); }, std::chrono::seconds(10));
  }

  [[nodiscard]] static bool comes_back(testing::strict_frontend& front) {
    front.reopen();
    return front.process_until([&] { return front.connected(); }, std::chrono::seconds(10));
  }

  // Soon, that is: what the frontend sees may come first.
  [[nodiscard]] bool are_removed() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!std::filesystem::is_empty(journals_) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::filesystem::is_empty(journals_);
  }

  static void overwrite(const std::filesystem::path& file, std::streamoff at,
                        const std::vector<std::uint64_t>& words) {
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(at);
    out.write(reinterpret_cast<const char*>(words.data()),
              static_cast<std::streamsize>(words.size() * sizeof words[0]));
  }
};

struct damage {
  const char* name;
  void (*perform)(const std::filesystem::path& first, const std::filesystem::path& second);
  const char* reason;
};

const damage damages[] = {
    {"missing", [](const auto& /*first*/, const auto& second) { std::filesystem::remove(second); },
     "is not there"},
    {"shorter",
     [](const auto& /*first*/, const auto& second) { std::filesystem::resize_file(second, 4096); },
     "not one of this ring"},
    {"empty",
     [](const auto& first, const auto& /*second*/) { std::filesystem::resize_file(first, 0); },
     "not one of this ring"},
    {"not_finished",
     [](const auto& /*first*/, const auto& second) {
       const auto bytes = std::filesystem::file_size(second);
       std::filesystem::resize_file(second, 0);
       std::filesystem::resize_file(second, bytes);
     },
     "was not finished"},
    {"of_another_queue",
     [](const auto& first, const auto& second) {
       std::filesystem::remove(second);
       std::filesystem::copy_file(first, second);
     },
     "belongs to another connection"},
};

TEST_F(Successor, names_what_is_wrong_with_a_journal_and_has_the_guest_connect_anew) {
  testing::strict_frontend front(host_, identity_, {.queues = 2});
  for (const damage& one : damages) {
    ASSERT_TRUE(front.process_until([&] { return front.connected(); }, std::chrono::seconds(10)))
        << one.name << ": " << reason();
    ASSERT_TRUE(std::filesystem::exists(journal(0)) && std::filesystem::exists(journal(1)));
    kill_it();
    one.perform(journal(0), journal(1));
    start();
    ASSERT_TRUE(is_refused(front)) << one.name;
    EXPECT_NE(reason().find(one.reason), std::string::npos) << one.name << ": " << reason();
    EXPECT_TRUE(are_removed()) << one.name << ": of no use to anybody";
    front.reopen();
  }
  ASSERT_TRUE(front.process_until([&] { return front.connected(); }, std::chrono::seconds(10)));
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
  expect_good_end();
}

class SuccessorThatMaps : public Successor {
 protected:
  SuccessorThatMaps() : Successor("map_each") {}
};

// On Linux the dead one's pages may be mapped still, and an answer would say that they are not.
TEST_F(SuccessorThatMaps, has_the_guest_connect_anew) {
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  start();
  ASSERT_TRUE(is_refused(front));
  EXPECT_NE(reason().find("map_each"), std::string::npos) << reason();
  ASSERT_TRUE(comes_back(front));
  kill_it();
  strategy_ = "batched_copy";
  start();
  ASSERT_TRUE(is_refused(front)) << "it is the dead one's that matters";
  EXPECT_NE(reason().find("belongs to another connection"), std::string::npos) << reason();
  ASSERT_TRUE(comes_back(front));
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
  expect_good_end();
}

class SuccessorThatKeepsPages : public Successor {
 protected:
  SuccessorThatKeepsPages() : Successor("persistent_pool") {}
  ~SuccessorThatKeepsPages() override { doubtful_image::io_outlives_process = false; }
};

TEST_F(SuccessorThatKeepsPages, continues_where_io_ends_with_its_process) {
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  start();
  ASSERT_TRUE(front.queue(0).submit({.operation = protocol::blkif::operation::flush},
                                    [](std::size_t, std::span<std::byte>) {}));
  front.queue(0).publish();
  int ended = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (ended == 0 && std::chrono::steady_clock::now() < end) {
    front.queue(0).poll([&](const testing::block_completion&) { ++ended; });
    front.queue(0).wait(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(front.connected());
  EXPECT_EQ(reason(), "");
  EXPECT_TRUE(front.close());
  expect_good_end();
}

// The dead one's reads may still be on their way into the guest's pages, and nothing tells when
// that is over where only reads are in flight.
TEST_F(SuccessorThatKeepsPages, has_the_guest_connect_anew_where_io_outlives_its_process) {
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  doubtful_image::io_outlives_process = true;
  start();
  ASSERT_TRUE(is_refused(front));
  EXPECT_NE(reason().find("persistent_pool"), std::string::npos) << reason();
  ASSERT_TRUE(comes_back(front));
  kill_it();
  doubtful_image::io_outlives_process = false;
  start();
  ASSERT_TRUE(is_refused(front)) << "it is the dead one's that matters";
  EXPECT_NE(reason().find("belongs to another connection"), std::string::npos) << reason();
  ASSERT_TRUE(comes_back(front));
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
  expect_good_end();
}

TEST_F(Successor, survives_a_journal_of_any_content) {
  testing::strict_frontend front(host_, identity_);
  std::mt19937_64 random(17);
  for (int round = 0; round < 12; ++round) {
    ASSERT_TRUE(front.process_until([&] { return front.connected(); }, std::chrono::seconds(10)));
    kill_it();
    std::vector<std::uint64_t> noise(std::filesystem::file_size(journal(0)) / 8);
    std::ranges::generate(noise, random);
    if (round % 2 != 0) {
      noise.resize(2);  // only the two indices, behind what says whose it is
    }
    overwrite(journal(0), round % 2 != 0 ? 24 : 0, noise);
    start();
    ASSERT_TRUE(is_refused(front));
    EXPECT_NE(reason().find("journal"), std::string::npos) << reason();
    front.reopen();
  }
  ASSERT_TRUE(front.process_until([&] { return front.connected(); }, std::chrono::seconds(10)));
  EXPECT_TRUE(front.close());
  expect_good_end();
}

TEST_F(Successor, does_not_touch_what_a_guest_left_that_closed_meanwhile) {
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  front.begin_close();
  front.process();
  start();
  EXPECT_TRUE(front.close());
  EXPECT_EQ(front.violations_text(), "");
  expect_good_end();
}

TEST_F(Successor, ends_where_the_guest_is_gone) {
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  toolstack_.remove(xenbus::device_path(identity_).frontend());
  start();
  expect_good_end();
}

TEST_F(Successor, tells_the_guest_of_a_size_that_changed_meanwhile) {
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  std::filesystem::resize_file(path_, 2 * blocks * 4096);
  start();
  EXPECT_TRUE(front.process_until([&] { return front.device().sectors == 2 * blocks * 8; },
                                  std::chrono::seconds(10)));
  EXPECT_TRUE(front.close());
  expect_good_end();
}

// Everything in the ring is the guest's to write, also while nobody looks.
TEST_F(Successor, takes_its_own_word_for_what_was_answered) {
  testing::scripted_frontend front(host_, identity_);
  front.write_good_nodes();
  front.go(protocol::xenbus_state::initialised);
  ASSERT_TRUE(front.wait_for_backend(protocol::xenbus_state::connected));
  front.go(protocol::xenbus_state::connected);
  const protocol::blkif::request flush{.operation = protocol::blkif::operation::flush};
  front.put(flush);
  front.put(flush);
  ASSERT_TRUE(front.wait_for_responses(2));
  kill_it();
  const ring::shared_index<std::uint32_t> rsp_prod(
      &front.ring()[offsetof(protocol::ring_indices<>, rsp_prod)]);
  rsp_prod.store(0x1234, std::memory_order_relaxed);
  front.put(flush);
  start();
  EXPECT_TRUE(front.wait_for_responses(3));
  kill_it();
  rsp_prod.store(0, std::memory_order_relaxed);
  front.set_request_producer(3 + 1000);
  start();
  ASSERT_TRUE(front.wait_for_backend(protocol::xenbus_state::closing));
  EXPECT_NE(reason().find("the ring of domain 5 does not fit its journal"), std::string::npos)
      << reason();
  EXPECT_EQ(rsp_prod.load(std::memory_order_relaxed), 0U) << "it is another ring";
  expect_good_end();
}

// Of a device with two queues, where the second cannot be continued: the first is not begun.
TEST_F(Successor, does_nothing_again_where_another_queue_cannot_be_continued) {
  testing::strict_frontend front(host_, identity_, {.queues = 2});
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  // A discard that the dead one had taken and not answered, as its journal would have it.
  protocol::blkif::request discard{};
  discard.operation = protocol::blkif::operation::discard;
  discard.nr_sectors = untrusted<std::uint64_t>(8);
  std::ofstream(path_, std::ios::in | std::ios::out) << std::string(4096, 'k');
  {
    auto left = mapped_file::open(journal(0).string(), std::filesystem::file_size(journal(0)));
    ASSERT_TRUE(left);
    constexpr std::size_t slots = 32;
    ring::shared_journal::bind<protocol::blkif::request> kept(left->memory(), slots);
    std::uint64_t length = 0;
    std::memcpy(&length, left->memory().data() + 48, sizeof length);
    ASSERT_EQ(kept.open(left->memory().subspan(56, length)), ring::journal_finding::usable);
    kept.record(3, 0, discard);
    kept.commit(1);
  }
  std::filesystem::remove(journal(1));
  ASSERT_TRUE(front.queue(0).submit({.operation = protocol::blkif::operation::flush},
                                    [](std::size_t, std::span<std::byte>) {}));
  front.queue(0).publish();  // so that the ring fits
  start();
  EXPECT_TRUE(front.process_until([&] { return !reason().empty(); }, std::chrono::seconds(10)));
  EXPECT_NE(reason().find("is not there"), std::string::npos) << reason();
  std::string content(4096, '-');
  std::ifstream(path_).read(content.data(), 4096);
  EXPECT_EQ(content, std::string(4096, 'k'));
  expect_good_end();
}

// What was acknowledged may be gone, whoever serves the guest from now on.
TEST_F(Successor, remembers_a_failed_flush_also_where_it_cannot_continue) {
  testing::strict_frontend front(host_, identity_, {.queues = 2});
  ASSERT_TRUE(front.connect()) << front.error();
  kill_it();
  constexpr std::streamoff failed = 5 * sizeof(std::uint64_t);
  overwrite(journal(1), failed, {1});
  std::filesystem::remove(journal(0));
  start();
  ASSERT_TRUE(is_refused(front));
  ASSERT_TRUE(comes_back(front));
  ASSERT_TRUE(front.queue(0).submit({.operation = protocol::blkif::operation::flush},
                                    [](std::size_t, std::span<std::byte>) {}));
  front.queue(0).publish();
  int ended = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (ended == 0 && std::chrono::steady_clock::now() < end) {
    front.queue(0).poll([&](const testing::block_completion& done) {
      ++ended;
      EXPECT_FALSE(done.okay()) << "a flush after one that failed";
    });
    front.queue(0).wait(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(front.close());
  expect_good_end();
}

TEST_F(Successor, leaves_no_journal_of_a_connection_that_did_not_come_about) {
  for (int i = 0; i < 3; ++i) {
    testing::strict_frontend front(host_, identity_, {.ring_start = 7});  // not to be followed
    EXPECT_FALSE(front.connect());
    EXPECT_TRUE(are_removed());
    EXPECT_TRUE(front.close());
    front.reopen();
  }
  expect_good_end();
}

TEST_F(Successor, waits_for_no_second_process_on_the_image) {
  testing::strict_frontend front(host_, identity_);
  ASSERT_TRUE(front.connect()) << front.error();
  try {
    const aio::file_image again(path_, {.sharing = aio::image_sharing::guarded});
    ADD_FAILURE() << "two processes write one image";
  } catch (const aio::image_busy& busy) {
    EXPECT_NE(std::string(busy.what()).find(path_.string()), std::string::npos) << busy.what();
  }
  EXPECT_TRUE(front.close());
  expect_good_end();
}

TEST_F(Successor, waits_for_the_end_of_a_process_that_may_still_have_the_guests_pages) {
  const std::filesystem::path directory = path_.string() + ".other";
  std::filesystem::create_directory(directory);
  const std::filesystem::path image_path = directory / "image";
  std::ofstream(image_path) << std::string(4096, 'x');
  {
    const mapped_file held =
        mapped_file::create((directory / "vbd-0-5-51712-1").string(), 4096);  // the second queue's
    const platform::emulated_host other = platform::emulated_host::create();
    platform::emulated dom0(other);
    doubtful_image image(image_path, {.sharing = aio::image_sharing::guarded});
    try {
      const blk::backend<mortal_config> disk(dom0, {.domain = 5, .device = identity_.device}, image,
                                             {.journal_directory = directory.string()});
      ADD_FAILURE() << "it does not know what that process maps";
    } catch (const in_use_error& busy) {
      EXPECT_NE(std::string(busy.what()).find(held.path()), std::string::npos) << busy.what();
    }
    EXPECT_TRUE(std::filesystem::exists(held.path())) << "and it is needed again";
  }
  std::filesystem::remove_all(directory);
}

TEST_F(Successor, needs_a_guarded_image) {
  const platform::emulated_host other = platform::emulated_host::create();
  platform::emulated dom0(other);
  doubtful_image image(path_);
  try {
    const blk::backend<mortal_config> disk(dom0, {.domain = 5, .device = identity_.device}, image,
                                           {.journal_directory = journals_.string()});
    ADD_FAILURE() << "I/O of a dead process could land on what is newer";
  } catch (const configuration_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("not guarded"), std::string::npos) << refused.what();
  }
}

}  // namespace
}  // namespace pvring::test
