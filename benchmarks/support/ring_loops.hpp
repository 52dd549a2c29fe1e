// SPDX-License-Identifier: MIT
// The same conversation over a block ring, written with pvring's rings and with Xen's macros: 32
// reads put, taken, answered, and their answers taken, on one thread. What the loops have to find
// out is the same, so that their times compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"

#if __has_include(<xen/io/blkif.h>)
#define PVRING_BENCH_HAS_XEN
#include "xen_ring.hpp"
#endif

namespace bench {

inline constexpr std::uint32_t ring_batch = 32;
inline constexpr std::uint64_t ring_sectors_per_request = 8;

/// One page that both ends of a ring use.
class ring_page {
 public:
  ring_page() : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, 4096))) {
    if (memory_ == nullptr) {
      throw std::bad_alloc();
    }
  }
  ring_page(const ring_page&) = delete;
  ring_page& operator=(const ring_page&) = delete;
  ~ring_page() { std::free(memory_); }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {memory_, 4096}; }

 private:
  std::byte* memory_;
};

/// What both ends saw; a sum over all requests and all responses.
struct ring_tally {
  std::uint64_t requests = 0;
  std::uint64_t request_sum = 0;
  std::uint64_t responses = 0;
  std::uint64_t response_sum = 0;

  void request(std::uint64_t id, std::uint64_t sector, std::uint32_t gref) noexcept {
    ++requests;
    request_sum += id + sector + gref;
  }
  void response(std::uint64_t id, std::uint8_t operation, std::int16_t status) noexcept {
    ++responses;
    response_sum += id + operation + static_cast<std::uint64_t>(status);
  }
  /// Whether `batches` batches with ids counted up from 0 lead to this.
  [[nodiscard]] bool matches(std::uint64_t batches) const noexcept {
    const std::uint64_t n = batches * ring_batch;
    const std::uint64_t ids = n * (n - 1) / 2;
    // id + 8 id + (id mod 32 + 8) each; a response gives the id back, and its operation and status
    // are 0.
    const std::uint64_t references = batches * (ring_batch * (ring_batch - 1) / 2 + ring_batch * 8);
    return requests == n && responses == n &&
           request_sum == ids * (1 + ring_sectors_per_request) + references && response_sum == ids;
  }
};

/// pvring's rings.
class pvring_loop {
 public:
  static constexpr const char* name = "pvring";

  // Never inlined: the loops that are compared must not depend on what calls them.
  [[gnu::noinline]] void batch() noexcept {
    namespace blkif = pvring::protocol::blkif;
    for (std::uint32_t i = 0; i < ring_batch; ++i) {
      const std::uint64_t id = next_++;
      outgoing_.operation = blkif::operation::read;
      outgoing_.id = id;
      outgoing_.sector_number = pvring::untrusted(id * ring_sectors_per_request);
      outgoing_.nr_segments = pvring::untrusted<std::uint16_t>(1);
      outgoing_.direct[0] = {.gref = i + 8, .first_sect = 0, .last_sect = 7, .reserved = {}};
      front_.put(outgoing_);
    }
    kicks_ += front_.publish() ? 1 : 0;
    back_.take(ring_batch, [this](pvring::ring::taken<wire>& request) {
      request.fetch(fetched_);
      tally_.request(fetched_.id, fetched_.sector_number.echo(), fetched_.direct[0].gref);
      back_.respond(request.owe(wire::echo_of(fetched_, true)).settle(blkif::status::okay));
    });
    kicks_ += back_.publish() ? 1 : 0;
    front_.take(ring_batch, [this](const wire::response& response) {
      tally_.response(response.id, response.operation, response.status);
    });
  }

  [[nodiscard]] const ring_tally& tally() const noexcept { return tally_; }

 private:
  using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
  ring_page page_;
  pvring::ring::front_ring<wire> front_{page_.bytes()};
  pvring::ring::back_ring<wire> back_{page_.bytes()};
  wire::request outgoing_{};
  wire::request fetched_{};
  ring_tally tally_;
  std::uint64_t next_ = 0;
  std::uint64_t kicks_ = 0;
};

#ifdef PVRING_BENCH_HAS_XEN
/// Xen's macros for the indices, pvring's primitives for what lies in the slots.
class macro_loop {
 public:
  static constexpr const char* name = "macros, pvring's copy";

  macro_loop() { xen::make_ring(page_.bytes().data(), page_.bytes().size(), front_, back_); }

