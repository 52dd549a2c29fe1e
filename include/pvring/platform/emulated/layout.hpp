// SPDX-License-Identifier: MIT
// What lies where in the state that all processes of an emulated host share. Plain structs,
// accessed through atomic_ref or under the lock that is named beside them.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "../../base/error.hpp"
#include "../grant_mapper.hpp"
#include "options.hpp"
#include "process_identity.hpp"

namespace pvring::platform::detail {

/// An atomic view of a word in shared memory. Sequentially consistent unless an access says
/// otherwise: the tables are read and written in Dekker fashion (publish mine, then look at yours)
/// by processes that share no lock.
template <class T>
[[nodiscard]] std::atomic_ref<T> shared(T& word) noexcept {
  static_assert(std::atomic_ref<T>::is_always_lock_free, "must work between processes");
  return std::atomic_ref<T>(word);
}

inline constexpr std::size_t cache_line = 64;

/// Which process holds a slot. All fields are atomic; they change under the table's lock and are
/// read without it.
struct slot_owner {
  std::uint32_t in_use;
  std::uint32_t generation;  ///< counts the uses of the slot
  process_identity process;
};

/// A guest's free lists, guarded by `lock`.
struct alignas(cache_line) domain_slot {
  pthread_mutex_t lock;
  std::uint32_t grant_free;   ///< entries on the stack of free references
  std::uint32_t grant_next;   ///< first reference that was never used
  std::uint32_t page_cursor;  ///< page at which the next search for free ones begins
};

/// Whether a slot has a guest, and which: 0, or one of these | its id. Atomic, and apart from the
/// slots, because backends look there in every call.
inline constexpr std::uint32_t domain_alive = 1U << 16;
inline constexpr std::uint32_t domain_gone = 1U << 17;

/// One entry of a grant table, packed so that it changes at once.
struct grant_word {
  static constexpr std::uint64_t valid = 1;
  static constexpr std::uint64_t writable = 2;

  static std::uint64_t make(domain_id peer, std::uint32_t frame, access how) noexcept {
    return valid | (how == access::read_write ? writable : 0) | (std::uint64_t{peer} << 16) |
           (std::uint64_t{frame} << 32);
  }
  static domain_id peer(std::uint64_t word) noexcept { return static_cast<domain_id>(word >> 16); }
  static std::uint32_t frame(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word >> 32);
  }
};

/// The first references are reserved, as in Linux guests: a reference of 0 is always a mistake.
inline constexpr std::uint32_t first_grant = 8;

/// What the world sees of a grant handle. Only its own thread writes it, apart from `owner`.
struct alignas(cache_line) grant_slot {
  slot_owner owner;
  std::uint32_t domain;
  std::uint32_t pages_mapped;
  alignas(cache_line) std::uint64_t
      copying;  ///< while a copy runs: its number << 8 | domain slot + 1; else number << 8
  std::array<std::uint32_t, 200> pages_of;  ///< pages mapped, by domain slot
};

/// A mark that a handle has a grant mapped: the handle's generation << 16 | times. A mark whose
/// generation is not the slot's belongs to a handle that is gone, so nobody has to clean up after a
/// process that died.
struct map_mark {
  static std::uint32_t make(std::uint32_t generation, std::uint32_t times) noexcept {
    return (generation << 16) | times;
  }
  static std::uint32_t times(std::uint32_t mark) noexcept { return mark & 0xffffU; }
  static bool of(std::uint32_t mark, std::uint32_t generation) noexcept {
    return times(mark) != 0 && (mark >> 16) == (generation & 0xffffU);
  }
};

inline constexpr std::uint32_t ports = 4096;  ///< of the whole host; 0 is no port
inline constexpr std::uint32_t port_words = ports / 64;

enum class event_role : std::uint32_t { backend, guest };

/// An event handle. Peers set bits in `ready` and `selector` and count up `rings`, which is how
/// often they write the eventfd; each is counted before it is made. The handle's thread clears
/// bits.
struct alignas(cache_line) event_slot {
  std::uint64_t rings;
  std::uint64_t selector;  ///< words of `ready` that may hold something
  std::array<std::uint64_t, port_words> ready;
  slot_owner owner;
  std::uint32_t domain;
  event_role role;
  std::uint64_t notifies;  ///< written by the handle's thread
};

/// One end of an event channel. All fields are atomic and change under the registry's lock, apart
/// from `flags` and `kicked`. `peer` and `handle` are read without it: a kick that races with a
/// close may go to a stranger, and kicks without cause are always possible.
struct alignas(cache_line) port_slot {
  std::uint32_t flags;
  std::uint32_t peer;    ///< 0: unbound
  std::uint32_t handle;  ///< event slot that the port belongs to, + 1; 0: the port is not in use
  std::uint32_t domain;  ///< that the port belongs to
  std::uint32_t remote;  ///< that may bind to it
  std::uint32_t kicked;  ///< somebody kicked while no peer was bound: the next one to bind gets it
};
inline constexpr std::uint32_t port_pending = 1;
inline constexpr std::uint32_t port_masked = 2;

