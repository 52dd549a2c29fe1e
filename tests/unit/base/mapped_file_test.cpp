// SPDX-License-Identifier: MIT
// What one process writes the next one finds, and nothing else is taken for it.
#include "pvring/base/mapped_file.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>

namespace {

using pvring::mapped_file;

static_assert(!std::is_copy_constructible_v<mapped_file>);
static_assert(!std::is_copy_assignable_v<mapped_file>);
static_assert(!std::is_move_assignable_v<mapped_file>);
static_assert(std::is_nothrow_move_constructible_v<mapped_file>);

constexpr std::size_t bytes = 5000;  // not whole pages

class MappedFile : public testing::Test {
 protected:
  MappedFile() {
    if (::mkdtemp(directory_.data()) == nullptr) {
      std::abort();
    }
    path_ = directory_ + "/journal";
  }
  ~MappedFile() override { std::filesystem::remove_all(directory_); }

  static std::string refusal(const std::string& path, std::size_t size) {
    try {
      (void)mapped_file::create(path, size);
    } catch (const std::system_error& e) {
      return e.what();
    }
    return "";
  }
  static bool is_zero(const mapped_file& file) {
    return std::ranges::all_of(file.memory(), [](std::byte b) { return b == std::byte{0}; });
  }

  std::string directory_ = "/tmp/pvring-mapped-XXXXXX";
  std::string path_;
};

TEST_F(MappedFile, IsFoundAsItWasLeft) {
  {
    const mapped_file first = mapped_file::create(path_, bytes);
    EXPECT_EQ(first.memory().size(), bytes);
    EXPECT_TRUE(is_zero(first));
    first.memory()[0] = std::byte{1};
    first.memory()[bytes - 1] = std::byte{2};
  }
  const auto second = mapped_file::open(path_, bytes);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->path(), path_);
  EXPECT_EQ(second->memory()[0], std::byte{1});
  EXPECT_EQ(second->memory()[bytes - 1], std::byte{2});
}

TEST_F(MappedFile, IsItsOwnersAlone) {
  const mapped_file file = mapped_file::create(path_, bytes);
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(MappedFile, ThatIsNewTakesTheOldOnesPlaceAndLeavesItsMemoryAlone) {
  const mapped_file old = mapped_file::create(path_, bytes);
  old.memory()[7] = std::byte{7};
  const mapped_file fresh = mapped_file::create(path_, bytes);
  EXPECT_TRUE(is_zero(fresh));
  fresh.memory()[7] = std::byte{8};
  EXPECT_EQ(old.memory()[7], std::byte{7});
}

TEST_F(MappedFile, OfAnotherSizeOrKindIsNone) {
  EXPECT_FALSE(mapped_file::open(path_, bytes)) << "not there";
  { (void)mapped_file::create(path_, bytes); }
  EXPECT_FALSE(mapped_file::open(path_, bytes - 1));
  EXPECT_FALSE(mapped_file::open(path_, bytes + 1)) << "looking at it would be a signal";
  std::filesystem::create_symlink(path_, directory_ + "/link");
  EXPECT_FALSE(mapped_file::open(directory_ + "/link", bytes));
  EXPECT_FALSE(mapped_file::open(directory_, bytes));
  ASSERT_EQ(::mkfifo((directory_ + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(mapped_file::open(directory_ + "/pipe", bytes)) << "and nobody waits for a writer";
}

TEST_F(MappedFile, OfAnotherUserIsNone) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "files cannot be given away";
  }
  { (void)mapped_file::create(path_, bytes); }
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_FALSE(mapped_file::open(path_, bytes));
}

TEST_F(MappedFile, OfAnySizeFromTheLeastOn) {
  { (void)mapped_file::create(path_, bytes); }
  EXPECT_FALSE(mapped_file::open(path_, bytes - 1));
  const auto found = mapped_file::open_any(path_, bytes - 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->memory().size(), bytes);
  EXPECT_THROW((void)mapped_file::open_any(path_, bytes + 1), pvring::in_use_error)
      << "whether it is used does not depend on its size";
}

// Not to be had is not the same as not there.
TEST_F(MappedFile, ThatCannotBeLookedForIsAnError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::exception_ptr thrown;
  try {
    (void)mapped_file::open_any(path_, bytes);
  } catch (...) {
    thrown = std::current_exception();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  // Looked at only now: a sanitizer that checks the object's type needs descriptors for that.
  ASSERT_TRUE(thrown);
  try {
    std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::too_many_files_open);
  }
}

// Whoever has it may have ended, but not quite: what he mapped beside it is still mapped.
TEST_F(MappedFile, IsOnesAlone) {
  EXPECT_NO_THROW((void)mapped_file::open_any(path_, bytes)) << "there is none";
  {
    const mapped_file first = mapped_file::create(path_, bytes);
    EXPECT_THROW((void)mapped_file::open(path_, bytes), pvring::in_use_error);
    EXPECT_THROW((void)mapped_file::open_any(path_, bytes), pvring::in_use_error);
    EXPECT_NO_THROW((void)mapped_file::create(path_, bytes)) << "another file, of the same name";
  }
  EXPECT_NO_THROW((void)mapped_file::open_any(path_, bytes));
  const auto second = mapped_file::open(path_, bytes);
  ASSERT_TRUE(second);
  EXPECT_THROW((void)mapped_file::open_any(path_, bytes), pvring::in_use_error);
}

// A link that somebody laid is replaced, and what it leads to is not written.
TEST_F(MappedFile, IsNotMadeThroughALink) {
  const std::string victim = directory_ + "/victim";
  { std::ofstream(victim) << "precious"; }
  std::filesystem::create_symlink(victim, path_);
  const mapped_file file = mapped_file::create(path_, bytes);
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(std::filesystem::file_size(victim), 8U);
}

TEST_F(MappedFile, ThatCannotBeMadeSaysWhichAndWhy) {
  EXPECT_NE(refusal(directory_ + "/nowhere/journal", bytes).find("/nowhere/journal"),
            std::string::npos);
  std::filesystem::create_directory(path_);
  EXPECT_NE(refusal(path_, bytes).find("removing the old file " + path_), std::string::npos);
}

// Room that is missing is an error when it is made: later it would be a signal.
TEST_F(MappedFile, HasItsRoomFromTheStart) {
  if (::mount("none", directory_.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "cannot mount a file system";
  }
  EXPECT_EQ(refusal(path_, 16384), "");
  EXPECT_NE(refusal(path_, 1 << 20).find("making room for " + path_), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nothing half made is left";
  EXPECT_EQ(::umount2(directory_.c_str(), MNT_DETACH), 0);
}

TEST_F(MappedFile, WithoutANameIsMemory) {
  mapped_file first = mapped_file::anonymous(bytes);
  EXPECT_EQ(first.path(), "");
  first.memory()[3] = std::byte{3};
  const mapped_file second(std::move(first));
  EXPECT_EQ(second.memory()[3], std::byte{3});
}

}  // namespace
