// SPDX-License-Identifier: MIT
// One process's attachment to an emulated host: the two memory files, the eventfds, and typed
// access to the tables in them. It is created once and then inherited by fork or received over a
// socket.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "layout.hpp"
#include "memory_file.hpp"
#include "robust_mutex.hpp"

namespace pvring::platform::detail {

/// Shared by every handle of the process; immutable once made.
class shared_state {
 public:
  /// A new host. Throws std::system_error, or std::invalid_argument naming the option that is out
  /// of range.
  static shared_state create(const emulated_options& options) {
    check(options);
    const layout where = layout::of(options);
    shared_state made(memory_file::create("pvring-host", where.total),
                      memory_file::create("pvring-guests", guest_bytes(options)), {}, where);
    host_header& header = made.header();
    header.options = options;
    initialise_robust(header.registry);
    initialise_robust(made.store().lock);
    for (std::uint32_t i = 0; i < options.domains; ++i) {
      initialise_robust(made.domain(i).lock);
    }
    for (std::uint32_t i = 0; i < options.event_handles + options.store_connections; ++i) {
      made.bells_.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!made.bells_.back()) {
        throw std::system_error(
            errno, std::generic_category(),
            "eventfd number " + std::to_string(i) + " of an emulated host; raise RLIMIT_NOFILE");
      }
    }
    header.magic = host_header::expected_magic;
    return made;
  }

  /// A host that another process created, from the descriptors that it sent, in order.
  static shared_state adopt(std::vector<unique_fd> descriptors) {
    if (descriptors.size() < 2) {
      throw std::runtime_error("an emulated host arrives as at least two descriptors");
    }
    memory_file tables = memory_file::adopt(std::move(descriptors[0]));
    memory_file guests = memory_file::adopt(std::move(descriptors[1]));
    descriptors.erase(descriptors.begin(), descriptors.begin() + 2);
    const auto* header = reinterpret_cast<const host_header*>(tables.data());
    if (tables.size() < sizeof(host_header) || header->magic != host_header::expected_magic ||
        layout::of(header->options).total != tables.size() ||
        guest_bytes(header->options) != guests.size() ||
        descriptors.size() != header->options.event_handles + header->options.store_connections) {
      throw std::runtime_error("the descriptors received are not an emulated host of this version");
    }
    const layout where = layout::of(header->options);
    return shared_state(std::move(tables), std::move(guests), std::move(descriptors), where);
  }

  /// What another process needs to adopt the host.
  [[nodiscard]] std::vector<int> descriptors() const {
    std::vector<int> all{tables_.fd(), guests_.fd()};
    for (const unique_fd& bell : bells_) {
      all.push_back(bell.get());
    }
    return all;
  }

