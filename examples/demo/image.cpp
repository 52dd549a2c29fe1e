// SPDX-License-Identifier: MIT
// Making the image: collecting files for mkfs.ext4, or copying the user's image without ever
// opening it for writing.
#include "image.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <pvring/base/unique_fd.hpp>
#include <system_error>
#include <vector>

#include "collection.hpp"
#include "digest.hpp"
#include "remote_disk.hpp"
#include "tool.hpp"

namespace demo {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

pvring::unique_fd open_file(const std::string& path, int flags) {
  pvring::unique_fd file(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!file) {
    fail(path);
  }
  return file;
}

void read_at(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail(path);
    }
    if (got == 0) {
      throw std::runtime_error(path + " ends at " + std::to_string(offset) + " bytes");
    }
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

struct remove_at_end {
  fs::path path;
  ~remove_at_end() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Whether an ext4 file system (or an older relative) begins at the file's start.
bool looks_like_ext4(const std::string& path, std::uint64_t bytes) {
  constexpr std::uint64_t magic_at = 1024 + 56;
  if (bytes < 2048) {
    return false;
  }
  std::array<std::byte, 2> magic{};
  read_file(path, magic_at, magic);
  return magic[0] == std::byte{0x53} && magic[1] == std::byte{0xef};
}

tool_result check(const std::string& path) {
  return run_tool(find_tool("e2fsck", "e2fsprogs"), {"-f", "-n", path});
}

void set_length(const std::string& path, std::uint64_t bytes) {
  if (::truncate(path.c_str(), static_cast<off_t>(bytes)) != 0) {
    fail(path);
  }
}

}  // namespace

void read_file(const std::string& path, std::uint64_t offset, std::span<std::byte> into) {
  const pvring::unique_fd file = open_file(path, O_RDONLY);
  read_at(file.get(), path, offset, into);
}

std::string digest_of_file(const std::string& path, std::uint64_t bytes) {
  const pvring::unique_fd file = open_file(path, O_RDONLY);
  std::vector<std::byte> buffer(mebibyte);
  sha256 digest;
  for (std::uint64_t at = 0; at < bytes; at += buffer.size()) {
    const std::span<std::byte> part(buffer.data(),
                                    std::min<std::uint64_t>(buffer.size(), bytes - at));
    read_at(file.get(), path, at, part);
    digest.add(part);
  }
  return digest.finish();
}

disk_image::disk_image(const settings& wanted, progress& line)
    : path_(wanted.out + "/pvring-demo.img"), keep_(wanted.keep_image) {
  fs::create_directories(wanted.out);
  std::error_code none;
  if (fs::equivalent(wanted.image, path_, none)) {
    throw std::runtime_error(
        wanted.image + " is where the working copy would be: choose another folder with --out");
  }
  try {
    if (wanted.image.empty()) {
      make(wanted, line);
    } else {
      copy(wanted, line);
    }
    tail_ = bytes_;
    bytes_ += wanted.tail_bytes();
    set_length(path_, bytes_);
    // A user's may have been copied while in use; then nothing can be said about it later.
    clean_ = looks_like_ext4(path_, bytes_) && check(path_).status == 0;
  } catch (...) {
    (void)::unlink(path_.c_str());
    throw;
  }
}

disk_image::~disk_image() {
  if (!keep_) {
    (void)::unlink(path_.c_str());
  }
}

void disk_image::make(const settings& wanted, progress& line) {
  const std::string mkfs = find_tool("mkfs.ext4", "e2fsprogs");
  const remove_at_end staging{wanted.out + "/files"};
  std::error_code ignored;
  fs::remove_all(staging.path, ignored);
  fs::create_directories(staging.path);
  bytes_ = wanted.file_system_bytes();
  // The rest is for the journal and the tables.
  collection files(staging.path, bytes_ / 100 * (wanted.smoke ? 50 : 85), line);
  files.add("/usr/share/doc");
  files.add("/usr/lib");

  line.show("mkfs.ext4");
  (void)::unlink(path_.c_str());
  open_file(path_, O_WRONLY | O_CREAT | O_EXCL);
  set_length(path_, bytes_);
  const tool_result made =
      run_tool(mkfs, {"-q", "-F", "-b", "4096", "-N",
                      std::to_string((files.files() + files.folders()) * 2 + 64), "-d",
                      staging.path.string(), path_});
  if (made.status != 0) {
    throw std::runtime_error("mkfs.ext4 failed: " + made.output);
  }
  origin_ = "an ext4 file system with " + std::to_string(files.files()) +
            " files from /usr/share/doc and /usr/lib";
}

void disk_image::copy(const settings& wanted, progress& line) {
  if (support::is_uri(wanted.image)) {
    remote_disk from(wanted.image);
    copy(wanted, from.bytes(), line,
         [&](std::uint64_t at, std::span<std::byte> into) { from.read(at, into); });
    return;
  }
  const pvring::unique_fd from = open_file(wanted.image, O_RDONLY);
  struct ::stat what {};
  if (::fstat(from.get(), &what) != 0) {
    fail(wanted.image);
  }
  // Also where it is a block device: its end is where seeking ends.
  const off_t length = ::lseek(from.get(), 0, SEEK_END);
  if (S_ISDIR(what.st_mode) || length < 0) {
    throw std::runtime_error(wanted.image + " is no image: name a file or a block device");
  }
  if (length == 0) {
    throw std::runtime_error(wanted.image + " is empty");
  }
  copy(wanted, static_cast<std::uint64_t>(length), line,
       [&](std::uint64_t at, std::span<std::byte> into) {
         read_at(from.get(), wanted.image, at, into);
       });
}

template <class Read>
void disk_image::copy(const settings& wanted, std::uint64_t bytes, progress& line, Read read) {
  constexpr std::uint64_t page = 4096;
  if (wanted.queues > 1 && bytes < wanted.queues * page) {
    throw std::runtime_error(wanted.image + " has " + std::to_string(bytes) +
                             " bytes, less than a page for each of " +
                             std::to_string(wanted.queues) + " queues: use --queues 1");
  }
  (void)::unlink(path_.c_str());
  const pvring::unique_fd to = open_file(path_, O_WRONLY | O_CREAT | O_EXCL);
  std::vector<std::byte> buffer(mebibyte);
  for (std::uint64_t at = 0; at < bytes; at += buffer.size()) {
    const std::span<std::byte> part(buffer.data(),
                                    std::min<std::uint64_t>(buffer.size(), bytes - at));
    read(at, part);
    const bool zeroes =
        std::all_of(part.begin(), part.end(), [](std::byte b) { return b == std::byte{0}; });
    // Zeroes become holes: the copy need not be larger on disk than the original.
    if (!zeroes && ::pwrite(to.get(), part.data(), part.size(), static_cast<off_t>(at)) !=
                       static_cast<ssize_t>(part.size())) {
      fail(path_);
    }
    line.show("copying " + wanted.image + ": " + std::to_string(at * 100 / bytes) + " %");
  }
  // The tail begins at a page; what lies between belongs to nobody.
  bytes_ = (bytes + page - 1) / page * page;
  set_length(path_, bytes_);
  origin_ = "a copy of " + wanted.image;
}

bool disk_image::check_file_system() const {
  if (!clean_) {
    return false;
  }
  const tool_result checked = check(path_);
  if (checked.status != 0) {
    throw mismatch("e2fsck finds the file system damaged (exit status " +
                   std::to_string(checked.status) + "):\n" + checked.output);
  }
  return true;
}

}  // namespace demo
