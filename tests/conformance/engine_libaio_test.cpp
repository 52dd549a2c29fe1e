// SPDX-License-Identifier: MIT
// The engine on the real kernel, on a file of a disk's file system and on one of tmpfs.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <pvring/aio/libaio.hpp>
#include <pvring/testing/conformance/engine.hpp>

namespace pvring::testing {
namespace {

/// A sparse file that is gone with the object.
class temporary_file {
 public:
  explicit temporary_file(const char* directory)
      : path_(std::string(directory) + "/pvring_engine_XXXXXX") {
    const unique_fd fd(::mkostemp(path_.data(), O_CLOEXEC));
    if (!fd || ::ftruncate(fd.get(), 4 << 20) != 0) {
      std::abort();
    }
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

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
  temporary_file file_{Memory ? "/dev/shm" : "/tmp"};
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
