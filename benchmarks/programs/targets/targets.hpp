// SPDX-License-Identifier: MIT
// One function per target, each in a file of its own; and the loops that can be run alone, for
// instruction counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/result.hpp"
#include "support/settings.hpp"

namespace bench {

[[nodiscard]] result measure_ring(const settings& how);          // T1
[[nodiscard]] result measure_pass(const settings& how);          // T2
[[nodiscard]] result measure_batching(const settings& how);      // T3
[[nodiscard]] result measure_random_reads(const settings& how);  // T4
[[nodiscard]] result measure_reaping(const settings& how);       // T5
[[nodiscard]] result measure_waiting(const settings& how);       // T6
[[nodiscard]] result measure_net_receive(const settings& how);   // T7
[[nodiscard]] result measure_queues(const settings& how);        // T8
[[nodiscard]] result measure_memory(const settings& how);        // T9
[[nodiscard]] result measure_compiling(const settings& how);     // T10

/// Runs one variant of a loop, nothing else: what an instruction counter watches. False when there
/// is no such variant.
[[nodiscard]] bool run_ring_variant(const std::string& variant, std::uint64_t rounds);
[[nodiscard]] bool run_pass_variant(const std::string& variant, std::uint64_t rounds);
[[nodiscard]] bool run_reads_variant(const std::string& variant, std::uint64_t rounds);

}  // namespace bench
