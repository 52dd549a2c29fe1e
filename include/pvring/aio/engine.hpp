// SPDX-License-Identifier: MIT
// An I/O engine performs transfers between buffers and an image. What one device's queues share of
// it is the image; what each queue has for itself is the engine's context.
#pragma once

#include <sys/uio.h>

#include <boost/intrusive/list_hook.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../base/config.hpp"
#include "../base/source.hpp"

namespace pvring::aio {

enum class operation : std::uint8_t { read, write, flush, discard, write_zeroes };

/// One transfer. Whoever submits owns it and its buffers, and leaves both alone until it is reaped.
struct transfer {
  operation kind = operation::read;
  std::uint64_t offset = 0;  ///< bytes from the start of the image; 0 for a flush
  std::uint64_t length = 0;  ///< bytes; for read and write the sum of the buffers; 0 for a flush
  std::span<iovec>
      buffers;  ///< empty for flush, discard and write_zeroes; an engine never changes the entries

  // What follows belongs to the engine while the transfer is in flight.
  std::uint64_t done = 0;  ///< bytes already transferred, when a short transfer is being continued
  int error = 0;           ///< 0 or a negative errno
  boost::intrusive::list_member_hook<> hook;
};

/// How an engine that has the choice finds its completions.
enum class reap_mode : std::uint8_t {
  user_space,   ///< in the completion ring that the kernel maps into the process; no system call
  system_call,  ///< by asking the kernel
  polled,       ///< by having the kernel ask the device, which raises no interrupts then
};

/// What a queue asks of its context.
struct context_options {
  std::uint32_t capacity = 32;             ///< transfers in flight at most
  reap_mode reap = reap_mode::user_space;  ///< for engines that have the choice
};

/// What one device's queues share: an open file, a function, a connection. Any thread may call
/// these.
///
/// - `size()`: bytes; may change while in use (a live resize).
/// - `read_only()`, `can_flush()`: a flush makes what was answered durable; without, writes are
/// durable when answered.
/// - `discard_granularity()`: bytes; 0 when the image cannot discard.
/// - `physical_block_size()`: bytes, at least 512: the size below which the storage itself reads to
/// modify.
/// - `buffers_free_at_completion()`: nothing below touches a buffer once its transfer was reaped.
/// - `buffers_free_at_exit()`: the kernel waits for transfers in flight when the process dies.
/// Granted pages are used
///   as buffers only where both hold.
/// - `alignment()`: bytes to which buffers, offset and length of each buffer must be aligned; 1
/// when it does not matter.
/// - `name()`: for messages.
/// - optional, `most_contexts()`: how many queues may use it at a time.
/// - optional, `guarded()`: whether nothing of a process that was killed can land any more once the
/// image is open here. Only then is that process succeeded. One without it says that its transfers
/// end with their process.
template <class I>
concept image = requires(const I& i) {
  { i.size() } noexcept -> std::same_as<std::uint64_t>;
  { i.read_only() } noexcept -> std::same_as<bool>;
  { i.can_flush() } noexcept -> std::same_as<bool>;
  { i.discard_granularity() } noexcept -> std::same_as<std::uint32_t>;
  { i.physical_block_size() } noexcept -> std::same_as<std::uint32_t>;
  { i.buffers_free_at_completion() } noexcept -> std::same_as<bool>;
  { i.buffers_free_at_exit() } noexcept -> std::same_as<bool>;
  { i.alignment() } noexcept -> std::same_as<std::uint32_t>;
  { i.name() } noexcept -> std::convertible_to<std::string_view>;
};

namespace detail {
struct any_completion {
  void operator()(transfer&, int) const noexcept {}
};
}  // namespace detail

/// A queue's context. One thread uses it.
///
/// - `submit(batch)`: takes all of `batch`, in order, with as few system calls as it can (one for
/// the whole batch). Precondition:
///   `batch.size() <= capacity() - in_flight()`. Never fails: a transfer that cannot be submitted
///   completes with an error, and one that the kernel has no room for (EAGAIN) waits inside and
///   goes first at the next submit or reap.
/// - `reap(f)`: calls `f(transfer&, int error)` for every transfer that is complete, 0 or a
/// negative errno, and returns how many.
///   A transfer is whole or it is an error: the context continues short ones itself. `f` may do
///   anything to the transfer, but it may not call back into the context; completions that arrive
///   meanwhile are reaped by the same call or by the next.
/// - `in_flight()`: submitted and not yet reaped. Destroying a context waits until the kernel is
/// done with all buffers.
/// - as a `source`: armed, `fd()` becomes readable when something is complete.
/// - optional, `std::optional<std::chrono::steady_clock::time_point> deadline()`: when it wants to
/// be reaped even if nothing becomes readable, for what only time can bring on (room in the kernel
/// for a transfer, where nothing of its own will complete and make some).
/// - optional, `void expect_buffers_in(std::span<std::byte>) noexcept`: most buffers will lie
/// there, so an engine may prepare the region once instead of each buffer every time. It stays
/// mapped until nothing more is submitted.
///
/// No order is promised between transfers in flight; a flush covers what was reaped before it was
/// submitted. A flush that failed makes every later flush of the image fail, until it is opened
/// again: the kernel may have dropped the data.
template <class C>
concept engine_context = source<C> && requires(C& c, const C& k, std::span<transfer* const> batch,
                                               detail::any_completion f) {
  { c.submit(batch) } noexcept -> std::same_as<void>;
  { c.reap(f) } noexcept -> std::same_as<std::size_t>;
  { k.in_flight() } noexcept -> std::same_as<std::size_t>;
  { k.capacity() } noexcept -> std::same_as<std::size_t>;
};

/// An engine: a policy that names its image and its context. A context is made from `(image&,
/// context_options)` and may throw std::system_error with the remedy (aio-max-nr, for example).
template <class E>
concept engine = std::same_as<typename E::policy_kind, policy_kind::engine> &&
                 image<typename E::image> && engine_context<typename E::context> &&
                 std::constructible_from<typename E::context, typename E::image&, context_options>;

}  // namespace pvring::aio
