// SPDX-License-Identifier: MIT
// Memory that another thread changes while a request is parsed from it: what comes out must be one
// request, whatever the mixture of bytes was. Run under the thread sanitizer this also shows that
// no access is a race. That the compiler emits one load for each byte is shown in tests/codegen.
#include "pvring/ring/shared_access.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>

#include "pvring/protocol/blkif_abi.hpp"

namespace {

namespace blkif = pvring::protocol::blkif;
namespace op = blkif::operation;
using pvring::ring::copy_once;
using pvring::ring::shared_index;
using pvring::ring::slot_sink;
using pvring::ring::slot_source;

struct alignas(8) slot {
  std::byte bytes[112]{};
};

template <class T>
std::atomic_ref<T> at(slot& in, std::size_t offset) {
  return std::atomic_ref<T>(
      *reinterpret_cast<T*>(in.bytes + offset));  // NOLINT(*-reinterpret-cast)
}

TEST(SharedAccess, LoadsAndStoresWordsOfEachWidth) {
  slot memory;
  const slot_sink sink(memory.bytes);
  const slot_source source(memory.bytes);
  sink.store<std::uint64_t>(0, 0x1122334455667788U);
  EXPECT_EQ(source.load<std::uint64_t>(0), 0x1122334455667788U);
  EXPECT_EQ(source.load<std::uint32_t>(4), 0x11223344U);
  EXPECT_EQ(source.load<std::uint16_t>(2), 0x5566U);
  EXPECT_EQ(source.load<std::uint8_t>(7), 0x11U);
  sink.store<std::int16_t>(2, -2);
  EXPECT_EQ(source.load<std::int16_t>(2), -2);
  sink.store<std::uint8_t>(0, 0xff);
  EXPECT_EQ(source.load<std::uint64_t>(0), 0x11223344fffe77ffU);
}

TEST(SharedAccess, IndexIsOneWord) {
  slot memory;
  const shared_index<std::uint32_t> index(memory.bytes + 4);
  index.store(0xfffffffeU, std::memory_order_seq_cst);
  EXPECT_EQ(index.load(std::memory_order_acquire), 0xfffffffeU);
  EXPECT_EQ(slot_source(memory.bytes).load<std::uint32_t>(0), 0U);
  EXPECT_EQ(slot_source(memory.bytes).load<std::uint32_t>(8), 0U);
}

TEST(SharedAccess, CopyIsExactAndNoLonger) {
  slot memory;
  for (std::size_t i = 0; i < sizeof memory.bytes; ++i) {
    memory.bytes[i] = static_cast<std::byte>(i);
  }
  std::array<std::byte, 32> to{};
  to.fill(std::byte{0xee});
  copy_once(to.data(), memory.bytes + 8, 24);
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(to[i], static_cast<std::byte>(i + 8));
  }
  for (std::size_t i = 24; i < 32; ++i) {
    EXPECT_EQ(to[i], std::byte{0xee});
  }
  copy_once(to.data(), memory.bytes, 0);
  EXPECT_EQ(to[0], std::byte{8});
}

// Case 2: entries of an indirect page are judged and used from one snapshot.
TEST(SharedAccess, CopyOfAChangingPageHoldsWholeEntries) {
  struct alignas(4096) page {
    std::byte bytes[4096]{};
  };
  static page shared;
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    for (std::uint64_t n = 1; !stop.load(); ++n) {
      for (std::size_t i = 0; i < 4096; i += 8) {
        std::atomic_ref<std::uint64_t>(
            *reinterpret_cast<std::uint64_t*>(shared.bytes + i))  // NOLINT(*-reinterpret-cast)
            .store(n << 32U | n, std::memory_order_relaxed);
      }
    }
  });
  std::array<std::uint64_t, 512> copy{};
  for (int round = 0; round < 500; ++round) {
    copy_once(copy.data(), shared.bytes, sizeof copy);
    for (const std::uint64_t entry : copy) {
      EXPECT_EQ(entry >> 32U, entry & 0xffffffffU);
    }
  }
  stop.store(true);
  peer.join();
}

template <class Wire>
class ChangingSlot : public testing::Test {
 protected:
  static constexpr std::size_t id_at = offsetof(typename Wire::layout::request, id);
  static constexpr std::uint32_t untouched = 0x7e577e57U;

  // A request in which everything that is not fetched shows.
  static blkif::request marked() {
    blkif::request request{};
    request.nr_segments = pvring::untrusted<std::uint16_t>(0x7e57);
    request.indirect_operation = 0x7e;
    request.flag = 0x7e;
    for (blkif::segment& one : request.direct) {
      one = {untouched, 0x7e, 0x7e, {}};
    }
    for (std::uint32_t& one : request.indirect_grefs) {
      one = untouched;
    }
    return request;
  }

