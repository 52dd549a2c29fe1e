// SPDX-License-Identifier: MIT
// Runs the machine code that a compiler made of `fetch`, `take` and `copy_once`, and writes down
// every access that it makes to the peer's page; check_loads.py looks up how wide each was and
// counts the loads of each byte. Not a test by itself.
//
// The page is inaccessible. An access faults; the handler notes where the instruction and the
// address are, opens the page for one step of the processor, and closes it again. So nothing is
// seen that the compiler did not really emit, and nothing that it did emit is missed, whatever it
// inlined, unrolled or merged.
//
// Output: "case NAME", then for each byte that may be loaded "expect OFFSET", then for each access
// "access INSTRUCTION OFFSET read|write".
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/shared_access.hpp"

#if defined(__x86_64__) && defined(__linux__)

#include <sys/mman.h>
#include <ucontext.h>

namespace blkif = pvring::protocol::blkif;
using wire_64 = blkif::wire<blkif::abi::x86_64>;
using wire_32 = blkif::wire<blkif::abi::x86_32>;

// --- what is looked at
// --------------------------------------------------------------------------------------------

// Of C linkage, so that they are easy to find in a disassembly; not inlined, so that they exist.
#define LOOKED_AT extern "C" __attribute__((noinline)) void

LOOKED_AT fetch_64(std::byte* slot, blkif::request* into) {
  wire_64::fetch(pvring::ring::slot_source(slot), *into);
}
LOOKED_AT fetch_32(std::byte* slot, blkif::request* into) {
  wire_32::fetch(pvring::ring::slot_source(slot), *into);
}

// The whole way of a request, as a queue inlines it.
template <class Wire>
void take(pvring::ring::back_ring<Wire>& ring, blkif::request* into) {
  ring.take(1, [&](pvring::ring::taken<Wire>& request) {
    request.fetch(*into);
    auto duty = request.owe(Wire::echo_of(*into, true));
    duty.abandon();
  });
}
LOOKED_AT take_64(pvring::ring::back_ring<wire_64>* ring, blkif::request* into) {
  take(*ring, into);
}
LOOKED_AT take_32(pvring::ring::back_ring<wire_32>* ring, blkif::request* into) {
  take(*ring, into);
}

LOOKED_AT copy_page(std::byte* from, void* to) { pvring::ring::copy_once(to, from, 4096); }
LOOKED_AT copy_entry(std::byte* from, void* to) { pvring::ring::copy_once(to, from, 8); }

// What the checks must find fault with: a parser as it is often written, that reads the count from
// the ring to judge it, and from the ring again to use it.
LOOKED_AT bad_fetch(std::byte* slot, blkif::request* into) {
  const auto* ring_request =
      reinterpret_cast<const blkif::x86_64_layouts::request*>(slot);  // NOLINT
  into->operation = ring_request->operation;
  into->id = ring_request->id;
  if (ring_request->nr_segments > blkif::max_direct_segments) {
    return;
  }
  for (std::size_t i = 0; i < ring_request->nr_segments; ++i) {
    into->direct[i] = ring_request->seg[i];
  }
}
// And one that loads more than it needs.
LOOKED_AT bad_greedy_fetch(std::byte* slot, blkif::request* into) {
  wire_64::fetch(pvring::ring::slot_source(slot), *into);
  into->indirect_grefs[0] = pvring::ring::slot_source(slot).load<std::uint32_t>(104);
}

// --- how
// --------------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t page_bytes = 4096;

struct access {
  std::uintptr_t instruction;
  std::uintptr_t offset;
  bool write;
};
std::byte* page = nullptr;
access accesses[16384];
std::size_t access_count = 0;

void set_accessible(bool accessible) {
  if (mprotect(page, page_bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    std::abort();
  }
}

constexpr greg_t single_step = 0x100;

void on_access(int /*signal*/, siginfo_t* info, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto offset = reinterpret_cast<std::uintptr_t>(info->si_addr) -
                      reinterpret_cast<std::uintptr_t>(page);  // NOLINT
  if (offset >= page_bytes || access_count == std::size(accesses)) {
    std::signal(SIGSEGV, SIG_DFL);  // a fault of its own, or more than anything here does
    return;
  }
  accesses[access_count++] = {static_cast<std::uintptr_t>(registers[REG_RIP]), offset,
                              (registers[REG_ERR] & 2) != 0};
  set_accessible(true);
  registers[REG_EFL] |= single_step;
}

void on_step(int /*signal*/, siginfo_t* /*info*/, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_EFL] &= ~single_step;
  set_accessible(false);
}

