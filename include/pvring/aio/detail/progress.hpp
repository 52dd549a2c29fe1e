// SPDX-License-Identifier: MIT
// One read or write on its way through system calls that may take less than they were asked for:
// which piece comes next, and what a piece's result means for the whole. For every engine on files.
#pragma once

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "../engine.hpp"
#include "cursor.hpp"

namespace pvring::aio::detail {

class progress {
 public:
  /// What has come of a piece.
  enum class step : std::uint8_t {
    whole,      ///< the transfer has ended well
    more,       ///< the next piece is due
    continued,  ///< the piece was short: what is missing of it is the next piece
    failed,     ///< error()
  };

  progress() = default;
  /// Precondition: the lengths of the buffers, if there are any, add up to that of the transfer.
  explicit progress(transfer& work) noexcept : work_(&work), at_(work.buffers) {
    assert(cursor::sum(work.buffers) == work.length || work.buffers.empty());
  }

  [[nodiscard]] bool at_end() const noexcept { return at_.at_end(); }

  /// The next piece, from file offset `offset()`. Precondition: !at_end().
  [[nodiscard]] cursor::piece next() noexcept {
    const cursor::piece piece = at_.next();
    expected_ = piece.bytes;
    return piece;
  }

  [[nodiscard]] std::uint64_t offset() const noexcept { return work_->offset + work_->done; }
  [[nodiscard]] int error() const noexcept { return error_; }

  /// The piece has transferred `got` bytes.
  /// \param image answers alignment(), reads_as_zero(stopped, end) and written(end)
  template <class Image>
  step transferred(std::uint64_t got, Image& image) noexcept {
    if (got < expected_) {
      return work_->kind == operation::read ? short_read(got, image) : short_write(got, image);
    }
    move_on(expected_);
    if (!at_.at_end()) {
      return step::more;
    }
    if (work_->kind == operation::write) {
      image.written(offset());
    }
    return step::whole;
  }

 private:
  template <class Image>
  step short_read(std::uint64_t got, Image& image) noexcept {
    if (image.reads_as_zero(offset() + got, work_->offset + work_->length)) {
      at_.zero_from(got, work_->length - work_->done - got);
      move_on(work_->length - work_->done);
      return step::whole;
    }
    const std::uint64_t kept = whole_units(got, image);
    if (kept == 0) {
      return fail(-EIO);  // what should be there is not, as when the image has shrunk
    }
    move_on(kept);
    return step::continued;
  }

  template <class Image>
  step short_write(std::uint64_t got, Image& image) noexcept {
    // Usually there is no space: the kernel says so when it is asked for the rest.
    if (std::exchange(written_short_, true)) {
      return fail(got == 0 ? -ENOSPC : -EIO);
    }
    move_on(whole_units(got, image));
    return step::continued;
  }

  /// Of `got` bytes, those after which the next piece may start: the kernel refuses a rest that is
  /// not aligned.
  template <class Image>
  std::uint64_t whole_units(std::uint64_t got, const Image& image) const noexcept {
    const std::uint64_t stopped = offset() + got;
    const std::uint64_t aligned = stopped - stopped % image.alignment();
    return std::max(aligned, offset()) - offset();
  }

  void move_on(std::uint64_t bytes) noexcept {
    work_->done += bytes;
    at_.advance(bytes);
  }

  step fail(int error) noexcept {
    error_ = error;
    return step::failed;
  }

  transfer* work_ = nullptr;
  cursor at_;
  std::uint64_t expected_ = 0;  // bytes of the piece that is on its way
  int error_ = 0;
  bool written_short_ = false;
};

}  // namespace pvring::aio::detail