  [[nodiscard]] host_header& header() const noexcept { return at<host_header>(0, 0); }
  [[nodiscard]] const emulated_options& options() const noexcept { return header().options; }
  [[nodiscard]] std::uint32_t& tag(std::uint32_t i) const noexcept {
    return at<std::uint32_t>(where_.tags, i);
  }
  [[nodiscard]] domain_slot& domain(std::uint32_t i) const noexcept {
    return at<domain_slot>(where_.domains, i);
  }
  [[nodiscard]] grant_slot& grants(std::uint32_t i) const noexcept {
    return at<grant_slot>(where_.grant_slots, i);
  }
  [[nodiscard]] event_slot& events(std::uint32_t i) const noexcept {
    return at<event_slot>(where_.event_slots, i);
  }
  [[nodiscard]] port_slot& port(std::uint32_t i) const noexcept {
    return at<port_slot>(where_.port_slots, i);
  }
  [[nodiscard]] store_header& store() const noexcept { return at<store_header>(where_.store, 0); }
  [[nodiscard]] store_node& node(std::uint32_t i) const noexcept {
    return at<store_node>(where_.nodes, i);
  }
  [[nodiscard]] store_chunk& chunk(std::uint32_t i) const noexcept {
    return at<store_chunk>(where_.chunks, i);
  }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return where_.store_chunks; }
  [[nodiscard]] store_connection& connection(std::uint32_t i) const noexcept {
    return at<store_connection>(where_.connections, i);
  }
  [[nodiscard]] char* journal() const noexcept { return &at<char>(where_.journal, 0); }

  [[nodiscard]] std::uint64_t& grant(std::uint32_t domain, grant_reference r) const noexcept {
    return at<std::uint64_t>(of_domain(domain) + where_.grant_words, r);
  }
  [[nodiscard]] std::uint32_t& free_grant(std::uint32_t domain, std::uint32_t i) const noexcept {
    return at<std::uint32_t>(of_domain(domain) + where_.grant_stack, i);
  }
  [[nodiscard]] std::uint64_t& page_word(std::uint32_t domain, std::uint32_t i) const noexcept {
    return at<std::uint64_t>(of_domain(domain) + where_.page_bitmap, i);
  }
  /// How many grants a page has.
  [[nodiscard]] std::uint32_t& page_grants(std::uint32_t domain,
                                           std::uint32_t page) const noexcept {
    return at<std::uint32_t>(of_domain(domain) + where_.page_grants, page);
  }
  /// The mark that a grant handle leaves on a grant it has mapped. The marks of one grant lie side
  /// by side.
  [[nodiscard]] std::uint32_t& mark(std::uint32_t domain, grant_reference r,
                                    std::uint32_t handle) const noexcept {
    return at<std::uint32_t>(of_domain(domain) + where_.marks,
                             std::size_t{r} * options().grant_handles + handle);
  }

  [[nodiscard]] int event_bell(std::uint32_t handle) const noexcept { return bells_[handle].get(); }
  [[nodiscard]] int store_bell(std::uint32_t connection) const noexcept {
    return bells_[options().event_handles + connection].get();
  }

  /// The process's own view of all guests' memory, by frame.
  [[nodiscard]] std::byte* frame(std::uint32_t number) const noexcept {
    return guests_.data() + std::size_t{number} * page_size;
  }
  [[nodiscard]] int guest_memory() const noexcept { return guests_.fd(); }
  [[nodiscard]] std::uint32_t first_frame(std::uint32_t domain) const noexcept {
    return domain * options().pages_per_domain;
  }

  /// The slot of a guest that is alive.
  [[nodiscard]] std::optional<std::uint32_t> find_domain(domain_id id) const noexcept {
    for (std::uint32_t i = 0, n = options().domains; i < n; ++i) {
      if (shared(tag(i)).load() == (domain_alive | id)) {
        return i;
      }
    }
    return std::nullopt;
  }

 private:
  shared_state(memory_file tables, memory_file guests, std::vector<unique_fd> bells,
               const layout& where)
      : tables_(std::move(tables)),
        guests_(std::move(guests)),
        bells_(std::move(bells)),
        where_(where) {}

  template <class T>
  [[nodiscard]] T& at(std::size_t offset, std::size_t index) const noexcept {
    return reinterpret_cast<T*>(tables_.data() + offset)[index];
  }
  [[nodiscard]] std::size_t of_domain(std::uint32_t domain) const noexcept {
    return where_.per_domain + std::size_t{domain} * where_.domain_bytes;
  }

  static std::size_t guest_bytes(const emulated_options& o) noexcept {
    return std::size_t{o.domains} * o.pages_per_domain * page_size;
  }

  static void check(const emulated_options& o) {
    const auto within = [](const char* name, std::uint32_t value, std::uint32_t least,
                           std::uint32_t most) {
      if (value < least || value > most) {
        throw std::invalid_argument("emulated host: " + std::string(name) + " is " +
                                    std::to_string(value) + ", must be from " +
                                    std::to_string(least) + " to " + std::to_string(most));
      }
    };
    constexpr std::uint32_t million = 1U << 20;
    within("domains", o.domains, 1, 200);
    within("pages_per_domain", o.pages_per_domain, 1, million);
    within("grants_per_domain", o.grants_per_domain, first_grant + 1, million);
    within("grant_handles", o.grant_handles, 1, 256);
    // Together at most 240, because one message over a Unix socket carries 253 descriptors.
    within("event_handles", o.event_handles, 1, 200);
    within("store_connections", o.store_connections, 1, 240 - o.event_handles);
    within("store_nodes", o.store_nodes, 64, million);
  }

  memory_file tables_;
  memory_file guests_;
  std::vector<unique_fd> bells_;
  layout where_;
};

}  // namespace pvring::platform::detail
