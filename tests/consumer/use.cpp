// SPDX-License-Identifier: MIT
// Uses one component as a stranger would; its argument is the version that it must find.
#include <cstdio>
#include <string>

#include <pvring/version.hpp>

#include "use.hpp"

#if defined(USE_LIBAIO)
#include <libaio.h>
#elif defined(USE_URING)
#include <liburing.h>
#elif defined(USE_NBD)
#include <libnbd.h>
#elif defined(USE_XEN)
#include <system_error>
#elif defined(USE_TESTING)
#include <gtest/gtest.h>
#endif

int main(int argc, char** argv) {
  // The component's library must be linked.
#if defined(USE_LIBAIO)
  io_context_t context{};
  if (io_setup(1, &context) == 0) {
    io_destroy(context);
  }
#elif defined(USE_URING)
  io_uring ring{};
  if (io_uring_queue_init(1, &ring, 0) == 0) {
    io_uring_queue_exit(&ring);
  }
#elif defined(USE_NBD)
  nbd_close(nbd_create());
#elif defined(USE_XEN)
  pvring::platform::xen host;
  try {
    (void)host.open_grants(1);
    (void)host.open_events();
    (void)host.open_store();
  } catch (const std::system_error& error) {
    std::puts(error.what());  // most machines run no Xen
  }
#elif defined(USE_TESTING)
  testing::InitGoogleTest(&argc, argv);
#endif
  const std::string version = std::to_string(PVRING_VERSION_MAJOR) + '.' +
                              std::to_string(PVRING_VERSION_MINOR) + '.' +
                              std::to_string(PVRING_VERSION_PATCH);
  if (argc != 2 || version != argv[1]) {
    std::fprintf(stderr, "the headers are version %s\n", version.c_str());
    return 1;
  }
  std::puts(version.c_str());
  return 0;
}
