// SPDX-License-Identifier: MIT
// See fake_xen.hpp. Maps are memory of their own, filled from the granted page.
#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <new>

#include "fake_xen.hpp"

struct xengntdev_handle {
  xentoollog_logger* logger;
};

namespace fake {

constexpr std::size_t page = 4096;
constexpr std::align_val_t page_aligned{page};

void say(xentoollog_logger* to, xentoollog_level level, int error, const char* context,
         const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  to->vmessage(to, level, error, context, format, arguments);
  va_end(arguments);
}

namespace {

void* fresh(std::uint32_t count) {
  void* memory = ::operator new(count* page, page_aligned);
  std::memset(memory, 0, count * page);
  return memory;
}

void complain(xengntdev_handle* handle, const char* what) {
  for (unsigned i = 0; i < current->grants.messages_per_failure; ++i) {
    say(handle->logger, XTL_ERROR, errno, "gnttab", "%s failed", what);
  }
}

std::int16_t perform(const segment& s) {
  const bool from_peer = (s.flags & GNTCOPY_source_gref) != 0;
  const auto& foreign = from_peer ? s.source.foreign : s.dest.foreign;
  const auto at = current->grants.granted.find(foreign.ref);
  if (at == current->grants.granted.end()) {
    return GNTST_bad_gntref;
  }
  char* granted = at->second.data() + foreign.offset;
  if (from_peer) {
    std::memcpy(s.dest.virt, granted, s.len);
  } else {
    std::memcpy(granted, s.source.virt, s.len);
  }
  return GNTST_okay;
}

}  // namespace

machine::~machine() {
  for (const auto* memory : {&grants.mapped, &shares.shared}) {
    for (const auto& [address, count] : *memory) {
      ::operator delete(address, page_aligned);
    }
  }
  for (const int fd : {events.pipe[0], events.pipe[1], store.pipe[0], store.pipe[1]}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

}  // namespace fake

extern "C" {

xengnttab_handle* xengnttab_open(xentoollog_logger* logger, unsigned) {
  if (fake::fails(fake::current->grants.open)) {
    return nullptr;
  }
  fake::current->grants.logger = logger;
  fake::current->order.emplace_back("open gntdev");
  return new xengntdev_handle{logger};
}

int xengnttab_close(xengnttab_handle* handle) {
  fake::say(handle->logger, XTL_ERROR, -1, "gnttab", "last words");
  fake::current->order.emplace_back("close gntdev");
  delete handle;
  return 0;
}

void* xengnttab_map_domain_grant_refs(xengnttab_handle* handle, std::uint32_t count,
                                      std::uint32_t domain, std::uint32_t* references,
                                      int protection) {
  fake::grant_driver& g = fake::current->grants;
  g.maps.push_back({domain, {references, references + count}, protection});
  if (fake::fails(g.map)) {
    fake::complain(handle, "ioctl MAP_GRANT_REF");
    return nullptr;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!g.granted.contains(references[i])) {
      errno = EINVAL;
      fake::complain(handle, "mmap");
      return nullptr;
    }
  }
  void* memory = fake::fresh(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<char*>(memory) + i * fake::page, g.granted[references[i]].data(),
                fake::page);
  }
  g.mapped[memory] = count;
  errno = EAGAIN;  // a success does not clean up
  return memory;
}

int xengnttab_unmap(xengnttab_handle*, void* address, std::uint32_t count) {
  fake::grant_driver& g = fake::current->grants;
  g.unmaps.emplace_back(address, count);
  fake::current->order.emplace_back("unmap");
  if (fake::fails(g.unmap)) {
    return -1;
  }
  g.mapped.erase(address);
  ::operator delete(address, fake::page_aligned);
  return 0;
}

int xengnttab_grant_copy(xengnttab_handle* handle, std::uint32_t count, fake::segment* segments) {
  fake::grant_driver& g = fake::current->grants;
  if (!g.has_copy) {
    errno = ENOTTY;
    return -1;
  }
  if (count != 0) {
    g.copies.emplace_back(segments, segments + count);
  }
  if (fake::fails(g.copy)) {
    fake::complain(handle, "ioctl GRANT_COPY");
    return -1;
  }
  for (std::uint32_t i = 0; i < std::min(count, g.segments_looked_at); ++i) {
    segments[i].status = g.status ? g.status(segments[i]) : fake::perform(segments[i]);
  }
  errno = EAGAIN;
  return 0;
}

xengntshr_handle* xengntshr_open(xentoollog_logger* logger, unsigned) {
  if (fake::fails(fake::current->shares.open)) {
    return nullptr;
  }
  fake::current->order.emplace_back("open gntalloc");
  return new xengntdev_handle{logger};
}

int xengntshr_close(xengntshr_handle* handle) {
  fake::current->order.emplace_back("close gntalloc");
  delete handle;
  return 0;
}

void* xengntshr_share_pages(xengntshr_handle*, std::uint32_t domain, int count,
                            std::uint32_t* references, int writable) {
  fake::share_driver& s = fake::current->shares;
  if (fake::fails(s.share)) {
    return nullptr;
  }
  void* memory = fake::fresh(static_cast<std::uint32_t>(count));
  for (int i = 0; i < count; ++i) {
    references[i] = s.next_reference++;
  }
  s.shared[memory] = static_cast<std::uint32_t>(count);
  s.shares.emplace_back(domain, writable != 0);
  return memory;
}

int xengntshr_unshare(xengntshr_handle*, void* address, std::uint32_t) {
  if (fake::fails(fake::current->shares.unshare)) {
    return -1;
  }
  fake::current->order.emplace_back("unshare");
  fake::current->shares.shared.erase(address);
  ::operator delete(address, fake::page_aligned);
  return 0;
}

}  // extern "C"
