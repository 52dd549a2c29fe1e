// SPDX-License-Identifier: MIT
// Files for tests of engines.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <pvring/base/unique_fd.hpp>

namespace test {

/// A sparse file that is gone with the object.
class sparse_file {
 public:
  explicit sparse_file(const std::string& directory, off_t bytes = 4 << 20)
      : path_(directory + "/pvring_engine_XXXXXX") {
    const pvring::unique_fd fd(::mkostemp(path_.data(), O_CLOEXEC));
    if (!fd || ::ftruncate(fd.get(), bytes) != 0) {
      std::abort();
    }
  }
  sparse_file(const sparse_file&) = delete;
  sparse_file& operator=(const sparse_file&) = delete;
  ~sparse_file() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace test
