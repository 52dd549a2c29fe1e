// SPDX-License-Identifier: MIT
// A fresh fake machine for each test, and what the tests of the handles have in common.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pvring/platform/xen.hpp>
#include <pvring/platform/xen/guest.hpp>

#include "fake_xen.hpp"

namespace seam {

using namespace pvring::platform;
using pvring::platform::access;  // not the system call
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class xen_seam : public testing::Test {
 public:
  xen_seam() {
    fake::current = std::make_unique<fake::machine>();
    messages().clear();
    pvring::log::set_sink(&keep);
  }
  ~xen_seam() override { pvring::log::set_sink(&pvring::log::detail::to_stderr); }

  static fake::machine& machine() { return *fake::current; }

  /// Grants pages whose bytes are their reference's last digit.
  static void grant(std::initializer_list<std::uint32_t> references) {
    for (const std::uint32_t r : references) {
      machine().grants.granted[r].assign(page_size, static_cast<char>('0' + r % 10));
    }
  }

  static bool readable(int fd, int milliseconds = 0) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, milliseconds) == 1;
  }

  /// The error of what `call` throws, whose text goes to `said`.
  template <class Call>
  int thrown_by(Call&& call) {
    said.clear();
    try {
      call();
    } catch (const std::system_error& error) {
      said = error.what();
      return error.code().value();
    }
    ADD_FAILURE() << "no exception";
    return 0;
  }

  static std::vector<std::string>& messages() {
    static std::vector<std::string> all;
    return all;
  }

  std::string said;

 private:
  static void keep(pvring::log::level, std::string_view message) noexcept {
    messages().emplace_back(message);
  }
};

}  // namespace seam
