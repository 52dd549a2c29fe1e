// SPDX-License-Identifier: MIT
// Micro benchmarks of the I/O engines, typed over all of them: a batch of transfers submitted and
// reaped. Every one reads known bytes and looks at them.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pvring/aio/inline_engine.hpp"
#include "pvring/aio/libaio.hpp"
#include "pvring/aio/mailbox.hpp"
#include "pvring/aio/memory.hpp"
#if __has_include(<liburing.h>)
#include "pvring/aio/uring.hpp"
#endif

namespace {

namespace aio = pvring::aio;

constexpr std::size_t most = 128;
constexpr std::size_t block = 4096;
constexpr std::uint64_t image_bytes = 1U << 20U;

std::byte expected(std::uint64_t offset) { return static_cast<std::byte>(offset / block + 1); }

/// Page-aligned buffers, one per transfer.
class buffers {
 public:
  buffers() : memory_(static_cast<std::byte*>(std::aligned_alloc(block, most * block))) {
    std::memset(memory_, 0, most * block);
  }
  buffers(const buffers&) = delete;
  buffers& operator=(const buffers&) = delete;
  ~buffers() { std::free(memory_); }
  [[nodiscard]] std::byte* at(std::size_t i) const { return memory_ + i * block; }

 private:
  std::byte* memory_;
};

template <class Context>
void read_batches(benchmark::State& state, Context& context, const buffers& memory) {
  const auto depth = static_cast<std::size_t>(state.range(0));
  std::array<aio::transfer, most> transfers{};
  std::array<iovec, most> vectors{};
  std::vector<aio::transfer*> batch;
  for (std::size_t i = 0; i < depth; ++i) {
    vectors[i] = {memory.at(i), block};
    transfers[i].kind = aio::operation::read;
    transfers[i].offset = i * block % image_bytes;
    transfers[i].length = block;
    transfers[i].buffers = {&vectors[i], 1};
    batch.push_back(&transfers[i]);
  }
  std::uint64_t good = 0;
  for (auto _ : state) {
    context.submit(batch);
    while (context.in_flight() != 0) {
      (void)context.reap([&](aio::transfer& t, int error) noexcept {
        good += error == 0 && *static_cast<const std::byte*>(t.buffers.front().iov_base) ==
                                  expected(t.offset)
                    ? 1
                    : 0;
      });
    }
  }
  if (good != static_cast<std::uint64_t>(state.iterations()) * depth) {
    state.SkipWithError("a transfer failed or brought wrong bytes");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(good));
}

template <class Context>
void read_batches(benchmark::State& state, Context& context) {
  const buffers memory;
  read_batches(state, context, memory);
}

void count_calls(benchmark::State& state, const aio::counters& calls) {
  state.counters["calls_per_transfer"] =
      static_cast<double>(calls.submit_calls.get() + calls.reap_calls.get() +
                          calls.other_calls.get()) /
      static_cast<double>(calls.transfers.get());
}

void memory_engine(benchmark::State& state) {
  aio::memory_image image(image_bytes);
  for (std::uint64_t at = 0; at < image_bytes; ++at) {
    image.bytes()[at] = expected(at);
  }
  aio::memory::context context(image, {.capacity = most});
  read_batches(state, context);
}
BENCHMARK(memory_engine)->Arg(1)->Arg(32)->Arg(128);

struct filler {
  int operator()(aio::operation, std::uint64_t offset, std::span<const iovec> parts,
                 std::uint64_t) noexcept {
    *static_cast<std::byte*>(parts.front().iov_base) = expected(offset);
    return 0;
  }
};
void inline_engine(benchmark::State& state) {
  aio::inline_image<filler> image(filler{}, {.size = image_bytes});
  aio::inline_engine<filler>::context context(image, {.capacity = most});
  read_batches(state, context);
}
BENCHMARK(inline_engine)->Arg(1)->Arg(32)->Arg(128);

/// A file in memory where there is such a file system, else in the temporary folder.
class scratch {
 public:
  scratch()
      : path_(::access("/dev/shm", W_OK) == 0 ? "/dev/shm/pvring-bench-XXXXXX"
                                              : "/tmp/pvring-bench-XXXXXX") {
    const int fd = ::mkstemp(path_.data());
    std::vector<std::byte> bytes(image_bytes);
    for (std::uint64_t at = 0; at < image_bytes; ++at) {
      bytes[at] = expected(at);
    }
    [[maybe_unused]] const auto written = ::write(fd, bytes.data(), bytes.size());
    (void)::close(fd);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() { (void)::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <aio::reap_mode Reap>
void libaio(benchmark::State& state) {
  const scratch file;
  aio::file_image image(file.path());
  aio::libaio::context context(image, {.capacity = most, .reap = Reap});
  read_batches(state, context);
  count_calls(state, context.counters());
}
BENCHMARK_TEMPLATE(libaio, aio::reap_mode::user_space)->Arg(1)->Arg(32)->Arg(128);
BENCHMARK_TEMPLATE(libaio, aio::reap_mode::system_call)->Arg(1)->Arg(32)->Arg(128);

#if __has_include(<liburing.h>)
/// \tparam Registered whether the buffers are one region that the kernel knows
template <bool Registered>
void uring(benchmark::State& state) {
  const scratch file;
  aio::uring_image image(file.path());
  aio::uring::context context(image, {.capacity = most});
  const buffers memory;
  if (Registered) {
    context.expect_buffers_in({memory.at(0), most * block});
  }
  read_batches(state, context, memory);
  count_calls(state, context.counters());
}
BENCHMARK_TEMPLATE(uring, false)->Arg(1)->Arg(32)->Arg(128);
BENCHMARK_TEMPLATE(uring, true)->Arg(1)->Arg(32)->Arg(128);
#endif

/// One handle through the mailbox, the consumer awake.
void mailbox(benchmark::State& state) {
  aio::mailbox<std::uint32_t> box(64);
  std::uint64_t sum = 0;
  std::uint32_t next = 0;
  std::uint64_t wanted = 0;
  for (auto _ : state) {
    box.push(next);
    wanted += next++;
    std::uint32_t got = 0;
    sum += box.pop(got) ? got : 0;
  }
  if (sum != wanted) {
    state.SkipWithError("handles are not those sent");
  }
}
BENCHMARK(mailbox);

}  // namespace
