// SPDX-License-Identifier: MIT
// The guest's side, as strict as Linux's: reads the whole disk, writes one block with what it
// holds, and closes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <pvring/testing/strict_frontend.hpp>
#include <thread>
#include <vector>

#include "device_name.hpp"
#include "host_socket.hpp"
#include "settings.hpp"

namespace tool {
namespace {

namespace testing = pvring::testing;
namespace operation = pvring::protocol::blkif::operation;
using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::uint64_t sector_bytes = 512;
constexpr std::uint64_t chunk_sectors = 256;
constexpr std::size_t depth = 32;
constexpr auto patience = 30s;

class guest {
 public:
  guest(const try_settings& wanted, const signals& stop)
      : wanted_(wanted),
        stop_(stop),
        host_(join_host(wanted.socket)),
        front_(checked(host_, wanted),
               {.frontend_domain = wanted.domain, .type = "vbd", .device = wanted.device},
               {.queues = wanted.queues,
                .ring_page_order = wanted.ring_order,
                .max_indirect_segments = 256}) {
    if (!wanted.copy_to.empty()) {
      copy_.reset(::open(wanted.copy_to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
      if (!copy_) {
        throw pvring::configuration_error("option --copy-to is '" + wanted.copy_to +
                                          "': " + std::strerror(errno) +
                                          "; name a file that this process may write");
      }
    }
  }

  exit_code run() {
    if (!front_.connect(10s)) {
      throw command_error(no_answer, "the disk does not connect: " +
                                         (front_.error().empty()
                                              ? "the backend's state is " +
                                                    std::string(to_string(front_.backend_state()))
                                              : front_.error()) +
                                         "; see pvring-blk list");
    }
    sectors_ = front_.device().sectors;
    std::printf("connected: %.1f MiB, %u queues of %u ring pages\n",
                static_cast<double>(sectors_ * sector_bytes) / (1024 * 1024), front_.queue_count(),
                front_.ring_pages());
    (void)std::fflush(stdout);
    const auto until = clock::now() + std::chrono::duration_cast<clock::duration>(
                                          std::chrono::duration<double>(wanted_.seconds));
    do {
      read_all();
    } while (clock::now() < until && !interrupted_);
    if ((front_.device().info & pvring::protocol::blkif::info::read_only) == 0) {
      write_block();
    }
    if (!front_.close(10s)) {
      throw command_error(no_answer, "the backend does not close: its state is " +
                                         std::string(to_string(front_.backend_state())));
    }
    check_protocol();
    std::printf("closed\n");
    return fine;
  }

 private:
  static const pvring::platform::emulated_host& checked(const pvring::platform::emulated_host& host,
                                                        const try_settings& wanted) {
    if (!host.has_domain(wanted.domain)) {
      throw command_error(wrong_device, "there is no domain " + std::to_string(wanted.domain) +
                                            ": it is made by pvring-blk attach");
    }
    auto store = host.domain(wanted.domain).open_store();
    const pvring::xenbus::device_path path(
        {.frontend_domain = wanted.domain, .type = "vbd", .device = wanted.device});
    const std::string node = pvring::xenbus::join(path.frontend(), "state");
    const auto state = store.read(node);
    if (!state) {
      throw command_error(wrong_device, "domain " + std::to_string(wanted.domain) + " has no " +
                                            device_name(wanted.device) + ": see pvring-blk list");
    }
    if (*state == "6") {
      store.write(node, "1");  // as a guest's driver that is loaded again
    }
    return host;
  }

  void check_protocol() const {
    if (!front_.violations().empty()) {
      throw command_error(wrong_data,
                          "the backend broke the protocol: " + front_.violations_text());
    }
  }

  // Every queue reads each so-many-th chunk, in a thread of its own; this thread follows the store.
  void read_all() {
    const std::uint32_t queues = front_.queue_count();
    std::vector<std::exception_ptr> failures(queues);
    std::atomic<std::uint32_t> running{queues};
    const auto start = clock::now();
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t i = 0; i < queues; ++i) {
        threads.emplace_back([&, i] {
          try {
            read_share(front_.queue(i), i, queues);
          } catch (...) {
            failures[i] = std::current_exception();
          }
          --running;
        });
      }
      while (running != 0) {
        (void)front_.process_until([&] { return running == 0; }, 10ms);
        interrupted_ = interrupted_ || stop_.next().has_value();
      }
    }
    for (const std::exception_ptr& failure : failures) {
      if (failure) {
        std::rethrow_exception(failure);
      }
    }
    check_protocol();
    const std::chrono::duration<double> took = clock::now() - start;
    std::printf("read the whole disk: %.0f MB/s\n",
                static_cast<double>(sectors_ * sector_bytes) / took.count() / 1e6);
    (void)std::fflush(stdout);
  }

