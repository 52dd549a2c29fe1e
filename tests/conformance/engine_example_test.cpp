// SPDX-License-Identifier: MIT
// The engine of examples/custom_policy: what it takes to put one's own through the suite.
#include <pvring/testing/conformance/engine.hpp>

#include "../examples/custom_policy/ram_disk.hpp"

namespace pvring::testing {
namespace {

struct ram_disk_setup {
  using engine = example::ram_disk;
  example::ram_image& image() { return image_; }
  example::ram_image image_{4 << 20};
};
INSTANTIATE_TYPED_TEST_SUITE_P(example, engine_conformance, ram_disk_setup);

}  // namespace
}  // namespace pvring::testing
