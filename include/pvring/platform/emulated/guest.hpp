// SPDX-License-Identifier: MIT
// The guest's side of an emulated host: pages, grants, ports and the store, as a frontend uses
// them. It is no part of the platform concept: a frontend on Xen has its kernel for that.
#pragma once

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "events.hpp"
#include "grant_table.hpp"
#include "store_handle.hpp"

namespace pvring::platform {

/// A guest domain. Made by `emulated_host::create_domain`, or by `emulated_host::domain` for one
/// that exists, also in another process. Any thread may use it; several objects, also in several
/// processes, may stand for the same domain. Destroying the object leaves the domain alone: see
/// `vanish`.
class emulated_guest {
 public:
  /// \param slot the domain's slot in the host's tables
  emulated_guest(std::shared_ptr<const detail::shared_state> state, std::uint32_t slot,
                 domain_id id)
      : state_(std::move(state)),
        slot_(slot),
        id_(id),
        bytes_(std::size_t{state_->options().pages_per_domain} * page_size) {
    // A view of its own, not the process's one: guest and backend then meet at different addresses,
    // as they would in different machines, and a sanitizer does not see one's copy as the other's
    // store.
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      state_->guest_memory(),
                      static_cast<off_t>(std::size_t{state_->first_frame(slot_)} * page_size));
    if (at == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(),
                              "memory of guest " + std::to_string(id_));
    }
    memory_ = static_cast<std::byte*>(at);
  }
  emulated_guest(emulated_guest&& other) noexcept
      : state_(std::move(other.state_)),
        slot_(other.slot_),
        id_(other.id_),
        bytes_(other.bytes_),
        memory_(std::exchange(other.memory_, nullptr)) {}
  emulated_guest& operator=(emulated_guest&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(slot_, other.slot_);
    std::swap(id_, other.id_);
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~emulated_guest() {
    if (memory_ != nullptr) {
      (void)::munmap(memory_, bytes_);
    }
  }

  [[nodiscard]] domain_id id() const noexcept { return id_; }

  /// `count` pages that lie side by side, with whatever they last held. The address holds as long
  /// as this object. Throws std::system_error (ENOMEM).
  [[nodiscard]] std::byte* allocate_pages(std::size_t count = 1);
  /// Gives pages back. Throws std::system_error: EBUSY where one of them is still granted (a peer
  /// may have it mapped: end the grant first, and keep the page if that is refused), EINVAL where
  /// they were not allocated.
  void free_pages(std::byte* pages, std::size_t count = 1);

  /// Lets `backend` use the page that begins at `page`. Throws std::system_error: EINVAL where
  /// there is no such page, ENOSPC.
  [[nodiscard]] grant_reference grant(domain_id backend, const std::byte* page, access how);
  /// Ends a grant. False: it is mapped, or is none; then nothing has changed and the page must be
  /// kept.
  [[nodiscard]] bool end_grant(grant_reference reference);
  /// Whether a live process has the grant mapped.
  [[nodiscard]] bool is_mapped(grant_reference reference) const {
    return reference < state_->options().grants_per_domain &&
           detail::is_grant_mapped(*state_, slot_, reference);
  }

  /// A handle for the guest's ports; offer them with its `alloc_unbound`.
  [[nodiscard]] emulated_events open_events() const {
    return emulated_events(state_, id_, detail::event_role::guest, nullptr);
  }
  /// A connection to the store as this domain; a path without a leading '/' is below
  /// /local/domain/ID/.
  [[nodiscard]] emulated_store open_store() const { return emulated_store(state_, id_, nullptr); }

  /// Destroys the domain: its grants, ports and store directory are gone. Maps that a backend has
  /// stay valid memory until it unmaps them.
  void vanish();

 private:
  [[nodiscard]] bool is_page(const std::byte* page) const noexcept {
    return page >= memory_ && page < memory_ + bytes_ &&
           static_cast<std::size_t>(page - memory_) % page_size == 0;
  }
  void check_alive() const {
    if (detail::shared(state_->tag(slot_)).load() != (detail::domain_alive | id_)) {
      refuse(ESRCH, "the domain is gone");
    }
  }
  [[noreturn]] void refuse(int error, const std::string& what) const {
    throw std::system_error(error, std::generic_category(),
                            "guest " + std::to_string(id_) + ": " + what);
  }
  [[nodiscard]] bool is_allocated(std::uint32_t page) const noexcept {
    return (state_->page_word(slot_, page / 64) >> (page % 64) & 1) != 0;
  }

  std::shared_ptr<const detail::shared_state> state_;
  std::uint32_t slot_;
  domain_id id_;
  std::size_t bytes_;
  std::byte* memory_ = nullptr;
};

