// SPDX-License-Identifier: MIT
#include "remote_disk.hpp"

#include <poll.h>

#include <chrono>
#include <system_error>

namespace demo {

remote_disk::remote_disk(const std::string& uri)
    : image_(support::open_image(uri, support::file_engine::automatic, {.read_only = true})),
      context_(image_, {.capacity = 1}) {}

void remote_disk::read(std::uint64_t offset, std::span<std::byte> into) {
  iovec buffer{into.data(), into.size()};
  pvring::aio::transfer work;
  work.offset = offset;
  work.length = into.size();
  work.buffers = {&buffer, 1};
  pvring::aio::transfer* one = &work;
  context_.submit({&one, 1});
  int error = 0;
  while (context_.in_flight() != 0) {
    context_.reap([&](pvring::aio::transfer&, int result) noexcept { error = result; });
    if (context_.in_flight() != 0 && !context_.arm()) {
      constexpr int shortly = 100;  // what only time brings on needs no more exact a look
      pollfd p{context_.fd(), POLLIN, 0};
      (void)::poll(&p, 1, shortly);
    }
  }
  if (error != 0) {
    throw std::system_error(-error, std::generic_category(), std::string(image_.name()));
  }
}

}  // namespace demo
