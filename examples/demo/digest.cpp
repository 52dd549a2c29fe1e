// SPDX-License-Identifier: MIT
// SHA-256 by OpenSSL's libcrypto, which uses the processor's instructions for it where there are
// any.
#include "digest.hpp"

#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace demo {

struct sha256::state {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(),
                                                                  &EVP_MD_CTX_free};
};

sha256::sha256() : state_(std::make_unique<state>()) {
  if (!state_->context || EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("libcrypto does not offer SHA-256");
  }
}

sha256::~sha256() = default;

void sha256::add(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) != 1) {
    throw std::runtime_error("libcrypto cannot continue a SHA-256");
  }
}

std::string sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_DigestFinal_ex(state_->context.get(), digest.data(), &length) != 1) {
    throw std::runtime_error("libcrypto cannot finish a SHA-256");
  }
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += digits[digest[i] >> 4U];
    text += digits[digest[i] & 15U];
  }
  return text;
}

}  // namespace demo
