// SPDX-License-Identifier: MIT
// The engine on the real kernel, on a file of a disk's file system and on one of tmpfs.
#include <pvring/aio/uring.hpp>
#include <pvring/testing/conformance/engine.hpp>

#include "support/image_files.hpp"

namespace pvring::testing {
namespace {

template <bool Memory, aio::direct_io Direct>
struct uring_setup {
  using engine = aio::uring;
  aio::uring_image& image() { return image_; }
  test::sparse_file file_{Memory ? "/dev/shm" : "/tmp"};
  aio::uring_image image_{file_.path(), {.direct = Direct}};
};

using aio::direct_io;
using everywhere =
    ::testing::Types<uring_setup<false, direct_io::automatic>, uring_setup<false, direct_io::never>,
                     uring_setup<true, direct_io::automatic>>;
INSTANTIATE_TYPED_TEST_SUITE_P(uring, engine_conformance, everywhere);

}  // namespace
}  // namespace pvring::testing
