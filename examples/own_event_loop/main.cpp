// SPDX-License-Identifier: MIT
// A block backend inside an event loop of one's own: one thread, one epoll, no thread of the
// library's. The loop serves the store and every queue; a guest on another thread writes and reads
// back.
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <pvring/aio/memory.hpp>
#include <pvring/blk/backend.hpp>
#include <pvring/testing/strict_frontend.hpp>
#include <pvring/xenbus/toolstack.hpp>
#include <thread>
#include <vector>

namespace {

namespace blk = pvring::blk;
namespace platform = pvring::platform;

struct config : pvring::default_config {
  using engine = pvring::aio::memory;
};
static_assert(pvring::backend_config<config>);

constexpr pvring::domain_id guest_domain = 1;

// Everything the loop sleeps on, set up anew when the queues have changed.
class event_loop {
 public:
  explicit event_loop(blk::backend<config>& disk)
      : disk_(disk), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    add(disk.fd());
  }

  void run() {
    std::uint64_t watching = 0;
    while (disk_.process()) {
      bool may_sleep = true;
      int timeout = -1;
      for (const auto& queue : disk_.queues()) {
        if (!queue->turn()) {
          may_sleep = false;  // there is more to do: look at the store, and come back
          continue;
        }
        const int wanted = queue->timeout_ms();
        timeout = timeout < 0 ? wanted : wanted < 0 ? timeout : std::min(wanted, timeout);
      }
      if (!may_sleep) {
        continue;
      }
      if (watching != disk_.connections()) {
        watching =
            disk_.connections();  // those of earlier queues left the set when they were closed
        for (const auto& queue : disk_.queues()) {
          for (const int fd : queue->fds()) {
            add(fd);
          }
        }
      }
      epoll_event ready{};
      if (::epoll_wait(epoll_.get(), &ready, 1, timeout) < 0 && errno != EINTR) {
        std::perror("epoll_wait");
        return;
      }
    }
  }

 private:
  void add(int fd) const {
    epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted) != 0) {
      std::perror("epoll_ctl");
    }
  }
  blk::backend<config>& disk_;
  pvring::unique_fd epoll_;
};

// The guest: writes a pattern, reads it back, compares.
bool write_and_read(pvring::testing::strict_frontend& front) {
  auto& queue = front.queue(0);
  const auto segments = pvring::testing::segments_for(8);
  std::vector<std::byte> pattern(4096);
  std::size_t right = 0;
  for (const std::uint8_t operation :
       {pvring::protocol::blkif::operation::write, pvring::protocol::blkif::operation::read}) {
    for (std::uint64_t block = 0; block < 256; ++block) {
      std::memset(pattern.data(), static_cast<int>(block), pattern.size());
      (void)queue.submit(
          {.operation = operation, .sector = block * 8, .segments = segments, .cookie = block},
          std::span<const std::byte>(pattern));
      (void)queue.publish();
      std::size_t ended = 0;
      while (ended == 0) {
        ended = queue.poll([&](const pvring::testing::block_completion& end) {
          std::vector<std::byte> got(4096);
          end.copy_to(got);
          std::memset(pattern.data(), static_cast<int>(end.cookie), pattern.size());
          const bool written = end.operation == pvring::protocol::blkif::operation::write;
          right += end.okay() && (written || got == pattern) ? 1U : 0U;
        });
        if (ended == 0 && !queue.wait(std::chrono::seconds(5))) {
          return false;
        }
      }
    }
  }
  std::printf("%zu of 512 requests are right\n", right);
  return right == 512;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
int main() {
  const auto host = platform::emulated_host::create();
  const auto guest = host.create_domain(guest_domain);
  platform::emulated dom0(host);
  auto store = dom0.open_store();
  const pvring::xenbus::device_identity device{.frontend_domain = guest_domain,
                                               .device = blk::xvd('a')};
  pvring::xenbus::create_device(store, pvring::xenbus::describe_vbd(device, {}));

  pvring::aio::memory_image image(1 << 20U);
  blk::backend<config> disk(dom0, {.domain = guest_domain, .device = blk::xvd('a')}, image,
                            {.threads = blk::threads::caller});
  std::atomic<bool> right{false};
  std::thread frontend([&] {
    pvring::testing::strict_frontend front(host, device);
    right = front.connect() && write_and_read(front) && front.close() && front.violations().empty();
    disk.stop();
  });
  event_loop(disk).run();
  frontend.join();
  return right ? 0 : 1;
}
