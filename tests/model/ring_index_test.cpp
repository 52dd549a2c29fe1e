// SPDX-License-Identifier: MIT
// Rings whose indices have 8 bits, in all their states: every start, every number of requests in
// flight, every value that the peer may write. What the arithmetic of the 32-bit ring does near its
// wraps is thereby shown, not sampled. Each expectation is the definition, spelt out by walking
// from index to index, and not a formula like the one under test.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"
#include "pvring/ring/index.hpp"
#include "unit/ring/ping_protocol.hpp"

namespace {

using pvring::protocol_error;
using pvring::ring::crossed;
using index_type = std::uint8_t;
using back = pvring::ring::back_ring<ping_protocol, index_type>;
using front = pvring::ring::front_ring<ping_protocol, index_type>;
using duty = pvring::ring::obligation<ping_protocol>;

constexpr int all_indices = 256;
constexpr std::array<std::size_t, 8> sizes{1, 2, 4, 8, 16, 32, 64, 128};

// Starts for what is too much to do from each: both ends of the range and both sides of its middle.
constexpr std::array<index_type, 11> some_starts{0, 1, 126, 127, 128, 129, 200, 252, 253, 254, 255};

index_type plus(index_type index, std::size_t steps) {
  return static_cast<index_type>(index + steps);
}

class memory {
 public:
  [[nodiscard]] std::span<std::byte> of(std::size_t size) {
    return std::span(bytes_).first(64 + size * ping_protocol::slot_bytes);
  }
  void set_req_prod(index_type value) { bytes_[0] = std::byte{value}; }
  void set_rsp_prod(index_type value) { bytes_[2] = std::byte{value}; }
  void set_rsp_event(index_type value) { bytes_[3] = std::byte{value}; }
  void set_req_event(index_type value) { bytes_[1] = std::byte{value}; }
  [[nodiscard]] index_type req_event() const { return static_cast<index_type>(bytes_[1]); }
  [[nodiscard]] index_type rsp_event() const { return static_cast<index_type>(bytes_[3]); }
  [[nodiscard]] index_type rsp_prod() const { return static_cast<index_type>(bytes_[2]); }

