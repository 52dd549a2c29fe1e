// SPDX-License-Identifier: MIT
// An image whose transfers are complete at once and move nothing, so that a pass is measured
// without any I/O. It keeps count of what it was asked for, which is how a benchmark checks that
// its requests came through.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "pvring/aio/inline_engine.hpp"

namespace bench {

struct nothing {
  struct tally {
    std::uint64_t transfers = 0;
    std::uint64_t bytes = 0;
    std::uint64_t offsets = 0;
  };
  tally* seen = nullptr;

  int operator()(pvring::aio::operation /*kind*/, std::uint64_t offset,
                 std::span<const iovec> /*buffers*/, std::uint64_t length) noexcept {
    ++seen->transfers;
    seen->bytes += length;
    seen->offsets += offset;
    return 0;
  }
};

using nothing_engine = pvring::aio::inline_engine<nothing>;

}  // namespace bench
