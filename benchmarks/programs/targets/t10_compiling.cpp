// SPDX-License-Identifier: MIT
// T10: what including and instantiating a whole backend costs a compiler, against two Boost headers
// that every user of pvring pays for anyway.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/command.hpp"
#include "targets.hpp"

namespace bench {
namespace {

// The build system says with what and from where the benchmark itself was compiled.
#ifndef PVRING_BENCH_COMPILER
#define PVRING_BENCH_COMPILER "c++"
#endif
#ifndef PVRING_BENCH_INCLUDES
#define PVRING_BENCH_INCLUDES ""
#endif

constexpr const char* backend_unit =
    "#include <pvring/blk/backend.hpp>\n"
    "template class pvring::blk::backend<>;\n";
constexpr const char* include_unit = "#include <pvring/blk/backend.hpp>\n";
constexpr const char* base_unit =
    "#include <boost/lockfree/queue.hpp>\n"
    "#include <boost/intrusive/list.hpp>\n";

std::vector<std::string> include_options() {
  std::vector<std::string> out;
  std::string list = PVRING_BENCH_INCLUDES;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    if (end != 0) {
      out.push_back("-I" + list.substr(0, end));
    }
    list.erase(0, std::min(end + 1, list.size()));
  }
  return out;
}

}  // namespace

result measure_compiling(const settings& how) {
  result out("T10", "compiling one translation unit that instantiates blk::backend", !how.smoke);
  out.method =
      "User time of the compiler with -O2 for an explicit instantiation of blk::backend<> (all "
      "members, both ABIs, all three "
      "strategies), and for a unit that includes <boost/lockfree/queue.hpp> and "
      "<boost/intrusive/list.hpp> only, in turns.";
  if (!has_command(PVRING_BENCH_COMPILER) && !std::filesystem::exists(PVRING_BENCH_COMPILER)) {
    out.skip("compile time, backend / Boost headers", "<= 2.5 x", "the compiler is not there");
    return out;
  }
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "pvring-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    out.skip("compile time, backend / Boost headers", "<= 2.5 x", "no temporary folder");
    return out;
  }
  const fs::path folder(pattern);
  const char* const units[3] = {backend_unit, base_unit, include_unit};
  std::string files[3];
  for (std::size_t i = 0; i < 3; ++i) {
    files[i] = (folder / ("unit" + std::to_string(i) + ".cpp")).string();
    std::ofstream(files[i]) << units[i];
  }
  std::string complaint;
  const std::size_t repetitions = how.smoke ? 1 : std::max<std::size_t>(5, how.repetitions / 2);
  const auto values = interleave(3, repetitions, [&](std::size_t which) {
    std::vector<std::string> command{PVRING_BENCH_COMPILER, "-std=c++20"};
    for (std::string& option : include_options()) {
      command.push_back(std::move(option));
    }
    // What a smoke run asks is whether it compiles.
    command.insert(command.end(),
                   {how.smoke ? "-fsyntax-only" : "-O2", "-c", files[which], "-o", "/dev/null"});
    const command_result done = run_command(command);
    if (done.status != 0 && complaint.empty()) {
      complaint = done.output.substr(0, 800);
    }
    return done.user_seconds;
  });
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (!out.check(complaint.empty(), "the unit does not compile: " + complaint)) {
    return out;
  }
  out.at_most("compile time, backend / Boost headers", summarize(ratios(values[0], values[1])),
              2.5);
  out.report("compile time, including the backend only / Boost headers",
             summarize(ratios(values[2], values[1])));
  out.keep("instantiate blk::backend", "seconds of user time", values[0]);
  out.keep("include blk/backend.hpp", "seconds of user time", values[2]);
  out.keep("two Boost headers", "seconds of user time", values[1]);
  out.charts.push_back(
      bars_of(out, "seconds of user time", "t10-compiling", "T10: compiling at -O2"));
  return out;
}

}  // namespace bench