 private:
  alignas(64) std::array<std::byte, 64 + 128 * ping_protocol::slot_bytes> bytes_{};
};

// For each value of an index: how many steps it is from `from`, where it is at most `most` of them,
// else -1.
std::array<int, all_indices> steps_from(index_type from, std::size_t most) {
  std::array<int, all_indices> steps{};
  steps.fill(-1);
  for (std::size_t i = 0; i <= most; ++i) {
    steps[plus(from, i)] = static_cast<int>(i);
  }
  return steps;
}

// A ring that has taken `count` requests and answered none.
back with_taken(memory& of, std::size_t size, index_type start, std::size_t count) {
  back ring(of.of(size), start);
  of.set_req_prod(plus(start, count));
  ring.take(count, [](auto& request) {
    duty owed = request.owe({0});
    owed.abandon();
  });
  return ring;
}

TEST(RingIndexModel, PeerIsNotifiedWhenTheEventLiesInWhatWasPassed) {
  std::size_t wrong = 0;
  for (int old = 0; old < all_indices; ++old) {
    for (int moved = 0; moved < all_indices; ++moved) {
      // Passed are old+1 to old+moved.
      const auto passed = steps_from(static_cast<index_type>(old), static_cast<std::size_t>(moved));
      for (int event = 0; event < all_indices; ++event) {
        const bool expected = passed[static_cast<std::size_t>(event)] > 0;
        wrong += crossed(static_cast<index_type>(old),
                         plus(static_cast<index_type>(old), static_cast<std::size_t>(moved)),
                         static_cast<index_type>(event)) != expected;
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(RingIndexModel, BackendBelievesAProducerIndexThatAnHonestFrontendCanReachAndNoOther) {
  std::size_t wrong = 0;
  std::size_t states = 0;
  for (const std::size_t size : sizes) {
    for (int start = 0; start < all_indices; ++start) {
      memory page;
      for (std::size_t in_flight = 0; in_flight <= size; ++in_flight) {
        const back ring = with_taken(page, size, static_cast<index_type>(start), in_flight);
        // The frontend can put what is not in flight.
        const auto reachable = steps_from(ring.request_consumer(), size - in_flight);
        for (int produced = 0; produced < all_indices; ++produced) {
          page.set_req_prod(static_cast<index_type>(produced));
          back probe = ring;
          const bool found = probe.has_requests();
          const int steps = reachable[static_cast<std::size_t>(produced)];
          wrong += found != (steps > 0);
          wrong += (probe.broken() != protocol_error::none) != (steps < 0);
          ++states;
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(states, 256U * 256U * (255U + 8U));
}

TEST(RingIndexModel, FrontendBelievesAProducerIndexThatAnHonestBackendCanReachAndNoOther) {
  std::size_t wrong = 0;
  for (const std::size_t size : sizes) {
    for (int start = 0; start < all_indices; ++start) {
      memory page;
      front ring(page.of(size), static_cast<index_type>(start));
      for (std::size_t outstanding = 0; outstanding <= size; ++outstanding) {
        const auto reachable = steps_from(static_cast<index_type>(start), outstanding);
        for (int produced = 0; produced < all_indices; ++produced) {
          page.set_rsp_prod(static_cast<index_type>(produced));
          front probe = ring;
          const bool found = probe.has_responses();
          const int steps = reachable[static_cast<std::size_t>(produced)];
          wrong += found != (steps > 0);
          wrong += (probe.broken() != protocol_error::none) != (steps < 0);
        }
        if (outstanding < size) {
          ring.put(ping(0));
          (void)ring.publish();
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(RingIndexModel, BackendTakesWhatIsThereAndNoMoreThanAsked) {
  std::size_t wrong = 0;
  for (const std::size_t size : sizes) {
    for (const index_type start : some_starts) {
      memory page;
      for (std::size_t in_flight = 0; in_flight <= size; ++in_flight) {
        const back ring = with_taken(page, size, start, in_flight);
        for (std::size_t more = 0; in_flight + more <= size; ++more) {
          page.set_req_prod(plus(start, in_flight + more));
          for (const std::size_t budget :
               {std::size_t{0}, more / 2, more, more + 1, std::size_t{1000}}) {
            back probe = ring;
            std::size_t seen = 0;
            const std::size_t got = probe.take(budget, [&](auto& request) {
              ++seen;
              duty owed = request.owe({0});
              owed.abandon();
            });
            wrong += got != std::min(budget, more) || seen != got ||
                     probe.unanswered() != in_flight + got ||
                     probe.request_consumer() != plus(start, in_flight + got);
          }
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

// A ring that has `count` responses written and not published.
back with_answered(memory& of, std::size_t size, index_type start, std::size_t count) {
  back ring(of.of(size), start);
  of.set_req_prod(plus(start, count));
  ring.take(count, [&](auto& request) { ring.respond(request.owe({0}).settle(0)); });
  return ring;
}

TEST(RingIndexModel, BackendNotifiesForEveryBatchAndEventAsDefined) {
  std::size_t wrong = 0;
  for (const std::size_t size : sizes) {
    for (int start = 0; start < all_indices; ++start) {
      memory page;
      for (std::size_t count = 0; count <= size; ++count) {
        const back ring = with_answered(page, size, static_cast<index_type>(start), count);
        const auto passed = steps_from(static_cast<index_type>(start), count);
        for (int event = 0; event < all_indices; ++event) {
          page.set_rsp_event(static_cast<index_type>(event));
          back probe = ring;
          wrong += probe.publish() != (passed[static_cast<std::size_t>(event)] > 0);
          wrong += probe.publish();  // nothing new
        }
        wrong += count != 0 && page.rsp_prod() != plus(static_cast<index_type>(start), count);
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(RingIndexModel, FrontendNotifiesForEveryBatchAndEventAsDefined) {
  std::size_t wrong = 0;
  for (const std::size_t size : sizes) {
    for (int start = 0; start < all_indices; ++start) {
      memory page;
      front ring(page.of(size), static_cast<index_type>(start));
      for (std::size_t count = 0; count <= size; ++count) {
        const auto passed = steps_from(static_cast<index_type>(start), count);
        for (int event = 0; event < all_indices; ++event) {
          page.set_req_event(static_cast<index_type>(event));
          front probe = ring;
          wrong += probe.publish() != (passed[static_cast<std::size_t>(event)] > 0);
        }
        if (count < size) {
          ring.put(ping(0));
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

// The whole of hold-off: whoever armed with a distance and was told that there is no work is
// notified by exactly that batch with which the distance is reached; and a distance that free slots
// cannot reach is cut down so that it can be.
TEST(RingIndexModel, ArmedBackendIsWokenByTheBatchThatReachesTheDistance) {
  std::size_t wrong = 0;
  for (const std::size_t size : sizes) {
    for (const index_type start : some_starts) {
      memory page;
      for (std::size_t in_flight = 0; in_flight <= size; ++in_flight) {
        const back ring = with_taken(page, size, start, in_flight);
        const std::size_t room = size - in_flight;
        const index_type taken = plus(start, in_flight);
        for (std::size_t distance = 1; distance <= size; distance += distance < 9 ? 1 : 13) {
          const std::size_t wanted = std::max<std::size_t>(1, std::min(distance, room));
          for (std::size_t there = 0; there <= room; ++there) {
            page.set_req_prod(plus(taken, there));
            back probe = ring;
            const bool work = probe.arm(static_cast<index_type>(distance));
            wrong += work != (there >= wanted);
            if (!work) {
              for (std::size_t later = there + 1; later <= room; ++later) {
                wrong += crossed(plus(taken, there), plus(taken, later), page.req_event()) !=
                         (later >= wanted);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(RingIndexModel, ArmedFrontendIsWokenByTheBatchThatReachesTheDistance) {
  std::size_t wrong = 0;
  for (const std::size_t size : sizes) {
    for (const index_type start : some_starts) {
      memory page;
      front ring(page.of(size), start);
      for (std::size_t outstanding = 0; outstanding <= size; ++outstanding) {
        for (std::size_t distance = 1; distance <= size; distance += distance < 9 ? 1 : 13) {
          const std::size_t wanted = std::max<std::size_t>(1, std::min(distance, outstanding));
          for (std::size_t there = 0; there <= outstanding; ++there) {
            page.set_rsp_prod(plus(start, there));
            front probe = ring;
            const bool work = probe.arm(static_cast<index_type>(distance));
            wrong += work != (there >= wanted);
            if (!work) {
              for (std::size_t later = there + 1; later <= outstanding; ++later) {
                wrong += crossed(plus(start, there), plus(start, later), page.rsp_event()) !=
                         (later >= wanted);
              }
            }
          }
        }
        if (outstanding < size) {
          ring.put(ping(0));
          (void)ring.publish();
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(RingIndexModel, ParkedRingIsNotNotifiedUntilTheIndexComesRound) {
  // An event index that was passed stays behind: of all batches that fit between, none passes it
  // again.
  std::size_t wrong = 0;
  for (int event = 0; event < all_indices; ++event) {
    for (int behind = 0; behind < all_indices; ++behind) {
      const index_type old = plus(static_cast<index_type>(event), static_cast<std::size_t>(behind));
      for (int moved = 1; behind + moved < all_indices; ++moved) {
        wrong += crossed(old, plus(old, static_cast<std::size_t>(moved)),
                         static_cast<index_type>(event));
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(RingIndexModel, PairOfIndicesToAttachToIsAcceptedWhereTheyFit) {
  std::size_t wrong = 0;
  memory page;
  for (const std::size_t size : sizes) {
    for (int responses = 0; responses < all_indices; ++responses) {
      const auto reachable = steps_from(static_cast<index_type>(responses), size);
      page.set_rsp_prod(static_cast<index_type>(responses));
      for (int requests = 0; requests < all_indices; ++requests) {
        page.set_req_prod(static_cast<index_type>(requests));
        wrong += back::read_published(page.of(size)).has_value() !=
                 (reachable[static_cast<std::size_t>(requests)] >= 0);
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
