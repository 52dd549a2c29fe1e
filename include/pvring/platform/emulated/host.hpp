// SPDX-License-Identifier: MIT
// An emulated machine: guests, their memory, grants, event channels and the store. Copies of the
// object, also in processes that inherit or receive it, are the same machine.
#pragma once

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "descriptor_passing.hpp"
#include "guest.hpp"
#include "options.hpp"

namespace pvring::platform {

/// Any thread may use it. Handles keep what they need alive, so it may be destroyed before them.
///
/// Processes share it by fork (open handles afterwards: they belong to the process that opened
/// them) or by `send` and `receive`; they must be able to see each other in /proc. The tables are
/// no protection of one process against another: a hostile *guest* is played with its API, not by
/// scribbling over the host's state.
class emulated_host {
 public:
  /// A new machine. Throws std::system_error, or std::invalid_argument naming an option that is out
  /// of range.
  [[nodiscard]] static emulated_host create(const emulated_options& options = {}) {
    return emulated_host(
        std::make_shared<const detail::shared_state>(detail::shared_state::create(options)));
  }
  /// The machine that another process sends over `socket`; blocks until it is there. Throws
  /// std::system_error.
  [[nodiscard]] static emulated_host receive(int socket) {
    return emulated_host(std::make_shared<const detail::shared_state>(
        detail::shared_state::adopt(detail::receive_descriptors(socket))));
  }
  /// Hands the machine to the process at the other end of a connected Unix socket. Throws
  /// std::system_error.
  void send(int socket) const { detail::send_descriptors(socket, state_->descriptors()); }

  /// A new guest with zeroed memory and the directory /local/domain/ID, which it owns. Throws
  /// std::system_error: EEXIST, ENOSPC.
  [[nodiscard]] emulated_guest create_domain(domain_id id) const;
  /// A guest that exists. Throws std::system_error (ESRCH).
  [[nodiscard]] emulated_guest domain(domain_id id) const {
    const auto slot = state_->find_domain(id);
    if (!slot) {
      throw std::system_error(ESRCH, std::generic_category(),
                              "emulated host: domain " + std::to_string(id));
    }
    return emulated_guest(state_, *slot, id);
  }
  [[nodiscard]] bool has_domain(domain_id id) const noexcept {
    return state_->find_domain(id).has_value();
  }
  /// See `emulated_guest::vanish`. A domain that does not exist is ignored.
  void destroy_domain(domain_id id) const {
    if (has_domain(id)) {
      domain(id).vanish();
    }
  }

  /// Pages that were still mapped when their handle was closed: 0 in a correct backend.
  [[nodiscard]] std::uint64_t leaked_pages() const noexcept {
    return detail::shared(state_->header().leaked_pages).load();
  }
  /// Pages that processes had mapped when they died.
  [[nodiscard]] std::uint64_t lost_pages() const {
    const detail::registry_lock lock(*state_);
    detail::reap(*state_);
    return detail::shared(state_->header().lost_pages).load();
  }
  /// Kicks sent by all handles of guests, and of backends.
  [[nodiscard]] std::uint64_t guest_notifies() const { return notifies(detail::event_role::guest); }
  [[nodiscard]] std::uint64_t backend_notifies() const {
    return notifies(detail::event_role::backend);
  }

  [[nodiscard]] const emulated_options& options() const noexcept { return state_->options(); }
  /// What handles share; not for users.
  [[nodiscard]] const std::shared_ptr<const detail::shared_state>& state() const noexcept {
    return state_;
  }

 private:
  explicit emulated_host(std::shared_ptr<const detail::shared_state> state)
      : state_(std::move(state)) {}

  [[nodiscard]] std::uint64_t notifies(detail::event_role role) const {
    const detail::registry_lock lock(*state_);
    std::uint64_t sum =
        detail::shared(state_->header().closed_notifies[static_cast<std::size_t>(role)]).load();
    for (std::uint32_t i = 0; i < state_->options().event_handles; ++i) {
      detail::event_slot& slot = state_->events(i);
      sum += slot.role == role ? detail::shared(slot.notifies).load() : 0;
    }
    return sum;
  }

  // A domain that is gone keeps its slot while a backend has pages of it mapped.
  [[nodiscard]] bool is_mapped(std::uint32_t domain) const {
    for (std::uint32_t h = 0; h < state_->options().grant_handles; ++h) {
      if (detail::shared(state_->grants(h).pages_of[domain]).load() != 0) {
        return true;
      }
    }
    return false;
  }

  std::shared_ptr<const detail::shared_state> state_;
};

inline emulated_guest emulated_host::create_domain(domain_id id) const {
  const std::uint32_t n = state_->options().domains;
  std::uint32_t slot = n;
  {
    const detail::registry_lock lock(*state_);
    detail::reap(*state_);
    if (state_->find_domain(id)) {
      throw std::system_error(EEXIST, std::generic_category(),
                              "emulated host: domain " + std::to_string(id));
    }
    for (std::uint32_t i = 0; i < n && slot == n; ++i) {
      const std::uint32_t tag = detail::shared(state_->tag(i)).load();
      slot = (tag & detail::domain_alive) == 0 && !is_mapped(i) ? i : slot;
    }
    if (slot == n) {
      detail::throw_full("domains", n);
    }
    detail::domain_slot& fresh = state_->domain(slot);
    const detail::robust_lock domain_lock(fresh.lock);
    fresh.grant_free = 0;
    fresh.grant_next = detail::first_grant;
    fresh.page_cursor = 0;
    for (std::uint32_t i = 0; i < (state_->options().pages_per_domain + 63) / 64; ++i) {
      state_->page_word(slot, i) = 0;
    }
    for (std::uint32_t i = 0; i < state_->options().pages_per_domain; ++i) {
      // Read first: the table is sparse, and reading a hole takes no memory.
      if (state_->page_grants(slot, i) != 0) {
        state_->page_grants(slot, i) = 0;
      }
    }
    (void)::fallocate(
        state_->guest_memory(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        static_cast<off_t>(std::size_t{state_->first_frame(slot)} * page_size),
        static_cast<off_t>(std::size_t{state_->options().pages_per_domain} * page_size));
    detail::shared(state_->tag(slot)).store(detail::domain_alive | id);
  }
  detail::store_session session(*state_);
  const std::string home = detail::home_of(id);
  const std::array<detail::store_change, 2> changes{
      {{detail::store_change::kind::write, home, {}, {}},
       {detail::store_change::kind::permissions, home, {}, {.owner = id, .reader = std::nullopt}}}};
  session.apply(changes, 0);
  session.watches().fire(session.tree(), "@introduceDomain", detail::store_tree::none);
  return emulated_guest(state_, slot, id);
}

}  // namespace pvring::platform
