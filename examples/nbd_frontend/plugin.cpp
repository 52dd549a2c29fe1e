// SPDX-License-Identifier: MIT
// An nbdkit plugin: every request of an NBD client is a request of an emulated guest, which reaches
// the image through our ring and our backend. So tools that nobody here wrote drive the whole path
// on a machine without Xen:
//
//     nbdkit ./nbdkit-pvring-plugin.so image=DISK [engine=uring] --run 'nbdcopy "$uri" copy.img'
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <pvring/base/log.hpp>
#include <string>
#include <string_view>

#include "disk.hpp"

namespace {

using nbd_frontend::disk;
using nbd_frontend::settings;

settings wanted;               // written before anything is served
std::optional<disk> the_disk;  // from after_fork to cleanup
std::atomic<std::size_t> next_queue{0};

constexpr int failed = -1;

/// nbdkit is C: no exception leaves us.
template <class F>
int guarded(F f) noexcept {
  try {
    return f();
  } catch (const std::exception& error) {
    nbdkit_error("%s", error.what());
    return failed;
  }
}

int answer(int error) noexcept {
  if (error != 0) {
    nbdkit_set_error(error);
    nbdkit_error("the disk says: %s", std::generic_category().message(error).c_str());
    return failed;
  }
  return 0;
}

void show(pvring::log::level level, std::string_view message) noexcept {
  if (level == pvring::log::level::error || level == pvring::log::level::warning) {
    nbdkit_error("%.*s", static_cast<int>(message.size()), message.data());
  } else {
    nbdkit_debug("%.*s", static_cast<int>(message.size()), message.data());
  }
}

// --- what the user says --------------------------------------------------------------------------

int config(const char* key, const char* value) noexcept {
  return guarded([key = std::string_view(key), value] {
    unsigned number = 0;
    if (key == "image") {
      if (support::is_uri(value)) {
        wanted.image = value;
      } else {
        char* path = nbdkit_realpath(value);  // the server will have another working directory
        if (path == nullptr) {
          return failed;
        }
        wanted.image = path;
        std::free(path);
      }
    } else if (key == "engine") {
      wanted.engine = support::parse_engine(value);
    } else if (key == "grants") {
      wanted.grants = value;
    } else if (key == "queues") {
      if (nbdkit_parse_unsigned("queues", value, &number) != 0) {
        return failed;
      }
      wanted.queues = number;
    } else if (key == "ring-pages") {
      if (nbdkit_parse_unsigned("ring-pages", value, &number) != 0) {
        return failed;
      }
      wanted.ring_pages = number;
    } else if (key == "read-only") {
      const int yes = nbdkit_parse_bool(value);
      if (yes < 0) {
        return failed;
      }
      wanted.read_only = yes == 1;
    } else {
      nbdkit_error("unknown parameter '%s': see nbdkit --help", std::string(key).c_str());
      return failed;
    }
    return 0;
  });
}

int config_complete() noexcept {
  if (wanted.image.empty()) {
    nbdkit_error("say which image: image=PATH or image=URI");
    return failed;
  }
  if (wanted.queues == 0 || wanted.ring_pages == 0 || wanted.ring_pages > 16 ||
      (wanted.ring_pages & (wanted.ring_pages - 1)) != 0) {
    nbdkit_error("queues is at least 1, ring-pages is 1, 2, 4, 8 or 16");
    return failed;
  }
  return 0;
}

// --- its life ------------------------------------------------------------------------------------

// Threads do not survive a fork: nothing before.
int after_fork() noexcept {
  return guarded([] {
    pvring::log::set_sink(&show);
    the_disk.emplace(wanted);
    return 0;
  });
}

void cleanup() noexcept {
  (void)guarded([] {
    if (the_disk) {
      the_disk->disconnect();
      the_disk.reset();
    }
    return 0;
  });
}

/// A client's connection: the queue that its requests go to.
void* open(int) noexcept {
  return &the_disk->queue(next_queue.fetch_add(1, std::memory_order_relaxed));
}

nbd_frontend::shared_queue& queue_of(void* handle) {
  return *static_cast<nbd_frontend::shared_queue*>(handle);
}

// --- what it offers ------------------------------------------------------------------------------

std::int64_t get_size(void*) noexcept {
  return static_cast<std::int64_t>(the_disk->device().sectors * 512);
}
int block_size(void*, std::uint32_t* least, std::uint32_t* preferred,
               std::uint32_t* most) noexcept {
  *least = 512;
  *preferred = 4096;
  *most = 32U << 20U;
  return 0;
}
int can_write(void*) noexcept { return wanted.read_only ? 0 : 1; }
int can_flush(void*) noexcept { return the_disk->device().flush ? 1 : 0; }
int can_trim(void*) noexcept { return the_disk->device().discard ? 1 : 0; }
// A flush on any queue covers what was answered on all of them.
int can_multi_conn(void*) noexcept { return 1; }

// --- requests ------------------------------------------------------------------------------------

bool whole_sectors(std::uint64_t offset, std::uint64_t count) noexcept {
  if (offset % 512 == 0 && count % 512 == 0) {
    return true;
  }
  nbdkit_set_error(EINVAL);
  nbdkit_error("a disk moves whole sectors: put --filter=blocksize before the plugin");
  return false;
}

int pread(void* handle, void* into, std::uint32_t count, std::uint64_t offset,
          std::uint32_t) noexcept {
  return guarded([=] {
    return whole_sectors(offset, count)
               ? answer(queue_of(handle).read(offset, {static_cast<std::byte*>(into), count}))
               : failed;
  });
}

int pwrite(void* handle, const void* from, std::uint32_t count, std::uint64_t offset,
           std::uint32_t) noexcept {
  return guarded([=] {
    return whole_sectors(offset, count) ? answer(queue_of(handle).write(
                                              offset, {static_cast<const std::byte*>(from), count}))
                                        : failed;
  });
}

int flush(void* handle, std::uint32_t) noexcept {
  return guarded([=] { return answer(queue_of(handle).flush()); });
}

// A discard promises nothing, so what is no whole sector is left as it is.
int trim(void* handle, std::uint32_t count, std::uint64_t offset, std::uint32_t) noexcept {
  return guarded([=] {
    const std::uint64_t first = (offset + 511) / 512 * 512;
    const std::uint64_t end = (offset + count) / 512 * 512;
    return first < end ? answer(queue_of(handle).discard(first, end - first)) : 0;
  });
}

nbdkit_plugin describe() noexcept {
  nbdkit_plugin p{};
  p.name = "pvring";
  p.longname = "a disk behind a Xen block ring";
  p.description = "serves an image through an emulated guest, a ring and pvring's backend";
  p.config = &config;
  p.config_complete = &config_complete;
  p.config_help =
      "image=PATH|URI      (required) the disk\n"
      "engine=auto|libaio|uring  what performs the I/O on a path\n"
      "grants=NAME         batched_copy, persistent_pool or map_each\n"
      "queues=N            queues of the device (2)\n"
      "ring-pages=N        pages of each queue's ring (4)\n"
      "read-only=BOOL";
  p.magic_config_key = "image";
  p.after_fork = &after_fork;
  p.cleanup = &cleanup;
  p.open = &open;
  p.get_size = &get_size;
  p.block_size = &block_size;
  p.can_write = &can_write;
  p.can_flush = &can_flush;
  p.can_trim = &can_trim;
  p.can_multi_conn = &can_multi_conn;
  p.pread = &pread;
  p.pwrite = &pwrite;
  p.flush = &flush;
  p.trim = &trim;
  p.errno_is_preserved = 0;
  return p;
}

nbdkit_plugin plugin = describe();

}  // namespace

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
NBDKIT_REGISTER_PLUGIN(plugin)