/// A node of the store. Guarded by the store's lock.
struct store_node {
  static constexpr std::size_t longest_name = 88;
  std::uint32_t parent, child, sibling;
  std::uint32_t used;
  std::uint64_t value;  ///< first chunk << 32 | length, in one word so that a value changes at once
  std::uint64_t version;  ///< the store's count when value, permissions or children changed last
  domain_id owner, reader;
  std::uint16_t has_reader;
  std::uint16_t name_length;
  std::array<char, longest_name> name;
};
static_assert(sizeof(store_node) == 128);

struct store_chunk {
  static constexpr std::size_t bytes = 60;
  std::uint32_t next;
  std::array<char, bytes> text;
};

inline constexpr std::size_t longest_path = 255;
inline constexpr std::size_t longest_token = 95;
inline constexpr std::size_t longest_value = 4096;
inline constexpr std::uint32_t watches_per_connection = 64;
inline constexpr std::uint32_t events_per_watch = 4;
inline constexpr std::size_t journal_bytes = 256 * 1024;

struct pending_event {
  std::uint64_t order;
  std::uint32_t length;
  std::array<char, longest_path + 1> path;
};

struct store_watch {
  std::uint32_t used;
  std::uint32_t relative;  ///< length of the prefix that was added to the caller's path, and is
                           ///< taken off events
  std::uint32_t path_length, token_length;
  std::uint32_t events;
  std::array<char, longest_path + 1> path;
  std::array<char, longest_token + 1> token;
  std::array<pending_event, events_per_watch> pending;
};

struct store_connection {
  slot_owner owner;
  std::uint32_t domain;
  std::uint32_t bell;  ///< 1: the eventfd has been written and was not read since
  std::array<store_watch, watches_per_connection> watches;
};

struct store_header {
  pthread_mutex_t lock;
  std::uint64_t version;  ///< counts changes
  std::uint64_t events;   ///< counts events, which orders them
  std::uint32_t node_free, node_next, nodes_left;
  std::uint32_t chunk_free, chunk_next, chunks_left;
  std::uint64_t journal_length;  ///< other than 0: a commit was under way, and is to be done again
  std::uint32_t journal_domain;
};

struct host_header {
  static constexpr std::uint64_t expected_magic = 0x3176'6769'7276'7000;
  std::uint64_t magic;
  emulated_options options;
  pthread_mutex_t registry;  ///< guards slots and ports
  std::uint64_t leaked_pages;
  std::uint64_t lost_pages;
  std::uint64_t closed_notifies[2];  ///< of handles that are closed, by role
};

/// Where each table begins, derived from the options alone.
struct layout {
  std::size_t tags, domains, grant_slots, event_slots, port_slots, store, nodes, chunks,
      connections, journal, per_domain;
  std::size_t grant_words, grant_stack, page_bitmap, page_grants, marks, domain_bytes, total;
  std::uint32_t store_chunks;

  static constexpr layout of(const emulated_options& o) noexcept {
    layout l{};
    std::size_t at = 0;
    const auto take = [&at](std::size_t bytes) {
      const std::size_t begin = at;
      at = (at + bytes + page_size - 1) / page_size * page_size;
      return begin;
    };
    (void)take(sizeof(host_header));
    l.store_chunks = o.store_nodes * 2 + 1024;
    l.tags = take(sizeof(std::uint32_t) * o.domains);
    l.domains = take(sizeof(domain_slot) * o.domains);
    l.grant_slots = take(sizeof(grant_slot) * o.grant_handles);
    l.event_slots = take(sizeof(event_slot) * o.event_handles);
    l.port_slots = take(sizeof(port_slot) * ports);
    l.store = take(sizeof(store_header));
    l.nodes = take(sizeof(store_node) * (o.store_nodes + 1));
    l.chunks = take(sizeof(store_chunk) * (l.store_chunks + 1));
    l.connections = take(sizeof(store_connection) * o.store_connections);
    l.journal = take(journal_bytes);
    l.per_domain = at;
    at = 0;
    l.grant_words = take(sizeof(std::uint64_t) * o.grants_per_domain);
    l.grant_stack = take(sizeof(std::uint32_t) * o.grants_per_domain);
    l.page_bitmap = take(sizeof(std::uint64_t) * ((o.pages_per_domain + 63) / 64));
    l.page_grants = take(sizeof(std::uint32_t) * o.pages_per_domain);
    l.marks = take(sizeof(std::uint32_t) * o.grants_per_domain * o.grant_handles);
    l.domain_bytes = at;
    l.total = l.per_domain + l.domain_bytes * o.domains;
    return l;
  }
};

}  // namespace pvring::platform::detail
