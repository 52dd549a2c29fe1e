// SPDX-License-Identifier: MIT
// One line that says what the demo is doing. On a terminal it is rewritten in place; in a log only
// its last state of each step is written.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

namespace demo {

/// One thread uses it.
class progress {
 public:
  progress() : terminal_(::isatty(STDOUT_FILENO) != 0) {}
  ~progress() { clear(); }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// What is being done now; a terminal shows it at most a few times per second.
  void show(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (terminal_ && now - shown_ >= std::chrono::milliseconds(100)) {
      shown_ = now;
      rewrite(text);
    }
  }

  /// A step is done: the line stays.
  void done(const std::string& text) {
    clear();
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
    shown_ = {};
  }

  /// Makes room for other output.
  void clear() {
    if (terminal_ && width_ != 0) {
      rewrite("");
      std::fputs("\r", stdout);
      std::fflush(stdout);
    }
  }

 private:
  void rewrite(const std::string& text) {
    std::printf("\r%-*s", static_cast<int>(width_), text.c_str());
    std::fflush(stdout);
    width_ = text.empty() ? 0 : std::max(width_, text.size());
  }

  bool terminal_;
  std::size_t width_ = 0;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace demo
