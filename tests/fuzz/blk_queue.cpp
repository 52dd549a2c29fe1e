// SPDX-License-Identifier: MIT
// A hostile frontend, played by the fuzzer: its bytes decide what is written into ring, indices and
// segment pages, which grants are good, how I/O ends, and in which order all of it happens. What
// must hold is checked after every step.
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "support/fuzz_input.hpp"
#include "unit/blk/queue_fixture.hpp"

namespace {

using namespace pvring;
using namespace pvring::test;

template <class Queue>
void play(fuzz_input& s) {
  // Kept over inputs: to allocate them takes longer than everything else.
  static typename Queue::peer_pages peer;
  const std::size_t pages = std::size_t{1} << (s.byte() % 3);
  const std::uint32_t start = s.byte() % 2 == 0 ? 0 : 0xfffffff0U;
  Queue t(pages, start, std::move(peer));
  t.device.read_only = s.byte() % 8 == 0;
  t.device.barrier = s.byte() % 2 == 0;
  t.device.max_indirect_segments = s.byte() % 4 == 0 ? 0 : 256;
  t.mapper.copies = s.byte() % 4 != 0;
  t.grants.budget_bytes = 300 * 4096;
  t.grants.quota_pages = 300;
  auto& queue = t.queue();
  const std::span<std::byte> ring = t.bytes();
  // 4000 steps at most: an input that ends keeps answering with zeroes.
  for (int step = 0; step < 4000 && !s.ended(); ++step) {
    switch (s.byte() % 10) {
      case 0: {  // anything, anywhere in the ring
        const std::size_t at = s.word() % ring.size();
        s.fill(&ring[at], std::min<std::size_t>(s.byte() % 32, ring.size() - at));
        break;
      }
      case 1: {  // a slot that looks like a request
        const std::size_t slot = 64 + s.byte() % t.front->size() * Queue::protocol_type::slot_bytes;
        s.fill(&ring[slot], 48);
        ring[slot] = static_cast<std::byte>(std::to_integer<unsigned>(ring[slot]) % 8);
        break;
      }
      case 2:
      case 3: {  // a few more requests
        std::uint32_t produced = 0;
        std::memcpy(&produced, ring.data(), sizeof produced);
        produced += s.byte() % 8;
        std::memcpy(ring.data(), &produced, sizeof produced);
        break;
      }
      case 4:  // segments of indirect requests
        s.fill(t.mapper.peer[1 + s.byte() % 8].bytes.data() + std::size_t{s.byte()} * 8, 32);
        break;
      case 5:
        t.mapper.map_errors.push_back(s.byte() % 4 == 0 ? EINVAL : 0);
        t.mapper.copy_errors.push_back(s.byte() % 4 == 0 ? EFAULT : 0);
        break;
      case 6:
        if (!t.engine.flying.empty()) {
          t.engine.complete(s.byte() % t.engine.flying.size(), s.byte() % 4 == 0 ? -EIO : 0);
        }
        break;
      default:
        queue.service(1 + s.byte() % 64);
        break;
    }
    // Nothing may reach the storage that is not whole and on the device.
    for (const auto& flight : t.engine.flying) {
      const bool moves =
          flight.kind == aio::operation::read || flight.kind == aio::operation::write;
      std::size_t bytes = 0;
      for (const iovec& part : flight.transfer->buffers) {
        bytes += part.iov_len;
      }
      require(flight.offset % 512 == 0 && flight.length % 512 == 0 &&
                  flight.offset + flight.length <= 1000 * 512,
              "a transfer is whole sectors of the device");
      require(!moves || (flight.length != 0 && bytes == flight.length),
              "a transfer has as many bytes as its buffers");
      require(flight.kind == aio::operation::read || flight.kind == aio::operation::flush ||
                  !t.device.read_only,
              "nothing writes to a read-only device");
    }
    require(t.engine.flying.size() <= t.front->size(),
            "no more is in flight than the ring has slots");
  }
  queue.stop();
  for (int pass = 0; pass < 2000 && !queue.idle(); ++pass) {
    t.engine.complete_all();
    queue.service(64);
  }
  require(queue.idle(), "a queue that was stopped becomes idle");
  require(queue.leases() == 0, "an idle queue has no leases");
  queue.clear();
  require(t.mapper.mapped_pages == 0, "nothing stays mapped");
  peer = std::move(t.mapper.peer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz_input s({data, size});
  switch (s.byte() % 4) {
    case 0:
      play<queue_under_test<wire::abi::x86_64, grant::batched_copy>>(s);
      break;
    case 1:
      play<queue_under_test<wire::abi::x86_64, grant::map_each>>(s);
      break;
    case 2:
      play<queue_under_test<wire::abi::x86_32, grant::persistent_pool>>(s);
      break;
    default:
      play<queue_under_test<wire::abi::x86_32, grant::batched_copy>>(s);
      break;
  }
  return 0;
}
