// SPDX-License-Identifier: MIT
// The completion ring of a kernel AIO context, which the kernel maps into the process: its address
// is the context's handle. Reading it here saves the system call that would copy the events out.
#pragma once

#include <libaio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pvring::aio::detail {

/// The head of the mapped ring, as the kernel lays it out; the events follow.
struct completion_ring_header {
  std::uint32_t id;
  std::uint32_t
      nr;  ///< events that fit: the kernel's choice, at least what was asked for, any number
  std::uint32_t head;  ///< ours to write
  std::uint32_t tail;  ///< the kernel's to write
  std::uint32_t magic;
  std::uint32_t compat_features;
  std::uint32_t incompat_features;
  std::uint32_t header_length;
};
static_assert(sizeof(completion_ring_header) == 32 &&
              offsetof(completion_ring_header, tail) == 12 &&
              offsetof(completion_ring_header, magic) == 16);
static_assert(sizeof(io_event) == 32);

/// One thread reads it.
class completion_ring {
 public:
  static constexpr std::uint32_t magic = 0xa10a10a1;

  completion_ring() = default;

  /// Attaches to a context's ring if it is one that this code understands; usable() tells.
  explicit completion_ring(io_context_t context) noexcept {
    auto* header = reinterpret_cast<completion_ring_header*>(context);
    if (header != nullptr && header->magic == magic && header->incompat_features == 0 &&
        header->header_length == sizeof(completion_ring_header) && header->nr > 1) {
      header_ = header;
      events_ = reinterpret_cast<const io_event*>(header + 1);
      nr_ = header->nr;
      // relaxed: nobody but us writes it.
      head_ = std::atomic_ref(header->head).load(std::memory_order_relaxed) % nr_;
    }
  }

  [[nodiscard]] bool usable() const noexcept { return header_ != nullptr; }

  /// Precondition of this and of consume(): usable().
  [[nodiscard]] bool empty() const noexcept { return tail() == head_; }

  /// Hands every event that is there to `f(const io_event&)` and returns how many. An event without
  /// an object is none: there this stops for good, and is not usable() any more.
  template <class F>
  std::size_t consume(F&& f) noexcept {
    std::size_t n = 0;
    bool sound = true;
    // nr is any number, not a power of two: our index wraps by comparison, the kernel's is taken
    // modulo nr.
    for (const std::uint32_t end = tail(); head_ != end; ++n) {
      const io_event& event = events_[head_];
      sound = event.obj != nullptr;
      if (!sound) {
        break;
      }
      f(event);
      head_ = head_ + 1 == nr_ ? 0 : head_ + 1;
    }
    if (n != 0) {
      // release: the kernel reuses the places up to head, so the events must have been read before
      // it sees this.
      std::atomic_ref(header_->head).store(head_, std::memory_order_release);
    }
    if (!sound) {
      *this = {};
    }
    return n;
  }

 private:
  /// acquire: the kernel writes the events before the tail that covers them; they may be read only
  /// after it.
  [[nodiscard]] std::uint32_t tail() const noexcept {
    return std::atomic_ref(header_->tail).load(std::memory_order_acquire) % nr_;
  }

  completion_ring_header* header_ = nullptr;
  const io_event* events_ = nullptr;
  std::uint32_t nr_ = 0;
  std::uint32_t head_ = 0;
};

}  // namespace pvring::aio::detail
