// SPDX-License-Identifier: MIT
// The engine's conformance suite over a kernel that can be told what to do wrong.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include <pvring/testing/conformance/engine.hpp>

#include "fixture.hpp"

namespace pvring::testing {
namespace {

/// The engine with a fixed way to reap.
template <aio::reap_mode Reap>
struct reaping {
  using policy_kind = pvring::policy_kind::engine;
  using image = aio::file_image;
  struct context : aio::libaio::context {
    context(image& of, aio::context_options options)
        : aio::libaio::context(of, {.capacity = options.capacity, .reap = Reap}) {}
  };
};

template <aio::reap_mode Reap>
struct scripted_kernel_setup {
  using engine = reaping<Reap>;

  scripted_kernel_setup() {
    fake::current = std::make_unique<fake::kernel>();
    fake::current->at_once = true;
  }
  aio::file_image& image() { return image_; }

  void fail_next_flush() {
    fake::current->result = [due = true](const fake::call& what) mutable -> std::optional<long> {
      if (what.copy.aio_lio_opcode != IO_CMD_FDSYNC || !std::exchange(due, false)) {
        return std::nullopt;
      }
      return -EIO;
    };
  }
  void shorten_next(std::uint64_t bytes) {
    fake::current->result = [due = true,
                             bytes](const fake::call& what) mutable -> std::optional<long> {
      if (what.copy.aio_lio_opcode == IO_CMD_FDSYNC || !std::exchange(due, false)) {
        return std::nullopt;
      }
      fake::call cut = what;
      std::uint64_t left = bytes;
      for (iovec& buffer : cut.buffers) {
        buffer.iov_len = std::min<std::uint64_t>(buffer.iov_len, left);
        left -= buffer.iov_len;
      }
      return fake::kernel::perform(cut);
    };
  }
  void complete_backwards() { fake::current->backwards = true; }

  seam::temporary_file file_{4U << 20U};
  // Buffered: what is cut short anywhere could not go on with direct I/O.
  aio::file_image image_{file_.path(), {.direct = aio::direct_io::never}};
};

using both = ::testing::Types<scripted_kernel_setup<aio::reap_mode::user_space>,
                              scripted_kernel_setup<aio::reap_mode::system_call>>;
INSTANTIATE_TYPED_TEST_SUITE_P(libaio_on_scripted_kernel, engine_conformance, both);

}  // namespace
}  // namespace pvring::testing
