// SPDX-License-Identifier: MIT
// A context of a real engine on a real temporary file; what is below it is a fake of the test's.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pvring/aio/engine.hpp>
#include <pvring/aio/file_image.hpp>

namespace seam {

using pvring::aio::operation;
using pvring::aio::reap_mode;
using pvring::aio::transfer;

/// A file that is gone with the object.
class temporary_file {
 public:
  explicit temporary_file(std::size_t bytes, char fill = 'a') {
    const int fd = ::mkstemp(path_.data());
    const std::string content(bytes, fill);
    if (fd < 0 || ::write(fd, content.data(), bytes) != static_cast<ssize_t>(bytes)) {
      std::abort();
    }
    ::close(fd);
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/pvring_seam_XXXXXX";
};

template <class Image, class Context>
class engine_seam : public testing::Test {
 public:
  /// Opens the image buffered, so that no test depends on the file system's idea of direct I/O.
  void open(std::size_t bytes = 65536, std::uint32_t capacity = 8,
            reap_mode reap = reap_mode::user_space) {
    file.emplace(bytes);
    image.emplace(file->path(), pvring::aio::file_options{.direct = pvring::aio::direct_io::never});
    context.emplace(*image, pvring::aio::context_options{.capacity = capacity, .reap = reap});
  }

  /// A transfer with buffers of the given lengths.
  transfer& make(operation kind, std::uint64_t offset, std::vector<std::size_t> lengths) {
    request& r = requests.emplace_back();
    std::uint64_t total = 0;
    for (const std::size_t n : lengths) {
      r.data.emplace_back(n, 'w');
      r.buffers.push_back({r.data.back().data(), n});
      total += n;
    }
    r.work.kind = kind;
    r.work.offset = offset;
    r.work.length = total;
    r.work.buffers = r.buffers;
    return r.work;
  }
  transfer& read(std::uint64_t offset, std::vector<std::size_t> lengths = {512}) {
    return make(operation::read, offset, std::move(lengths));
  }
  transfer& write(std::uint64_t offset, std::vector<std::size_t> lengths = {512}) {
    return make(operation::write, offset, std::move(lengths));
  }
  transfer& flush() { return make(operation::flush, 0, {}); }

  void submit(std::vector<transfer*> batch) { context->submit(batch); }

  /// `n` reads of a sector each, submitted as one batch.
  std::vector<transfer*> submit_reads(std::size_t n) {
    std::vector<transfer*> batch;
    for (std::size_t i = 0; i < n; ++i) {
      batch.push_back(&read(i * 512));
    }
    context->submit(batch);
    return batch;
  }

  using results = std::vector<std::pair<transfer*, int>>;
  results reap() {
    results out;
    context->reap([&](transfer& work, int error) noexcept { out.emplace_back(&work, error); });
    return out;
  }

  /// Reaps until nothing is in flight, sleeping as a queue would; what does not end within seconds
  /// is a failure.
  results reap_all() {
    results out;
    while (context->in_flight() != 0) {
      for (const auto& one : reap()) {
        out.push_back(one);
      }
      if (context->in_flight() != 0 && !context->arm() && !sleep()) {
        ADD_FAILURE() << "nobody woke us, " << context->in_flight() << " in flight";
        break;
      }
    }
    context->disarm();
    return out;
  }

  bool readable(int milliseconds = 0) {
    pollfd p{context->fd(), POLLIN, 0};
    return ::poll(&p, 1, milliseconds) == 1;
  }

  /// Sleeps as a queue would: until it is woken or its deadline has come. False when neither
  /// happens within seconds.
  bool sleep() {
    constexpr std::chrono::milliseconds longest(2000);
    const auto at = context->deadline();
    if (!at) {
      return readable(static_cast<int>(longest.count()));
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*at - std::chrono::steady_clock::now());
    const auto nap = std::clamp(left, std::chrono::milliseconds(0), longest);
    return readable(static_cast<int>(nap.count())) || left <= longest;
  }

  struct request {
    transfer work;
    std::vector<iovec> buffers;
    std::deque<std::string> data;
  };
  std::deque<request> requests;
  std::optional<temporary_file> file;
  std::optional<Image> image;
  std::optional<Context> context;
};

}  // namespace seam
