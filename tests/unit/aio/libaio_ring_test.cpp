// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <pvring/aio/libaio_ring.hpp>

namespace aio_test {
namespace {

using pvring::aio::detail::completion_ring;
using pvring::aio::detail::completion_ring_header;

/// Ring memory with ourselves as the kernel.
class ring_memory {
 public:
  explicit ring_memory(std::uint32_t nr)
      : room_(std::calloc(1, sizeof(completion_ring_header) + nr * sizeof(io_event))) {
    header().nr = nr;
    header().magic = completion_ring::magic;
    header().header_length = sizeof(completion_ring_header);
  }
  ring_memory(const ring_memory&) = delete;
  ring_memory& operator=(const ring_memory&) = delete;
  ~ring_memory() { std::free(room_); }

  completion_ring_header& header() { return *static_cast<completion_ring_header*>(room_); }
  io_event* events() { return reinterpret_cast<io_event*>(&header() + 1); }
  io_context_t context() { return static_cast<io_context_t>(room_); }

  /// False when the ring is full.
  bool post(iocb* object, unsigned long res) {
    const std::uint32_t tail = header().tail;
    const std::uint32_t next = (tail + 1) % header().nr;
    if (next == std::atomic_ref(header().head).load(std::memory_order_acquire)) {
      return false;
    }
    events()[tail] = {};
    events()[tail].obj = object;
    events()[tail].res = res;
    std::atomic_ref(header().tail).store(next, std::memory_order_release);
    return true;
  }

 private:
  void* room_;
};

// Case 110.
TEST(completion_ring, is_used_only_where_it_is_the_one_we_know) {
  ring_memory ring(8);
  EXPECT_TRUE(completion_ring(ring.context()).usable());
  EXPECT_FALSE(completion_ring(nullptr).usable());
  EXPECT_FALSE(completion_ring().usable());
  ring.header().magic ^= 1;
  EXPECT_FALSE(completion_ring(ring.context()).usable());
  ring.header().magic ^= 1;
  ring.header().incompat_features = 2;
  EXPECT_FALSE(completion_ring(ring.context()).usable());
  ring.header().incompat_features = 0;
  ring.header().compat_features = 3;
  EXPECT_TRUE(completion_ring(ring.context()).usable()) << "compatible ones do not matter";
  ring.header().header_length = 64;
  EXPECT_FALSE(completion_ring(ring.context()).usable());
  ring.header().header_length = 32;
  ring.header().nr = 0;
  EXPECT_FALSE(completion_ring(ring.context()).usable());
}

// Case 110.
TEST(completion_ring, starts_and_wraps_anywhere) {
  for (const std::uint32_t nr : {2U, 3U, 127U, 128U}) {
    for (std::uint32_t start = 0; start < nr; ++start) {
      ring_memory memory(nr);
      memory.header().head = start;
      memory.header().tail = start;
      completion_ring ring(memory.context());
      iocb object{};
      unsigned long next = 0;
      for (unsigned long i = 0; i < nr + 3; ++i) {
        ASSERT_TRUE(memory.post(&object, i));
        EXPECT_FALSE(ring.empty());
        ASSERT_EQ(ring.consume([&](const io_event& event) { EXPECT_EQ(event.res, next++); }), 1U);
        EXPECT_TRUE(ring.empty());
        EXPECT_EQ(memory.header().head, memory.header().tail);
      }
    }
  }
}

TEST(completion_ring, takes_the_kernels_indices_modulo_the_places) {
  ring_memory memory(8);
  memory.header().head = 8 + 3;
  memory.header().tail = 16 + 3;
  completion_ring ring(memory.context());
  EXPECT_TRUE(ring.empty());
}

TEST(completion_ring, takes_a_full_ring) {
  ring_memory memory(8);
  completion_ring ring(memory.context());
  iocb object{};
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(memory.post(&object, 0));
  }
  EXPECT_FALSE(memory.post(&object, 0));
  EXPECT_EQ(ring.consume([](const io_event&) {}), 7U);
  EXPECT_TRUE(memory.post(&object, 0));
}

// Cases 110, 113.
TEST(completion_ring, stops_for_good_at_an_event_without_an_object) {
  ring_memory memory(8);
  completion_ring ring(memory.context());
  iocb object{};
  memory.post(&object, 0);
  memory.post(nullptr, 0);
  memory.post(&object, 0);
  EXPECT_EQ(ring.consume([](const io_event&) {}), 1U);
  EXPECT_FALSE(ring.usable());
  EXPECT_EQ(memory.header().head, 1U) << "the rest is left to the kernel";
}

// Case 110. Under ThreadSanitizer a missing acquire or release in the reader is a reported race:
// the producer reuses places that the reader gave back, and the reader reads events that the tail
// covers.
TEST(completion_ring, orders_its_accesses_with_the_kernels) {
  constexpr unsigned long total = 50000;
  ring_memory memory(7);
  completion_ring ring(memory.context());
  iocb object{};
  std::thread kernel([&] {
    for (unsigned long i = 0; i < total;) {
      if (memory.post(&object, i)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  unsigned long next = 0;
  bool in_order = true;
  while (next < total) {
    const std::size_t n = ring.consume([&](const io_event& event) {
      in_order = in_order && event.res == next && event.obj == &object;
      ++next;
    });
    if (n == 0) {
      std::this_thread::yield();
    }
  }
  kernel.join();
  EXPECT_TRUE(in_order);
  EXPECT_EQ(next, total);
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace aio_test
