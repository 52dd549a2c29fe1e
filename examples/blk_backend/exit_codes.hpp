// SPDX-License-Identifier: MIT
// How every command ends, and the errors that end it so. The man page lists the same numbers.
#pragma once

#include <stdexcept>
#include <string>

namespace tool {

enum exit_code : int {
  fine = 0,
  failed = 1,        ///< something went wrong on the way
  bad_usage = 2,     ///< an option, the configuration or an image cannot be used
  wrong_device = 3,  ///< the device exists already, or is not there; or there is no such domain
  no_answer = 4,     ///< the other end did not do its part in time
  wrong_data = 5,    ///< only `try`: wrong data, or the backend broke the protocol
  test_skipped = 77,
};

/// Ends the command with `code`; the message says what, and what to do.
class command_error : public std::runtime_error {
 public:
  command_error(exit_code code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  [[nodiscard]] exit_code code() const noexcept { return code_; }

 private:
  exit_code code_;
};

}  // namespace tool