inline std::byte* emulated_guest::allocate_pages(std::size_t count) {
  const std::uint32_t pages = state_->options().pages_per_domain;
  detail::domain_slot& domain = state_->domain(slot_);
  const detail::robust_lock lock(domain.lock);
  check_alive();
  // From where the last search ended, so that a guest with much memory in use does not look at all
  // of it each time.
  std::uint32_t run = 0;
  std::uint32_t page = domain.page_cursor < pages ? domain.page_cursor : 0;
  for (std::uint32_t looked = 0; count != 0 && looked < pages + count; ++looked, ++page) {
    if (page == pages) {
      page = 0;
      run = 0;  // a run does not continue at the other end
    }
    run = is_allocated(page) ? 0 : run + 1;
    if (run == count) {
      const std::uint32_t first = page + 1 - run;
      for (std::uint32_t p = first; p <= page; ++p) {
        state_->page_word(slot_, p / 64) |= std::uint64_t{1} << (p % 64);
      }
      domain.page_cursor = page + 1;
      return memory_ + std::size_t{first} * page_size;
    }
  }
  refuse(ENOMEM,
         "no " + std::to_string(count) + " free pages side by side of " + std::to_string(pages));
}

inline void emulated_guest::free_pages(std::byte* pages, std::size_t count) {
  if (!is_page(pages) || count > static_cast<std::size_t>(memory_ + bytes_ - pages) / page_size) {
    refuse(EINVAL, "these are no pages of this guest");
  }
  const auto first =
      static_cast<std::uint32_t>(static_cast<std::size_t>(pages - memory_) / page_size);
  const detail::robust_lock lock(state_->domain(slot_).lock);
  check_alive();
  for (std::uint32_t p = first; p < first + count; ++p) {
    if (!is_allocated(p)) {
      refuse(EINVAL, "page " + std::to_string(p) + " is free already");
    }
    if (state_->page_grants(slot_, p) != 0) {
      refuse(EBUSY, "page " + std::to_string(p) + " is still granted");
    }
  }
  for (std::uint32_t p = first; p < first + count; ++p) {
    state_->page_word(slot_, p / 64) &= ~(std::uint64_t{1} << (p % 64));
  }
}

inline grant_reference emulated_guest::grant(domain_id backend, const std::byte* page, access how) {
  if (!is_page(page)) {
    refuse(EINVAL, "a grant of an address that is no page");
  }
  const auto number =
      static_cast<std::uint32_t>(static_cast<std::size_t>(page - memory_) / page_size);
  detail::domain_slot& domain = state_->domain(slot_);
  const detail::robust_lock lock(domain.lock);
  check_alive();
  grant_reference reference = 0;
  if (domain.grant_free != 0) {
    reference = state_->free_grant(slot_, --domain.grant_free);
  } else if (domain.grant_next < state_->options().grants_per_domain) {
    reference = domain.grant_next++;
  } else {
    refuse(ENOSPC,
           "all " + std::to_string(state_->options().grants_per_domain) + " grants are in use");
  }
  ++state_->page_grants(slot_, number);
  detail::shared(state_->grant(slot_, reference))
      .store(detail::grant_word::make(backend, state_->first_frame(slot_) + number, how));
  return reference;
}

inline bool emulated_guest::end_grant(grant_reference reference) {
  if (reference >= state_->options().grants_per_domain) {
    return false;
  }
  detail::domain_slot& domain = state_->domain(slot_);
  const detail::robust_lock lock(domain.lock);
  const std::uint64_t word = detail::shared(state_->grant(slot_, reference)).load();
  if (detail::shared(state_->tag(slot_)).load() != (detail::domain_alive | id_) ||
      !detail::end_grant(*state_, slot_, reference)) {
    return false;
  }
  --state_->page_grants(slot_, detail::grant_word::frame(word) - state_->first_frame(slot_));
  state_->free_grant(slot_, domain.grant_free++) = reference;
  return true;
}

inline void emulated_guest::vanish() {
  detail::domain_slot& domain = state_->domain(slot_);
  {
    const detail::robust_lock lock(domain.lock);
    std::uint32_t alive = detail::domain_alive | id_;
    if (!detail::shared(state_->tag(slot_))
             .compare_exchange_strong(alive, detail::domain_gone | id_)) {
      return;
    }
    for (grant_reference r = detail::first_grant; r < domain.grant_next; ++r) {
      detail::shared(state_->grant(slot_, r)).store(0);
    }
    (void)detail::wait_for_copies(*state_, slot_);
  }
  {
    const detail::registry_lock lock(*state_);
    for (port p = 1; p < detail::ports; ++p) {
      if (detail::shared(state_->port(p).handle).load() != 0 &&
          detail::shared(state_->port(p).domain).load() == id_) {
        detail::free_port(*state_, p);
      }
    }
  }
  detail::store_session session(*state_);
  const detail::store_change removal{
      detail::store_change::kind::remove, detail::home_of(id_), {}, {}};
  session.apply({&removal, 1}, 0);
  session.watches().fire(session.tree(), "@releaseDomain", detail::store_tree::none);
}

}  // namespace pvring::platform