void install(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(signal, &action, nullptr) != 0) {
    std::abort();
  }
}

// What `fetch` asks for, by its source code.
class asking_source {
 public:
  explicit asking_source(const std::byte* slot, std::size_t base) : slot_(slot), base_(base) {}
  template <class T>
  [[nodiscard]] T load(std::size_t offset) const noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      std::printf("expect %zu\n", base_ + offset + i);
    }
    T value;
    std::memcpy(&value, slot_ + offset, sizeof value);
    return value;
  }

 private:
  const std::byte* slot_;
  std::size_t base_;
};

template <class Call>
void watch(Call&& call) {
  access_count = 0;
  set_accessible(false);
  std::forward<Call>(call)();
  set_accessible(true);
  for (std::size_t i = 0; i < access_count; ++i) {
    std::printf("access %zx %zu %s\n", accesses[i].instruction, accesses[i].offset,
                accesses[i].write ? "write" : "read");
  }
}

struct head {
  const char* name;
  std::uint32_t word;
};
constexpr head heads[] = {
    {"read_0", 0x0000},
    {"read_1", 0x0100},
    {"write_2", 0x0201},
    {"barrier_10", 0x0a02},
    {"flush_11", 0x0b03},
    {"read_12", 0x0c00},
    {"write_255", 0xff01},
    {"reserved", 0x0b04},
    {"discard", 0x0105},
    {"indirect_0", 0x00000106},
    {"indirect_1", 0x00010006},
    {"indirect_4096", 0x10000106},
    {"indirect_4097", 0x10010106},
    {"indirect_ffff", 0xffff0006},
    {"unknown", 0xffffffff},
};

template <class Fetch>
void watch_fetch(const char* function, Fetch* fetch, std::size_t slot_at,
                 void (*expect)(std::size_t)) {
  static blkif::request into;
  for (const head& one : heads) {
    std::memset(page + slot_at, 0x11, 112);
    std::memcpy(page + slot_at, &one.word, sizeof one.word);
    std::printf("case %s/%s\n", function, one.name);
    expect(slot_at);
    watch([&] { fetch(page + slot_at, &into); });
  }
}

template <class Wire>
void expect_fetch(std::size_t slot_at) {
  blkif::request ignored{};
  Wire::fetch(asking_source(page + slot_at, slot_at), ignored);
}

template <class Wire, class Take>
void watch_take(const char* function, Take* take_one) {
  static blkif::request into;
  for (const head& one : heads) {
    std::memset(page, 0, page_bytes);
    const std::uint32_t one_request = 1;
    std::memcpy(page, &one_request, sizeof one_request);
    pvring::ring::back_ring<Wire> ring({page, page_bytes});
    std::memset(page + 64, 0x11, 112);
    std::memcpy(page + 64, &one.word, sizeof one.word);
    std::printf("case %s/%s\nexpect 0\nexpect 1\nexpect 2\nexpect 3\n", function, one.name);
    expect_fetch<Wire>(64);
    watch([&] { take_one(&ring, &into); });
  }
}

}  // namespace

int main() {
  page = static_cast<std::byte*>(
      mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (page == MAP_FAILED) {
    return 1;
  }
  install(SIGSEGV, &on_access);
  install(SIGTRAP, &on_step);
  set_accessible(true);

  watch_fetch("fetch_64", &fetch_64, 64, &expect_fetch<wire_64>);
  watch_fetch("fetch_32", &fetch_32, 64 + 108, &expect_fetch<wire_32>);
  watch_take<wire_64>("take_64", &take_64);
  watch_take<wire_32>("take_32", &take_32);

  static std::byte to[page_bytes];
  for (const std::size_t bytes : {std::size_t{8}, page_bytes}) {
    std::printf("case copy_%zu\n", bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      std::printf("expect %zu\n", i);
    }
    watch([&] { bytes == 8 ? copy_entry(page, to) : copy_page(page, to); });
  }

  watch_fetch("bad_fetch", &bad_fetch, 64, &expect_fetch<wire_64>);
  watch_fetch("bad_greedy_fetch", &bad_greedy_fetch, 64, &expect_fetch<wire_64>);
  return 0;
}

#else

int main() { return 77; }

#endif
