// SPDX-License-Identifier: MIT
// The engine on nbdkit's servers.
#include <string>
#include <vector>

#include <pvring/aio/nbd.hpp>
#include <pvring/testing/conformance/engine.hpp>

#include "support/nbd_server.hpp"

namespace pvring::testing {
namespace {

struct many_threads {
  static std::vector<std::string> arguments() { return {"memory", "4M"}; }
};
/// Answers come in another order than the requests, and late.
struct delays {
  static std::vector<std::string> arguments() {
    return {"-t", "64", "--filter=delay", "memory", "4M", "rdelay=1ms"};
  }
};
/// A server that takes whole sectors only, and few of them at once.
struct small_blocks {
  static std::vector<std::string> arguments() {
    return {"--filter=blocksize-policy",
            "memory",
            "4M",
            "blocksize-minimum=512",
            "blocksize-preferred=4096",
            "blocksize-maximum=65536",
            "blocksize-error-policy=error"};
  }
};

template <class Server>
struct nbd_setup {
  using engine = aio::nbd;
  aio::nbd_image& image() { return image_; }
  test::nbd_server server_{Server::arguments()};
  aio::nbd_image image_{server_.uri()};
};

using servers =
    ::testing::Types<nbd_setup<many_threads>, nbd_setup<delays>, nbd_setup<small_blocks>>;
INSTANTIATE_TYPED_TEST_SUITE_P(nbd, engine_conformance, servers);

}  // namespace
}  // namespace pvring::testing
