// SPDX-License-Identifier: MIT
// The file of --trace: what each queue recorded of its latest requests is added when the queue
// ends.
#pragma once

#include <cstdint>
#include <fstream>
#include <pvring/base/error.hpp>
#include <pvring/observe/trace_event.hpp>
#include <string>

namespace tool {

/// The control thread uses it.
class trace_file {
 public:
  explicit trace_file(const std::string& path) : out_(path, std::ios::trunc), writer_(out_) {
    if (!out_) {
      throw pvring::configuration_error("--trace " + path +
                                        ": cannot be written; name a file in a directory that "
                                        "this process may write");
    }
  }

  template <class Recorder>
  void add(const std::string& name, const Recorder& queue) {
    writer_.add(name, number_++, queue);
    out_.flush();
  }

 private:
  std::ofstream out_;
  pvring::observe::trace_event_writer writer_;
  std::uint32_t number_ = 0;
};

}  // namespace tool
