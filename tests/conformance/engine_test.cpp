// SPDX-License-Identifier: MIT
// Every engine that needs no library, and those of the test kit.
#include <cerrno>
#include <cstring>
#include <utility>

#include <pvring/aio/inline_engine.hpp>
#include <pvring/aio/memory.hpp>
#include <pvring/aio/one_of.hpp>
#include <pvring/testing/conformance/engine.hpp>
#include <pvring/testing/delayed_engine.hpp>
#include <pvring/testing/volatile_cache_engine.hpp>

namespace pvring::testing {
namespace {

constexpr std::uint64_t size = 4 << 20;

struct memory_setup {
  using engine = aio::memory;
  aio::memory_image& image() { return image_; }
  aio::memory_image image_{size};
};

/// A function that keeps its bytes.
struct keeps {
  std::vector<std::byte> bytes = std::vector<std::byte>(size);
  bool fail_flush = false;

  int operator()(aio::operation kind, std::uint64_t offset, std::span<const iovec> buffers,
                 std::uint64_t length) noexcept {
    if (kind == aio::operation::flush) {
      return std::exchange(fail_flush, false) ? -EIO : 0;
    }
    if (kind == aio::operation::write_zeroes) {
      std::memset(bytes.data() + offset, 0, length);
    }
    for (const iovec& buffer : buffers) {
      if (kind == aio::operation::read) {
        std::memcpy(buffer.iov_base, bytes.data() + offset, buffer.iov_len);
      } else {
        std::memcpy(bytes.data() + offset, buffer.iov_base, buffer.iov_len);
      }
      offset += buffer.iov_len;
    }
    return 0;
  }
};

struct inline_setup {
  using engine = aio::inline_engine<keeps>;
  engine::image& image() { return image_; }
  void fail_next_flush() { image_.function().fail_flush = true; }
  engine::image image_{keeps{}, {.size = size}};
};

/// Which engine it is, is known when the image is there.
template <class Image>
struct one_of_setup {
  using engine = aio::one_of<aio::memory, aio::inline_engine<keeps>>;
  engine::image& image() { return image_; }
  engine::image image_ = open();

 private:
  static engine::image open() {
    if constexpr (std::is_same_v<Image, aio::memory_image>) {
      return engine::image(std::in_place_type<Image>, size);
    } else {
      return engine::image(std::in_place_type<Image>, keeps{}, aio::inline_options{.size = size});
    }
  }
};

/// What a setup can bring about whose image follows a script.
template <class Setup>
struct scripted {
  void fail_next_flush() {
    self().image().script().result = [due = true](const aio::transfer& work) mutable {
      return work.kind == aio::operation::flush && std::exchange(due, false) ? -EIO : 0;
    };
  }
  void complete_backwards() { self().image().script().order = completion_order::newest_first; }

 private:
  Setup& self() { return static_cast<Setup&>(*this); }
};

template <completion_order Order, std::uint32_t Held, int Microseconds>
struct delayed_setup : scripted<delayed_setup<Order, Held, Microseconds>> {
  using engine = delayed_engine;
  delayed_image& image() { return image_; }
  delayed_image image_{size,
                       {.script = {.order = Order,
                                   .held_for = Held,
                                   .latency = std::chrono::microseconds(Microseconds),
                                   .at_most = 3}}};
};

struct volatile_cache_setup : scripted<volatile_cache_setup> {
  using engine = volatile_cache_engine;
  volatile_cache_image& image() { return image_; }
  volatile_cache_image image_{size};
};

using plain = ::testing::Types<memory_setup, inline_setup, one_of_setup<aio::memory_image>,
                               one_of_setup<aio::inline_image<keeps>>>;
using kit =
    ::testing::Types<delayed_setup<completion_order::oldest_first, 0, 0>,
                     delayed_setup<completion_order::newest_first, 2, 0>,
                     delayed_setup<completion_order::shuffled, 1, 300>, volatile_cache_setup>;
INSTANTIATE_TYPED_TEST_SUITE_P(plain, engine_conformance, plain);
INSTANTIATE_TYPED_TEST_SUITE_P(test_kit, engine_conformance, kit);

}  // namespace
}  // namespace pvring::testing
