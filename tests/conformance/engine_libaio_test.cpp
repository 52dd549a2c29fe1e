// SPDX-License-Identifier: MIT
// The engine on the real kernel, on a file of a disk's file system and on one of tmpfs.
#include <pvring/aio/libaio.hpp>
#include <pvring/testing/conformance/engine.hpp>

#include "support/image_files.hpp"

namespace pvring::testing {
namespace {

/// The engine with a fixed way to reap, so that both go through the suite.
template <aio::reap_mode Reap>
struct libaio_that_reaps {
  using policy_kind = pvring::policy_kind::engine;
  using image = aio::file_image;
  struct context : aio::libaio::context {
    context(image& of, aio::context_options options)
        : aio::libaio::context(of, {.capacity = options.capacity, .reap = Reap}) {}
  };
};

template <aio::reap_mode Reap, bool Memory, aio::direct_io Direct>
struct libaio_setup {
  using engine = libaio_that_reaps<Reap>;
  aio::file_image& image() { return image_; }
  test::sparse_file file_{Memory ? "/dev/shm" : "/tmp"};
  aio::file_image image_{file_.path(), {.direct = Direct}};
};

using aio::direct_io;
using aio::reap_mode;
using on_disk = ::testing::Types<libaio_setup<reap_mode::user_space, false, direct_io::automatic>,
                                 libaio_setup<reap_mode::system_call, false, direct_io::automatic>,
                                 libaio_setup<reap_mode::user_space, false, direct_io::never>>;
using on_tmpfs = ::testing::Types<libaio_setup<reap_mode::user_space, true, direct_io::automatic>,
                                  libaio_setup<reap_mode::system_call, true, direct_io::never>>;
INSTANTIATE_TYPED_TEST_SUITE_P(libaio_on_disk, engine_conformance, on_disk);
INSTANTIATE_TYPED_TEST_SUITE_P(libaio_on_tmpfs, engine_conformance, on_tmpfs);

}  // namespace
}  // namespace pvring::testing
