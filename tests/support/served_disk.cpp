// SPDX-License-Identifier: MIT
#include "support/served_disk.hpp"

template class pvring::blk::backend<pvring::test::memory_config>;
