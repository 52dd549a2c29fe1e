# SPDX-License-Identifier: MIT
# Warnings for our own tests, examples and benchmarks. Link it PRIVATE; it is never installed, so no consumer inherits it.
add_library(pvring_warnings INTERFACE)
# Not -Wmissing-field-initializers: designated initialisers that leave members at their defaults are how options are set.
target_compile_options(
  pvring_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-missing-field-initializers
                            $<$<BOOL:${PVRING_WERROR}>:-Werror>)