  void read_share(testing::strict_queue& queue, std::uint32_t index, std::uint32_t queues) {
    const std::uint64_t step = std::min<std::uint64_t>(chunk_sectors, queue.max_segments() * 8);
    std::vector<testing::block_segment> segments;
    std::uint64_t next = index * step;
    std::size_t in_flight = 0;
    auto heard = clock::now();
    while (next < sectors_ || in_flight != 0) {
      while (next < sectors_ && in_flight < depth) {
        segments.clear();
        testing::append_segments(segments, std::min(step, sectors_ - next));
        if (!queue.submit({.sector = next, .segments = segments})) {
          break;
        }
        ++in_flight;
        next += queues * step;
      }
      (void)queue.publish();
      const std::size_t ended = queue.poll([&](const testing::block_completion& end) {
        --in_flight;
        keep(end);
      });
      if (ended != 0) {
        heard = clock::now();
      } else if (in_flight == 0 && next < sectors_ && queue.closing()) {
        throw command_error(failed, "the backend closed the disk while it was read");
      } else if (clock::now() - heard > patience) {
        throw command_error(
            no_answer, "no answer for 30 seconds while reading sector " + std::to_string(next));
      } else {
        (void)queue.wait(100ms);
      }
    }
  }

  void keep(const testing::block_completion& end) {
    if (!end.answered) {
      throw command_error(failed, "the backend closed the disk while it was read");
    }
    if (!end.okay()) {
      throw command_error(failed, "reading sector " + std::to_string(end.sector) +
                                      " failed with status " + std::to_string(end.status));
    }
    if (copy_) {
      std::vector<std::byte> bytes(end.sectors * sector_bytes);
      end.copy_to(bytes);
      if (::pwrite(copy_.get(), bytes.data(), bytes.size(),
                   static_cast<off_t>(end.sector * sector_bytes)) !=
          static_cast<ssize_t>(bytes.size())) {
        throw command_error(failed, "writing " + wanted_.copy_to + ": " + std::strerror(errno));
      }
    }
  }

  // Reads a block, writes the same, reads it again.
  void write_block() {
    const std::uint64_t count = std::min<std::uint64_t>(8, sectors_);
    std::vector<std::byte> before(count * sector_bytes);
    std::vector<std::byte> after(before.size());
    one_request(operation::read, count, before);
    one_request(operation::write, count, before);
    if (front_.device().flush) {
      one_request(operation::flush, 0, {});
    }
    one_request(operation::read, count, after);
    if (before != after) {
      throw command_error(wrong_data, "sector 0 holds something else than what was written");
    }
    std::printf("wrote a block with its own content, and read it back\n");
  }

  void one_request(std::uint8_t what, std::uint64_t count, std::span<std::byte> data) {
    testing::strict_queue& queue = front_.queue(0);
    const auto segments = testing::segments_for(count);
    const testing::block_request request{.operation = what, .segments = segments};
    const bool sent = what == operation::write
                          ? queue.submit(request, std::span<const std::byte>(data)).has_value()
                          : queue.submit(request).has_value();
    (void)queue.publish();
    const auto start = clock::now();
    bool ended = !sent;
    bool okay = false;
    while (!ended && clock::now() - start < patience) {
      front_.process();
      (void)queue.poll([&](const testing::block_completion& end) {
        ended = true;
        okay = end.okay();
        if (okay && what == operation::read) {
          end.copy_to(data);
        }
      });
      if (!ended) {
        (void)queue.wait(100ms);
      }
    }
    if (!okay) {
      throw command_error(ended ? failed : no_answer,
                          "operation " + std::to_string(what) + " at sector 0 " +
                              (ended ? "failed" : "got no answer within 30 seconds"));
    }
  }

  try_settings wanted_;
  const signals& stop_;
  pvring::platform::emulated_host host_;
  testing::strict_frontend front_;
  pvring::unique_fd copy_;
  std::uint64_t sectors_ = 0;
  bool interrupted_ = false;
};

}  // namespace

exit_code try_disk(const try_settings& wanted, const signals& stop) {
  return guest(wanted, stop).run();
}

}  // namespace tool
