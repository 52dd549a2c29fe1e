// SPDX-License-Identifier: MIT
// See the header.
#include "fake_liburing.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace fake {
namespace {

/// What the kernel shares with the process, and what it keeps for itself.
struct rings {
  unsigned sq_head = 0, sq_tail = 0, sq_flags = 0;
  unsigned cq_head = 0, cq_tail = 0, cq_flags = 0;
  std::vector<io_uring_sqe> entries;
  std::vector<io_uring_cqe> results;
  std::deque<io_uring_cqe> kept;  // did not fit, or are held back
};

std::map<io_uring*, rings> all;

bool has_room(const rings& of) {
  return of.cq_tail - std::atomic_ref(const_cast<unsigned&>(of.cq_head)).load() !=
         of.results.size();
}

void put(rings& into, const io_uring_cqe& result) {
  into.results[into.cq_tail & (into.results.size() - 1)] = result;
  std::atomic_ref(into.cq_tail).store(into.cq_tail + 1, std::memory_order_release);
}

void flag_kept(rings& of) {
  constexpr unsigned kept = IORING_SQ_CQ_OVERFLOW;
  of.sq_flags = of.kept.empty() ? of.sq_flags & ~kept : of.sq_flags | kept;
}

void release_kept(rings& of) {
  while (!of.kept.empty() && has_room(of)) {
    put(of, of.kept.front());
    of.kept.pop_front();
  }
  flag_kept(of);
}

}  // namespace

int kernel::perform(const call& what) const {
  const request& e = what.entry;
  const int fd = (e.flags & IOSQE_FIXED_FILE) != 0 ? registered_files.at(what.ring) : e.fd;
  const auto offset = static_cast<off_t>(e.off);
  const int n = static_cast<int>(what.buffers.size());
  ssize_t got = 0;
  switch (e.opcode) {
    case IORING_OP_READ:
    case IORING_OP_READV:
    case IORING_OP_READ_FIXED:
      got = ::preadv(fd, what.buffers.data(), n, offset);
      break;
    case IORING_OP_WRITE:
    case IORING_OP_WRITEV:
    case IORING_OP_WRITE_FIXED:
      got = ::pwritev(fd, what.buffers.data(), n, offset);
      break;
    case IORING_OP_FSYNC:
      got = ::fdatasync(fd);
      break;
    case IORING_OP_FALLOCATE:
      got = ::fallocate(fd, static_cast<int>(e.len), offset, static_cast<off_t>(e.addr));
      break;
    default:
      return -EINVAL;
  }
  return got < 0 ? -errno : static_cast<int>(got);
}

void kernel::post(io_uring* ring, std::uint64_t about, int res) {
  rings& into = all.at(ring);
  io_uring_cqe what{};
  what.user_data = about;
  what.res = res;
  if (hold || !into.kept.empty() || !has_room(into)) {
    into.kept.push_back(what);
    flag_kept(into);
  } else {
    put(into, what);
  }
  settle();
}

void kernel::complete_next(int res) {
  const call& what = accepted.at(completed++);
  post(what.ring, what.entry.user_data, res);
}

void kernel::perform_next() {
  const call& what = accepted.at(completed);
  const std::optional<int> scripted = result ? result(what) : std::nullopt;
  complete_next(scripted ? *scripted : perform(what));
}

void kernel::settle() {
  for (auto& [ring, of] : all) {
    std::uint64_t count = 1;
    if (of.cq_head != of.cq_tail || !of.kept.empty()) {
      [[maybe_unused]] const auto n = ::write(ring->ring_fd, &count, sizeof count);
    } else {
      [[maybe_unused]] const auto n = ::read(ring->ring_fd, &count, sizeof count);
    }
  }
}

}  // namespace fake

extern "C" {

int io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* params) {
  fake::kernel& k = *fake::current;
  if (!k.setup.empty()) {
    const int result = k.setup.front();
    k.setup.pop_front();
    if (result != 0) {
      return result;
    }
  }
  if ((params->flags & k.refused_flags) != 0) {
    return -EINVAL;
  }
  ++k.setups;
  k.setup_flags = params->flags;
  fake::rings& made = fake::all[ring];
  made = {};
  made.entries.resize(std::bit_ceil(entries));
  made.results.resize(2 * std::bit_ceil(entries));
  *ring = {};
  ring->sq.khead = &made.sq_head;
  ring->sq.ktail = &made.sq_tail;
  ring->sq.kflags = &made.sq_flags;
  ring->sq.sqes = made.entries.data();
  ring->sq.ring_mask = static_cast<unsigned>(made.entries.size() - 1);
  ring->sq.ring_entries = static_cast<unsigned>(made.entries.size());
  ring->cq.khead = &made.cq_head;
  ring->cq.ktail = &made.cq_tail;
  ring->cq.kflags = &made.cq_flags;
  ring->cq.cqes = made.results.data();
  ring->cq.ring_mask = static_cast<unsigned>(made.results.size() - 1);
  ring->cq.ring_entries = static_cast<unsigned>(made.results.size());
  ring->flags = params->flags;
  ring->features = params->features = k.features;
  ring->ring_fd = ring->enter_ring_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return 0;
}