  // Whether what was fetched follows from one operation and one count. Entries of the slot never
  // hold the mark.
  static void expect_consistent(const blkif::request& got) {
    std::size_t segments = 0;
    std::size_t pages = 0;
    const std::uint16_t count = got.nr_segments.echo();
    switch (got.operation) {
      case op::read:
      case op::write:
      case op::write_barrier:
      case op::flush:
        ASSERT_LE(count, 255U);
        segments = count <= 11 ? count : 0;
        ASSERT_EQ(got.indirect_operation, 0x7e);
        ASSERT_EQ(got.flag, 0x7e);
        break;
      case op::indirect:
        pages = count <= 4096 ? (count + 511U) / 512U : 0;
        ASSERT_EQ(got.flag, 0x7e);
        break;
      case op::discard:
        ASSERT_EQ(count, 0x7e57U);
        ASSERT_EQ(got.indirect_operation, 0x7e);
        break;
      default:
        ASSERT_EQ(count, 0x7e57U);
        break;
    }
    for (std::size_t i = 0; i < blkif::max_direct_segments; ++i) {
      ASSERT_EQ(got.direct[i].gref == untouched, i >= segments) << i << " of " << segments;
    }
    for (std::size_t i = 0; i < blkif::max_indirect_pages; ++i) {
      ASSERT_EQ(got.indirect_grefs[i] == untouched, i >= pages) << i << " of " << pages;
    }
  }
};
using wires = testing::Types<blkif::wire<blkif::abi::x86_64>, blkif::wire<blkif::abi::x86_32>>;
TYPED_TEST_SUITE(ChangingSlot, wires);

// Cases 1, 5 and 7: operation and count flip as a whole; each request fetched is one of those that
// were there.
TYPED_TEST(ChangingSlot, RequestIsOneOfThoseThatWereThere) {
  constexpr std::array<std::uint32_t, 6> heads{
      op::read | 1U << 8U,                          // READ, 1 segment
      op::indirect | 1U << 8U | 512U << 16U,        // INDIRECT/WRITE, 512 segments
      op::write | 200U << 8U,                       // WRITE, 200 segments: not a count to loop over
      op::discard | 1U << 8U,                       // DISCARD, secure
      op::indirect | 0xffU << 8U | 0xffffU << 16U,  // INDIRECT with nonsense
      0x04U | 0xffffff00U,                          // an unknown operation
  };
  slot shared;
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    for (std::size_t n = 0; !stop.load(std::memory_order_relaxed); ++n) {
      at<std::uint32_t>(shared, 0).store(heads[n % heads.size()], std::memory_order_relaxed);
    }
  });
  std::array<int, heads.size()> seen{};
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // On a busy machine the peer may not have run at all after so many rounds.
  const auto changed = [&] {
    return std::count(seen.begin(), seen.end(), 0) < static_cast<int>(heads.size()) - 1;
  };
  for (int round = 0; round < 100'000 || (!changed() && std::chrono::steady_clock::now() < give_up);
       ++round) {
    blkif::request got = TestFixture::marked();
    TypeParam::fetch(slot_source(shared.bytes), got);
    this->expect_consistent(got);
    if (this->HasFatalFailure()) {
      break;
    }
    std::uint32_t head = got.operation;
    switch (got.operation) {
      case op::indirect:
        head |= std::uint32_t{got.indirect_operation} << 8U | std::uint32_t{got.nr_segments.echo()}
                                                                  << 16U;
        break;
      case op::discard:
        head |= std::uint32_t{got.flag} << 8U;
        break;
      case 4:
        head |= 0xffffff00U;
        break;
      default:
        head |= std::uint32_t{got.nr_segments.echo()} << 8U;
        break;
    }
    // All zeros is what was there before the peer began.
    bool known = head == 0;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (heads[i] == head) {
        ++seen[i];
        known = true;
      }
    }
    EXPECT_TRUE(known) << std::hex << head;
    if (!known) {
      break;
    }
  }
  stop.store(true);
  peer.join();
  EXPECT_TRUE(changed()) << "the slot did not change under its reader";
}

TYPED_TEST(ChangingSlot, AnyMixtureOfBytesGivesARequestThatIsConsistent) {
  slot shared;
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    std::mt19937 random(17);
    while (!stop.load(std::memory_order_relaxed)) {
      const auto n = static_cast<std::uint32_t>(random());
      // Mostly operation and counts. No byte is the mark's, so that no entry can look like it.
      const std::size_t offset = (n & 1U) != 0 ? n >> 8U & 3U : (n >> 8U) % sizeof shared.bytes;
      const auto value = static_cast<std::uint8_t>(offset == 0 ? n >> 16U & 7U : n >> 16U & 0x1fU);
      at<std::uint8_t>(shared, offset).store(value, std::memory_order_relaxed);
    }
  });
  for (int round = 0; round < 100'000; ++round) {
    blkif::request got = TestFixture::marked();
    TypeParam::fetch(slot_source(shared.bytes), got);
    this->expect_consistent(got);
    if (this->HasFatalFailure()) {
      break;
    }
  }
  stop.store(true);
  peer.join();
}

}  // namespace
