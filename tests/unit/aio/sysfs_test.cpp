// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <pvring/aio/detail/sysfs.hpp>

#include "support.hpp"

namespace aio_test {
namespace {

namespace detail = pvring::aio::detail;

TEST(sysfs, reads_numbers_of_attributes) {
  const temporary_directory dir;
  EXPECT_EQ(detail::number_in(dir.file("ones", 3, '1'), 7), 111U);
  EXPECT_EQ(detail::number_in(dir.file("empty", 0), 7), 7U);
  EXPECT_EQ(detail::number_in(dir.path() + "/missing", 7), 7U);
}

}  // namespace
}  // namespace aio_test
