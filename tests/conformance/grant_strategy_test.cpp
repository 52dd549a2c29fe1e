// SPDX-License-Identifier: MIT
// The library's own strategies, and the example's, pass the suite that is installed for
// everybody's.
#include "pvring/testing/conformance/grant_strategy.hpp"

#include "../../examples/custom_policy/copy_each.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/persistent_pool.hpp"

namespace pvring::testing {

using strategies = ::testing::Types<grant::batched_copy, grant::map_each, grant::persistent_pool,
                                    example::copy_each>;
INSTANTIATE_TYPED_TEST_SUITE_P(every, grant_strategy_conformance, strategies);

}  // namespace pvring::testing
