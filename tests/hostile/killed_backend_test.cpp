// SPDX-License-Identifier: MIT
// The backend's process is killed at each stage of the pass, with the frontend in another process.
// Nothing acknowledged is lost, the kernel's part is played by the emulated host (no grant and no
// port stays behind), and a new backend serves the device.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "pvring/aio/file_image.hpp"
#include "pvring/blk/backend.hpp"
#include "pvring/testing/strict_frontend.hpp"
#include "pvring/xenbus/toolstack.hpp"

namespace pvring::test {
namespace {

using observe::stage;

// Kills its own process when a request reaches a stage for the n-th time.
struct fatal {
  using policy_kind = pvring::policy_kind::observer;
  static inline stage where = stage::notified;
  static inline int countdown = 0;  // 0: never

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
      if (countdown != 0 && --countdown == 0) {
        ::kill(::getpid(), SIGKILL);
      }
    }
  };
};

struct mortal_config : default_config {
  using observe = fatal;
};

constexpr domain_id guest_domain = 5;
constexpr std::uint64_t blocks = 256;

class KilledBackend : public ::testing::TestWithParam<std::tuple<stage, const char*>> {
 protected:
  KilledBackend()
      : path_(std::filesystem::temp_directory_path() /
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
  ~KilledBackend() override { std::filesystem::remove(path_); }

  void plug_in() { xenbus::create_device(toolstack_, xenbus::describe_vbd(identity_, {})); }

  // Serves the device in a process of its own until it is over, or killed.
  pid_t serve(stage where, int countdown) const {
    const pid_t child = ::fork();
    if (child != 0) {
      return child;
    }
    fatal::where = where;
    fatal::countdown = countdown;
    try {
      platform::emulated dom0(host_);
      aio::file_image image(path_);
      blk::backend<mortal_config> disk(dom0, {.domain = guest_domain, .device = identity_.device},
                                       image,
                                       {.strategy = std::get<1>(GetParam()),
                                        .allow_unsafe_mapping = true});  // whatever /tmp lies on
      disk.run();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
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

  const xenbus::device_identity identity_{
      .frontend_domain = guest_domain, .type = "vbd", .device = blk::xvd('a')};
  std::filesystem::path path_;
  platform::emulated_host host_;
  platform::emulated_guest guest_;
  platform::emulated dom0_;
  platform::emulated_store toolstack_;
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

std::string name_of(const ::testing::TestParamInfo<std::tuple<stage, const char*>>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(
    at_each_stage, KilledBackend,
    ::testing::Combine(::testing::Values(stage::seen, stage::acquired, stage::submitted,
                                         stage::completed, stage::responded, stage::notified),
                       ::testing::Values("batched_copy", "persistent_pool", "map_each")),
    name_of);

}  // namespace
}  // namespace pvring::test