void io_uring_queue_exit(io_uring* ring) {
  fake::kernel& k = *fake::current;
  ++k.exits;
  k.in_flight_at_exit += k.accepted.size() - k.completed;
  ::close(ring->ring_fd);
  fake::all.erase(ring);
}

int io_uring_submit(io_uring* ring) {
  fake::kernel& k = *fake::current;
  fake::rings& of = fake::all.at(ring);
  // As the library does: what has been filled in since the last time is published.
  if (ring->sq.sqe_head != ring->sq.sqe_tail) {
    ring->sq.sqe_head = ring->sq.sqe_tail;
    of.sq_tail = ring->sq.sqe_tail;
  }
  ++k.submit_calls;
  int take = static_cast<int>(of.sq_tail - of.sq_head);
  if (!k.submit.empty()) {
    const int scripted = k.submit.front();
    k.submit.pop_front();
    if (scripted < 0) {
      return scripted;
    }
    take = std::min(take, scripted);
  }
  const std::size_t first = k.accepted.size();
  for (int i = 0; i < take; ++i) {
    fake::call what;
    what.ring = ring;
    const io_uring_sqe& e = of.entries[of.sq_head++ & (of.entries.size() - 1)];
    what.entry = {
        e.opcode,    e.flags,    e.fd, e.off, e.addr, e.len, static_cast<std::uint32_t>(e.rw_flags),
        e.buf_index, e.user_data};
    if (e.opcode == IORING_OP_READV || e.opcode == IORING_OP_WRITEV) {
      const auto* vector = reinterpret_cast<const iovec*>(e.addr);
      what.buffers.assign(vector, vector + e.len);
    } else if (e.opcode != IORING_OP_FSYNC && e.opcode != IORING_OP_FALLOCATE) {
      what.buffers.push_back({reinterpret_cast<void*>(e.addr), e.len});
    }
    k.accepted.push_back(what);
    if (k.at_once && !k.backwards) {
      k.perform_next();
    }
  }
  if (k.at_once && k.backwards) {
    for (std::size_t i = k.accepted.size(); i-- != first; ++k.completed) {
      const fake::call& what = k.accepted[i];
      const std::optional<int> scripted = k.result ? k.result(what) : std::nullopt;
      k.post(ring, what.entry.user_data, scripted ? *scripted : k.perform(what));
    }
  }
  return take;
}

int io_uring_get_events(io_uring* ring) {
  ++fake::current->asked;
  fake::release_kept(fake::all.at(ring));
  return 0;
}

int __io_uring_get_cqe(io_uring* ring, io_uring_cqe** out, unsigned, unsigned, sigset_t*) {
  fake::kernel& k = *fake::current;
  if (!k.waits.empty()) {
    const int error = k.waits.front();
    k.waits.pop_front();
    if (error != 0) {
      return error;
    }
  }
  fake::rings& of = fake::all.at(ring);
  fake::release_kept(of);
  while (of.cq_head == of.cq_tail && k.completed < k.accepted.size()) {
    k.perform_next();
    fake::release_kept(of);
  }
  if (of.cq_head == of.cq_tail) {
    return -EAGAIN;
  }
  *out = &of.results[of.cq_head & (of.results.size() - 1)];
  return 0;
}

int io_uring_register_files(io_uring* ring, const int* files, unsigned) {
  if (fake::current->register_files == 0) {
    fake::current->registered_files[ring] = *files;
  }
  return fake::current->register_files;
}
int io_uring_unregister_files(io_uring* ring) {
  fake::current->registered_files.erase(ring);
  return 0;
}
int io_uring_register_buffers(io_uring*, const iovec* buffers, unsigned count) {
  if (fake::current->register_buffers == 0) {
    fake::current->registered_buffers.assign(buffers, buffers + count);
  }
  return fake::current->register_buffers;
}
int io_uring_unregister_buffers(io_uring*) {
  fake::current->registered_buffers.clear();
  return 0;
}

}  // extern "C"
