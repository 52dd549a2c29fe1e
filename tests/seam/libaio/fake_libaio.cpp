// SPDX-License-Identifier: MIT
// See the header.
#include "fake_libaio.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace fake {
namespace {

struct ring {
  std::uint32_t id;
  std::uint32_t nr;
  std::uint32_t head;
  std::uint32_t tail;
  std::uint32_t magic;
  std::uint32_t compat_features;
  std::uint32_t incompat_features;
  std::uint32_t header_length;

  io_event* events() { return reinterpret_cast<io_event*>(this + 1); }
};

ring* newest = nullptr;

}  // namespace

long kernel::perform(const call& what) {
  const iocb& c = what.copy;
  const auto offset = static_cast<off_t>(c.u.c.offset);
  const int n = static_cast<int>(what.buffers.size());
  ssize_t got = 0;
  switch (c.aio_lio_opcode) {
    case IO_CMD_PREAD:
    case IO_CMD_PREADV:
      got = ::preadv(c.aio_fildes, what.buffers.data(), n, offset);
      break;
    case IO_CMD_PWRITE:
    case IO_CMD_PWRITEV:
      got = ::pwritev(c.aio_fildes, what.buffers.data(), n, offset);
      break;
    case IO_CMD_FDSYNC:
      got = ::fdatasync(c.aio_fildes);
      break;
    default:
      return -EINVAL;
  }
  return got < 0 ? -errno : got;
}

void kernel::post(iocb* object, long res) {
  ring* into = newest;
  void* data = nullptr;
  for (const call& what : accepted) {
    if (what.object == object) {
      into = static_cast<ring*>(what.ring);
      data = what.copy.data;  // the object itself may be gone
    }
  }
  const std::uint32_t head = std::atomic_ref(into->head).load(std::memory_order_acquire);
  if ((into->tail + 1) % into->nr == head) {
    std::fputs("the completion ring is full: its reader does not give places back\n", stderr);
    std::abort();
  }
  io_event& event = into->events()[into->tail];
  event = {};
  event.obj = object;
  event.data = data;
  event.res = static_cast<unsigned long>(res);
  std::atomic_ref(into->tail).store((into->tail + 1) % into->nr, std::memory_order_release);
}

void kernel::complete_next(long res) {
  const call& what = accepted.at(completed++);
  post(what.object, res);
  if (!late_signals) {
    signal(what);
  }
}

void kernel::signal(const call& what) {
  if ((what.copy.u.c.flags & 1U) != 0) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n =
        ::write(static_cast<int>(what.copy.u.c.resfd), &one, sizeof one);
  }
}

void kernel::perform_next() {
  const call& what = accepted.at(completed);
  const std::optional<long> scripted = result ? result(what) : std::nullopt;
  complete_next(scripted ? *scripted : perform(what));
}

void kernel::perform_backwards(std::size_t first) {
  for (std::size_t i = accepted.size(); i-- != first;) {
    const std::optional<long> scripted = result ? result(accepted[i]) : std::nullopt;
    post(accepted[i].object, scripted ? *scripted : perform(accepted[i]));
    signal(accepted[i]);
    ++completed;
  }
}

}  // namespace fake

extern "C" {

int io_setup(int maxevents, io_context_t* context) {
  fake::kernel& k = *fake::current;
  if (!k.setup.empty()) {
    const int result = k.setup.front();
    k.setup.pop_front();
    if (result != 0) {
      return result;
    }
  }
  ++k.setups;
  const std::uint32_t nr = static_cast<std::uint32_t>(maxevents) + 1 + k.extra_places;
  void* room = std::calloc(1, sizeof(fake::ring) + nr * sizeof(io_event));
  fake::newest = static_cast<fake::ring*>(room);
  fake::newest->nr = nr;
  fake::newest->magic = k.magic;
  fake::newest->compat_features = 1;
  fake::newest->incompat_features = k.incompat_features;
  fake::newest->header_length = k.header_length;
  *context = static_cast<io_context_t>(room);
  return 0;
}

int io_submit(io_context_t context, long nr, iocb* ios[]) {
  fake::kernel& k = *fake::current;
  ++k.submit_calls;
  long take = nr;
  if (!k.submit.empty()) {
    take = k.submit.front();
    k.submit.pop_front();
  }
  if (take < 0) {
    return static_cast<int>(take);
  }
  take = std::min(take, nr);
  for (long i = 0; i < take; ++i) {
    fake::call what;
    what.object = ios[i];
    what.ring = context;
    what.copy = *ios[i];
    const auto& c = what.copy.u.c;
    if (what.copy.aio_lio_opcode == IO_CMD_PREADV || what.copy.aio_lio_opcode == IO_CMD_PWRITEV) {
      const auto* vector = static_cast<const iovec*>(c.buf);
      what.buffers.assign(vector, vector + c.nbytes);
    } else if (c.buf != nullptr) {
      what.buffers.push_back({c.buf, c.nbytes});
    }
    k.accepted.push_back(what);
    if (k.at_once && !k.backwards) {
      k.perform_next();
    }
  }
  if (k.at_once && k.backwards) {
    k.perform_backwards(k.completed);
  }
  return static_cast<int>(take);
}

int io_getevents(io_context_t context, long min_nr, long nr, io_event* events, timespec*) {
  fake::kernel& k = *fake::current;
  ++k.getevents_calls;
  k.waited_for.push_back(min_nr);
  long most = nr;
  if (!k.getevents.empty()) {
    most = k.getevents.front();
    k.getevents.pop_front();
    if (most < 0) {
      return static_cast<int>(most);
    }
  }
  auto* from = reinterpret_cast<fake::ring*>(context);
  while (min_nr > 0 && k.completed < k.accepted.size()) {
    k.perform_next();  // who waits gets everything
  }
  long n = 0;
  for (; n < std::min(nr, most) && from->head != from->tail; ++n) {
    events[n] = from->events()[from->head];
    from->head = (from->head + 1) % from->nr;
  }
  return static_cast<int>(n);
}

int io_destroy(io_context_t context) {
  fake::kernel& k = *fake::current;
  ++k.destroys;
  k.in_flight_at_destroy = k.accepted.size() - k.completed;
  std::free(context);
  return 0;
}

int io_cancel(io_context_t, iocb*, io_event*) { return -EAGAIN; }

}  // extern "C"
