// SPDX-License-Identifier: MIT
// Serves a queue that has to end until nothing of it is in flight. Only for ends without ceremony:
// a queue that was disconnected in good order has nothing left.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <span>

#include "loop.hpp"
#include "served.hpp"

namespace pvring::wait {

/// A queue that takes no more once it was stopped, and says when it is idle.
template <class Q>
concept drainable = served<Q> && requires(Q& q, const Q& c) {
  { q.stop() } noexcept;
  { c.idle() } noexcept -> std::same_as<bool>;
};

/// \pre nobody else serves the queue. \param turns the queue's waiter
template <drainable Queue>
void drain(Queue& queue, waiter<Queue>& turns) noexcept {
  queue.stop();
  while (!queue.idle()) {
    // The pass itself may have made it idle, and then nothing would wake the sleeper.
    if (!turns.turn() || queue.idle()) {
      continue;
    }
    std::array<pollfd, max_sources> sleepers{};
    const std::span<const int> fds = turns.fds();
    for (std::size_t i = 0; i < fds.size(); ++i) {
      sleepers[i] = {.fd = fds[i], .events = POLLIN, .revents = 0};
    }
    (void)::poll(sleepers.data(), static_cast<nfds_t>(fds.size()), turns.timeout_ms());
  }
}

}  // namespace pvring::wait
