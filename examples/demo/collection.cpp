// SPDX-License-Identifier: MIT
// Copying files until the image is full enough. What cannot be read is passed over: any files will
// do.
#include "collection.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "settings.hpp"

namespace demo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t block = 4096;
constexpr std::uint64_t inode = 256;
constexpr std::uint64_t full_enough = mebibyte / 4;
// A larger file would be most of a small image.
constexpr std::uint64_t largest_file = 16 * mebibyte;

}  // namespace

collection::collection(fs::path to, std::uint64_t bytes, progress& line)
    : to_(std::move(to)), left_(bytes), line_(line) {}

void collection::add(const fs::path& from) {
  std::error_code failed;
  fs::recursive_directory_iterator at(from, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && at != fs::recursive_directory_iterator() && left_ > full_enough;
       at.increment(failed)) {
    std::error_code unreadable;
    if (at->is_regular_file(unreadable) && !at->is_symlink(unreadable)) {
      copy(at->path());
    }
  }
}

void collection::copy(const fs::path& file) {
  std::error_code failed;
  const std::uint64_t size = fs::file_size(file, failed);
  if (failed || size > largest_file) {
    return;
  }
  const std::uint64_t used = (size + block - 1) / block * block + inode;
  if (used > left_) {
    return;
  }
  const fs::path target = to_ / file.relative_path();
  if (fs::create_directories(target.parent_path(), failed)) {
    ++folders_;
    left_ -= std::min(left_, block);
  }
  if (fs::copy_file(file, target, failed)) {
    ++files_;
    left_ -= std::min(left_, used);
    line_.show("collecting files: " + std::to_string(files_));
  }
}

}  // namespace demo
