#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles every C++ block of the documentation, so that what a reader copies is what the compiler accepts.

A block is a whole translation unit. Usage: check_snippets.py COMPILER INCLUDE_DIR FILE...
With --self-test the script checks that it notices a block that does not compile.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```cpp\n(.*?)^```", re.MULTILINE | re.DOTALL)
WARNINGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
            "-Wno-missing-field-initializers", "-Wno-unused-function"]


def compiles(compiler, include, source):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "snippet.cpp"
        path.write_text(source)
        run = subprocess.run([compiler, *WARNINGS, "-I", include, str(path)], capture_output=True, text=True)
        return run.returncode == 0, run.stderr


def main(arguments):
    if "--self-test" in arguments:
        arguments.remove("--self-test")
        good, _ = compiles(arguments[0], arguments[1], "int main() {}\n")
        bad, _ = compiles(arguments[0], arguments[1], "int main() { return no_such_name; }\n")
        return 0 if good and not bad else 1
    compiler, include, *files = arguments
    checked = failed = 0
    for name in files:
        for number, match in enumerate(BLOCK.finditer(pathlib.Path(name).read_text()), start=1):
            checked += 1
            good, message = compiles(compiler, include, match.group(1))
            if not good:
                failed += 1
                print(f"{name}: block {number} does not compile:\n{message[:3000]}")
    print(f"{checked} blocks compiled, {failed} of them failed")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
