// SPDX-License-Identifier: MIT
// A composition with an engine of one's own (ram_disk.hpp), and a grant strategy of one's own
// (copy_each.hpp) beside the library's: the same guest, the same disk, and how many grant calls
// each strategy needed for the same requests.
#include <cstdio>
#include <pvring/blk/backend.hpp>
#include <pvring/testing/strict_frontend.hpp>
#include <pvring/xenbus/toolstack.hpp>
#include <thread>
#include <vector>

#include "copy_each.hpp"
#include "ram_disk.hpp"

namespace {

namespace blk = pvring::blk;
namespace platform = pvring::platform;

struct config : pvring::default_config {
  using grants = pvring::grant::first_usable<example::copy_each, pvring::grant::batched_copy>;
  using engine = example::ram_disk;
};
static_assert(pvring::backend_config<config>);

constexpr pvring::domain_id guest_domain = 1;
constexpr std::uint32_t rounds = 100;
constexpr std::uint32_t depth = 32;

// Writes in batches of `depth`; how many ended well.
std::size_t load(pvring::testing::strict_frontend& front) {
  auto& queue = front.queue(0);
  const auto segments = pvring::testing::segments_for(8);
  std::size_t good = 0;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::uint64_t block = 0; block < depth; ++block) {
      (void)queue.submit({.operation = pvring::protocol::blkif::operation::write,
                          .sector = block * 8,
                          .segments = segments});
    }
    (void)queue.publish();
    for (std::size_t ended = 0; ended < depth;) {
      const std::size_t now = queue.poll(
          [&](const pvring::testing::block_completion& end) { good += end.okay() ? 1U : 0U; });
      ended += now;
      if (now == 0 && !queue.wait(std::chrono::seconds(5))) {
        return good;
      }
    }
  }
  return good;
}

bool run(const char* strategy) {
  const auto host = platform::emulated_host::create();
  const auto guest = host.create_domain(guest_domain);
  platform::emulated dom0(host);
  auto store = dom0.open_store();
  const pvring::xenbus::device_identity device{.frontend_domain = guest_domain,
                                               .device = blk::xvd('a')};
  pvring::xenbus::create_device(store, pvring::xenbus::describe_vbd(device, {}));

  example::ram_image image(1 << 20U);
  blk::backend<config> disk(dom0, {.domain = guest_domain, .device = blk::xvd('a')}, image,
                            {.strategy = strategy});
  std::thread control([&] { disk.run(); });
  pvring::testing::strict_frontend front(host, device);
  std::size_t good = 0;
  std::uint64_t calls = 0;
  if (front.connect()) {
    good = load(front);
    for (const blk::queue_statistics& queue : disk.statistics()) {
      calls += queue.grant_calls;
    }
  }
  const bool closed = front.close();
  disk.stop();
  control.join();
  std::printf("%-14s %5zu writes, %5llu grant calls, %.3f per write\n", strategy, good,
              static_cast<unsigned long long>(calls),
              static_cast<double>(calls) / (rounds * depth));
  return good == rounds * depth && closed && front.violations().empty();
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
int main() { return run("copy_each") && run("batched_copy") ? 0 : 1; }
