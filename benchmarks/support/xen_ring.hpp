// SPDX-License-Identifier: MIT
// Xen's public ring macros for blkif, as a program that uses them has to set them up: the baseline
// that pvring's rings are measured against. Only benchmarks include it, since the header leaks
// macros.
#pragma once

// The macros are not written for our warnings.
#pragma GCC system_header

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

// The barriers that the macros call: what the memory model needs and no more. On x86 only the full
// one is an instruction.
#define xen_mb() std::atomic_thread_fence(std::memory_order_seq_cst)
#define xen_rmb() std::atomic_thread_fence(std::memory_order_acquire)
#define xen_wmb() std::atomic_thread_fence(std::memory_order_release)

// Else the headers replace the barriers above by older names.
#define __XEN_INTERFACE_VERSION__ __XEN_LATEST_INTERFACE_VERSION__
#include <xen/xen.h>

#include <xen/io/blkif.h>

namespace bench::xen {

using sring = ::blkif_sring_t;
using front_ring = ::blkif_front_ring_t;
using back_ring = ::blkif_back_ring_t;

/// Makes both ends of a ring in `bytes` bytes of memory.
inline void make_ring(void* memory, std::size_t bytes, front_ring& front,
                      back_ring& back) noexcept {
  auto* shared = static_cast<sring*>(memory);
  XEN_FRONT_RING_INIT(&front, shared, bytes);
  BACK_RING_INIT(&back, shared, bytes);
}

/// Shows the requests put; true when the backend wants to be notified.
inline bool push_requests(front_ring& ring) noexcept {
  bool notify = false;
  RING_PUSH_REQUESTS_AND_CHECK_NOTIFY(&ring, notify);
  return notify;
}

/// Shows the responses put; true when the frontend wants to be notified.
inline bool push_responses(back_ring& ring) noexcept {
  bool notify = false;
  RING_PUSH_RESPONSES_AND_CHECK_NOTIFY(&ring, notify);
  return notify;
}

/// How many requests there are; 0 where the frontend claims more than can be.
inline RING_IDX requests(const back_ring& ring) noexcept {
  const RING_IDX produced = static_cast<const volatile sring*>(ring.sring)->req_prod;
  xen_rmb();
  return RING_REQUEST_PROD_OVERFLOW(&ring, produced) ? 0 : produced - ring.req_cons;
}

/// How many responses there are; 0 where the backend claims more than can be.
inline RING_IDX responses(const front_ring& ring) noexcept {
  const RING_IDX produced = static_cast<const volatile sring*>(ring.sring)->rsp_prod;
  xen_rmb();
  return RING_RESPONSE_PROD_OVERFLOW(&ring, produced) ? 0 : produced - ring.rsp_cons;
}

/// Copies a request out, as the macros do it.
inline void copy_request(const back_ring& ring, RING_IDX at, ::blkif_request_t& into) noexcept {
  RING_COPY_REQUEST(&ring, at, &into);
}
inline void copy_response(const front_ring& ring, RING_IDX at, ::blkif_response_t& into) noexcept {
  RING_COPY_RESPONSE(&ring, at, &into);
}

inline ::blkif_request_t* request_slot(const front_ring& ring, RING_IDX at) noexcept {
  return RING_GET_REQUEST(&ring, at);
}
inline ::blkif_request_t* request_slot(const back_ring& ring, RING_IDX at) noexcept {
  return RING_GET_REQUEST(&ring, at);
}
inline ::blkif_response_t* response_slot(const back_ring& ring, RING_IDX at) noexcept {
  return RING_GET_RESPONSE(&ring, at);
}
inline ::blkif_response_t* response_slot(const front_ring& ring, RING_IDX at) noexcept {
  return RING_GET_RESPONSE(&ring, at);
}

}  // namespace bench::xen
