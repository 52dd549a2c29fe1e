// SPDX-License-Identifier: MIT
// The engine on the kernel's asynchronous I/O, through libaio: one io_submit for a whole batch,
// completions read from the ring that the kernel maps into the process. It is the default engine.
#pragma once

#include "detail/kernel_context.hpp"
#include "engine.hpp"
#include "file_image.hpp"
#include "libaio_kernel.hpp"

namespace pvring::aio {

struct libaio {
  using policy_kind = pvring::policy_kind::engine;
  using image = file_image;
  class context;
};

/// One queue's AIO context.
class libaio::context : public detail::kernel_context<detail::libaio_kernel> {
 public:
  using kernel_context::kernel_context;

  /// How completions are found: the mapped ring may have turned out to be none that we know.
  [[nodiscard]] reap_mode reaps_by() const noexcept {
    return kernel().reads_ring() ? reap_mode::user_space : reap_mode::system_call;
  }
};

static_assert(engine<libaio>);

}  // namespace pvring::aio
