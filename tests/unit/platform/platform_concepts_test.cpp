// SPDX-License-Identifier: MIT
// The concepts must refuse a platform that lacks anything: each twin below is the emulated platform
// with one thing wrong.
#include <gtest/gtest.h>

#include "pvring/platform/emulated.hpp"

namespace pvring::platform {
namespace {

static_assert(host<emulated>);
static_assert(grant_mapper<emulated_grants> && event_channel<emulated_events> &&
              store<emulated_store>);
static_assert(node_access<emulated_store::transaction>);

struct map_may_throw : emulated_grants {
  map_result map(domain_id, std::span<const grant_reference>, access);
};
static_assert(!grant_mapper<map_may_throw>);

struct map_returns_pages : emulated_grants {
  mapping map(domain_id, std::span<const grant_reference>, access) noexcept;
};
static_assert(!grant_mapper<map_returns_pages>);

struct unmap_by_address : emulated_grants {
  int unmap(std::byte*) noexcept;
};
static_assert(!grant_mapper<unmap_by_address>);

struct unmap_returns_nothing : emulated_grants {
  void unmap(mapping) noexcept;
};
static_assert(!grant_mapper<unmap_returns_nothing>);

struct copy_of_constants : emulated_grants {
  long copy(domain_id, direction, std::span<copy_operation>) noexcept;
};
static_assert(!grant_mapper<copy_of_constants>);

struct has_copy_changes : emulated_grants {
  bool has_copy() noexcept;
};
static_assert(!grant_mapper<has_copy_changes>);

struct no_batch_limit : emulated_grants {
 private:
  using emulated_grants::batch_limit;
};
static_assert(!grant_mapper<no_batch_limit>);

struct pending_may_throw : emulated_events {
  std::optional<port> pending();
};
static_assert(!event_channel<pending_may_throw>);

struct pending_is_plain : emulated_events {
  port pending() noexcept;
};
static_assert(!event_channel<pending_is_plain>);

struct notify_reports : emulated_events {
  int notify(port) noexcept;
};
static_assert(!event_channel<notify_reports>);

struct no_unmask : emulated_events {
 private:
  using emulated_events::unmask;
};
static_assert(!event_channel<no_unmask>);

struct read_is_plain : emulated_store {
  std::string read(std::string_view);
};
static_assert(node_access<emulated_store> && !node_access<read_is_plain> && !store<read_is_plain>);

struct no_watch : emulated_store {
 private:
  using emulated_store::watch;
};
static_assert(node_access<no_watch> && !store<no_watch>);

struct transaction_cannot_list : emulated_store {
  struct transaction : emulated_store::transaction {
    void list(std::string_view);
  };
};
static_assert(!store<transaction_cannot_list>);

struct no_policy_kind : emulated {
 private:
  using emulated::policy_kind;
};
static_assert(!host<no_policy_kind>);

struct another_kind : emulated {
  using policy_kind = pvring::policy_kind::engine;
};
static_assert(!host<another_kind>);

struct opens_pointers : emulated {
  emulated_events* open_events();
};
static_assert(!host<opens_pointers>);

struct opens_something_else : emulated {
  using grant_handle = map_may_throw;
};
static_assert(!host<opens_something_else>);

struct without_map_wait : emulated {
 private:
  using emulated::map_wait_is_bounded;
};
static_assert(!host<without_map_wait>);

TEST(PlatformConcepts, RefuseTwinsWithOneThingWrong) {
  SUCCEED() << "all of it is checked by the compiler";
}

}  // namespace
}  // namespace pvring::platform
