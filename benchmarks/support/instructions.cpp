// SPDX-License-Identifier: MIT
// Callgrind as an instruction counter. Only its total is read; the profile itself is thrown away.
#include "instructions.hpp"

#include <charconv>

#include "command.hpp"

namespace bench {
namespace {

std::optional<std::uint64_t> total(const settings& how, const std::string& variant,
                                   std::uint64_t rounds, std::string& why) {
  const command_result run =
      run_command({"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", how.self,
                   "--variant", variant, "--rounds", std::to_string(rounds)});
  constexpr std::string_view mark = "Collected : ";
  const std::size_t at = run.output.find(mark);
  if (run.status != 0 || at == std::string::npos) {
    why = "callgrind failed: " + run.output.substr(0, 400);
    return std::nullopt;
  }
  std::uint64_t count = 0;
  const char* const first = run.output.data() + at + mark.size();
  const auto [end, error] = std::from_chars(first, run.output.data() + run.output.size(), count);
  if (error != std::errc{} || end == first) {
    why = "callgrind's total could not be read";
    return std::nullopt;
  }
  return count;
}

}  // namespace

std::optional<double> count_instructions(const settings& how, const std::string& variant,
                                         std::uint64_t rounds, std::string& why) {
  if (!has_command("valgrind")) {
    why = "valgrind is missing";
    return std::nullopt;
  }
  const auto few = total(how, variant, rounds, why);
  const auto many = few ? total(how, variant, 3 * rounds, why) : std::nullopt;
  if (!many) {
    return std::nullopt;
  }
  return static_cast<double>(*many - *few) / static_cast<double>(2 * rounds);
}

}  // namespace bench
