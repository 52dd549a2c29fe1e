// SPDX-License-Identifier: MIT
// Wraps glibc's allocator and mmap by defining their names in the program. Counters are relaxed
// atomics: they are read when everything is quiet.
#include "counting_allocator.hpp"

#include <features.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

extern "C" {
void* __libc_malloc(std::size_t) noexcept;
void* __libc_calloc(std::size_t, std::size_t) noexcept;
void* __libc_realloc(void*, std::size_t) noexcept;
void* __libc_memalign(std::size_t, std::size_t) noexcept;
void __libc_free(void*) noexcept;
}

namespace {

std::atomic<std::uint64_t> allocations{0};
std::atomic<std::int64_t> heap_bytes{0};
std::atomic<std::int64_t> private_bytes{0};
std::atomic<std::int64_t> shared_bytes{0};
std::atomic<std::uint64_t> mappings{0};

void* counted(void* memory) noexcept {
  if (memory != nullptr) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    heap_bytes.fetch_add(static_cast<std::int64_t>(::malloc_usable_size(memory)),
                         std::memory_order_relaxed);
  }
  return memory;
}

void uncounted(void* memory) noexcept {
  if (memory != nullptr) {
    heap_bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(memory)),
                         std::memory_order_relaxed);
  }
}

// Which mappings are there, so that an unmapping is taken from the right sum. A fixed table: it
// must not allocate.
struct mapped_range {
  std::atomic<void*> address;
  std::int64_t bytes;
  bool is_private;
};
constexpr std::size_t most_ranges = 16384;
mapped_range ranges[most_ranges];

void note_mapping(void* address, std::size_t bytes, bool is_private) noexcept {
  mappings.fetch_add(1, std::memory_order_relaxed);
  for (mapped_range& r : ranges) {
    void* none = nullptr;
    if (r.address.load(std::memory_order_relaxed) == nullptr &&
        r.address.compare_exchange_strong(none, address)) {
      r.bytes = static_cast<std::int64_t>(bytes);
      r.is_private = is_private;
      (is_private ? private_bytes : shared_bytes).fetch_add(r.bytes, std::memory_order_relaxed);
      return;
    }
  }
}

void forget_mapping(void* address) noexcept {
  for (mapped_range& r : ranges) {
    if (r.address.load(std::memory_order_relaxed) == address) {
      (r.is_private ? private_bytes : shared_bytes).fetch_sub(r.bytes, std::memory_order_relaxed);
      r.address.store(nullptr);
      return;
    }
  }
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) noexcept { return counted(__libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  return counted(__libc_calloc(count, bytes));
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  uncounted(memory);
  return counted(__libc_realloc(memory, bytes));
}
void free(void* memory) noexcept {
  uncounted(memory);
  __libc_free(memory);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return counted(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  *memory = counted(__libc_memalign(alignment, bytes));
  return *memory != nullptr ? 0 : ENOMEM;
}

void* mmap(void* where, std::size_t bytes, int protection, int flags, int fd,
           off_t offset) noexcept {
  void* const address =
      reinterpret_cast<void*>(::syscall(SYS_mmap, where, bytes, protection, flags, fd, offset));
  // A fixed mapping replaces a part of one that is counted already.
  if (address != MAP_FAILED && (flags & MAP_FIXED) == 0) {
    note_mapping(address, bytes, (flags & MAP_PRIVATE) != 0);
  }
  return address;
}
int munmap(void* address, std::size_t bytes) noexcept {
  forget_mapping(address);
  return static_cast<int>(::syscall(SYS_munmap, address, bytes));
}

}  // extern "C"

namespace bench {

memory_use memory_in_use() noexcept {
  return {allocations.load(), heap_bytes.load(), private_bytes.load(), shared_bytes.load(),
          mappings.load()};
}

bool counts_allocations() noexcept { return true; }

}  // namespace bench

#else

namespace bench {

memory_use memory_in_use() noexcept { return {}; }

bool counts_allocations() noexcept { return false; }

}  // namespace bench

#endif