  [[gnu::noinline]] void batch() noexcept {
    namespace blkif = pvring::protocol::blkif;
    for (std::uint32_t i = 0; i < ring_batch; ++i) {
      const std::uint64_t id = next_++;
      outgoing_.operation = blkif::operation::read;
      outgoing_.id = id;
      outgoing_.sector_number = pvring::untrusted(id * ring_sectors_per_request);
      outgoing_.nr_segments = pvring::untrusted<std::uint16_t>(1);
      outgoing_.direct[0] = {.gref = i + 8, .first_sect = 0, .last_sect = 7, .reserved = {}};
      wire::store_request(sink(xen::request_slot(front_, front_.req_prod_pvt++)), outgoing_);
    }
    kicks_ += xen::push_requests(front_) ? 1 : 0;
    const std::uint32_t there = xen::requests(back_);
    for (std::uint32_t i = 0; i < there; ++i) {
      wire::fetch(source(xen::request_slot(back_, back_.req_cons++)), fetched_);
      tally_.request(fetched_.id, fetched_.sector_number.echo(), fetched_.direct[0].gref);
      wire::store(sink(xen::response_slot(back_, back_.rsp_prod_pvt++)),
                  wire::echo_of(fetched_, true), blkif::status::okay);
    }
    kicks_ += xen::push_responses(back_) ? 1 : 0;
    const std::uint32_t answered = xen::responses(front_);
    for (std::uint32_t i = 0; i < answered; ++i) {
      const wire::response response =
          wire::fetch_response(source(xen::response_slot(front_, front_.rsp_cons++)));
      tally_.response(response.id, response.operation, response.status);
    }
  }

  [[nodiscard]] const ring_tally& tally() const noexcept { return tally_; }

 private:
  using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
  static pvring::ring::slot_sink sink(void* slot) noexcept {
    return pvring::ring::slot_sink(static_cast<std::byte*>(slot));
  }
  static pvring::ring::slot_source source(void* slot) noexcept {
    return pvring::ring::slot_source(static_cast<std::byte*>(slot));
  }
  ring_page page_;
  xen::front_ring front_{};
  xen::back_ring back_{};
  wire::request outgoing_{};
  wire::request fetched_{};
  ring_tally tally_;
  std::uint64_t next_ = 0;
  std::uint64_t kicks_ = 0;
};

/// Xen's macros for everything, with their own copies of whole structs, which the compiler may
/// repeat.
class macro_copy_loop {
 public:
  static constexpr const char* name = "macros, their own copy";

  macro_copy_loop() { xen::make_ring(page_.bytes().data(), page_.bytes().size(), front_, back_); }

  [[gnu::noinline]] void batch() noexcept {
    put();
    serve();
    collect();
  }

  [[gnu::noinline]] void put() noexcept {
    for (std::uint32_t i = 0; i < ring_batch; ++i) {
      const std::uint64_t id = next_++;
      ::blkif_request_t* const slot = xen::request_slot(front_, front_.req_prod_pvt++);
      slot->operation = BLKIF_OP_READ;
      slot->nr_segments = 1;
      slot->handle = 0;
      slot->id = id;
      slot->sector_number = id * ring_sectors_per_request;
      slot->seg[0].gref = i + 8;
      slot->seg[0].first_sect = 0;
      slot->seg[0].last_sect = 7;
    }
    kicks_ += xen::push_requests(front_) ? 1 : 0;
  }

  /// The backend's half alone.
  [[gnu::noinline]] void serve() noexcept {
    const std::uint32_t there = xen::requests(back_);
    for (std::uint32_t i = 0; i < there; ++i) {
      ::blkif_request_t fetched;
      xen::copy_request(back_, back_.req_cons++, fetched);
      // Whoever validates the request may look at any of it, so the copy is a whole one, as its
      // name says: without this the compiler leaves out of it what this loop does not use.
      asm volatile("" : : "r"(&fetched) : "memory");
      tally_.request(fetched.id, fetched.sector_number, fetched.seg[0].gref);
      ::blkif_response_t* const slot = xen::response_slot(back_, back_.rsp_prod_pvt++);
      slot->id = fetched.id;
      slot->operation = fetched.operation;
      slot->status = BLKIF_RSP_OKAY;
    }
    kicks_ += xen::push_responses(back_) ? 1 : 0;
  }

  [[gnu::noinline]] void collect() noexcept {
    const std::uint32_t answered = xen::responses(front_);
    for (std::uint32_t i = 0; i < answered; ++i) {
      ::blkif_response_t response;
      xen::copy_response(front_, front_.rsp_cons++, response);
      tally_.response(response.id, response.operation, response.status);
    }
  }

  [[nodiscard]] const ring_tally& tally() const noexcept { return tally_; }

 private:
  ring_page page_;
  xen::front_ring front_{};
  xen::back_ring back_{};
  ring_tally tally_;
  std::uint64_t next_ = 0;
  std::uint64_t kicks_ = 0;
};
#endif

}  // namespace bench
