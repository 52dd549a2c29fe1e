// SPDX-License-Identifier: MIT
// The engine's conformance suite over a kernel that can be told what to do wrong.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include <pvring/testing/conformance/engine.hpp>

#include "fixture.hpp"

namespace pvring::testing {
namespace {

struct told_uring {
  using policy_kind = pvring::policy_kind::engine;
  using image = aio::uring_image;
  using context = seam::told_context;
};

/// \tparam Bare a kernel that registers nothing, allocates no ranges, and holds results back until
/// it is asked for them
template <bool Bare>
struct scripted_kernel_setup {
  using engine = told_uring;

  scripted_kernel_setup() {
    fake::current = std::make_unique<fake::kernel>();
    fake::current->at_once = true;
    if (Bare) {
      fake::current->register_files = -EOPNOTSUPP;
      fake::current->hold = true;
      script([](const fake::call&) { return std::nullopt; });
    }
  }
  aio::uring_image& image() { return image_; }

  void fail_next_flush() {
    script([due = true](const fake::call& what) mutable -> std::optional<int> {
      if (what.entry.opcode != IORING_OP_FSYNC || !std::exchange(due, false)) {
        return std::nullopt;
      }
      return -EIO;
    });
  }
  void shorten_next(std::uint64_t bytes) {
    script([due = true, bytes](const fake::call& what) mutable -> std::optional<int> {
      if (what.buffers.empty() || !std::exchange(due, false)) {
        return std::nullopt;
      }
      fake::call cut = what;
      std::uint64_t left = bytes;
      for (iovec& buffer : cut.buffers) {
        buffer.iov_len = std::min<std::uint64_t>(buffer.iov_len, left);
        left -= buffer.iov_len;
      }
      return fake::current->perform(cut);
    });
  }
  void complete_backwards() { fake::current->backwards = true; }

 private:
  template <class F>
  static void script(F f) {
    fake::current->result = [f = std::move(f)](const fake::call& what) mutable {
      return Bare && what.entry.opcode == IORING_OP_FALLOCATE ? std::optional<int>(-EOPNOTSUPP)
                                                              : f(what);
    };
  }

  seam::temporary_file file_{4U << 20U};
  // Buffered: what is cut short anywhere could not go on with direct I/O.
  aio::uring_image image_{file_.path(), {.direct = aio::direct_io::never}};
};

using kernels = ::testing::Types<scripted_kernel_setup<false>, scripted_kernel_setup<true>>;
INSTANTIATE_TYPED_TEST_SUITE_P(uring_on_scripted_kernel, engine_conformance, kernels);

}  // namespace
}  // namespace pvring::testing
