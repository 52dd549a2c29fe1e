// SPDX-License-Identifier: MIT
// All headers of one component, as they are installed.
#pragma once

#if defined(USE_CORE)
#include "all_core.hpp"
#elif defined(USE_EMULATED)
#include "all_emulated.hpp"
#elif defined(USE_LIBAIO)
#include "all_libaio.hpp"
#elif defined(USE_URING)
#include "all_uring.hpp"
#elif defined(USE_NBD)
#include "all_nbd.hpp"
#elif defined(USE_XEN)
#include "all_xen.hpp"
#elif defined(USE_TESTING)
#include "all_testing.hpp"
#endif
