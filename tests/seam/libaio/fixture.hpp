// SPDX-License-Identifier: MIT
// A context of the real engine on a real temporary file, over the fake kernel.
#pragma once

#include <memory>

#include <pvring/aio/libaio.hpp>

#include "fake_libaio.hpp"
#include "support/engine_seam.hpp"

namespace seam {

class libaio_seam : public engine_seam<pvring::aio::file_image, pvring::aio::libaio::context> {
 public:
  libaio_seam() { fake::current = std::make_unique<fake::kernel>(); }

  static fake::kernel& kernel() { return *fake::current; }
};

}  // namespace seam
