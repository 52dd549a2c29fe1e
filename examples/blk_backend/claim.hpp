// SPDX-License-Identifier: MIT
// That this process serves a type, said in the store: two backends on one ring would destroy the
// disk. A process that died has no claim any more.
#pragma once

#include <pvring/base/error.hpp>
#include <string>

#include "store_connection.hpp"

namespace tool {

class claim {
 public:
  /// \throws command_error naming the process that serves it. \param store outlives this
  claim(store_connection& store, pvring::domain_id backend_domain, const std::string& type);
  claim(const claim&) = delete;
  claim& operator=(const claim&) = delete;
  ~claim();

 private:
  // The process that has it; empty: this one now.
  std::string take(const std::string& mine);

  store_connection& store_;
  std::string node_;
};

}  // namespace tool
