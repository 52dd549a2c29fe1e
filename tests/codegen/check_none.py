#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that observe::none leaves nothing behind: the same instructions as where nothing is called at all.

    check_none.py SOURCE_DIR -- COMPILER [FLAG...]

Compiles none.cpp without an observer, with `none`, and with `histogram`. The first two must have the same instructions, the
third must not: else nothing would have been compared. Exits with 77 where it cannot run.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77


def canonical(instructions):
    """Operands of a test for equality in one order: compilers choose it by how they numbered the variables."""
    result = []
    for i, (offset, text) in enumerate(instructions):
        follows = instructions[i + 1][1] if i + 1 < len(instructions) else ""
        compare = re.fullmatch(r"(cmp\s+)(%\w+),(%\w+)", text)
        if compare and re.match(r"(je|jne|sete|setne)\s", follows):
            text = compare[1] + ",".join(sorted((compare[2], compare[3])))
        result.append((offset, text))
    return result


def functions(compiler, source, folder, objdump, observer):
    """The instructions of each function that has C linkage, without addresses."""
    binary = pathlib.Path(folder, f"{observer}.o")
    observed = [f"-DPVRING_OBSERVER={observer}"] if observer else []
    subprocess.run([*compiler, "-std=c++20", "-DNDEBUG", f"-I{source}/include", *observed, "-c",
                    str(source / "tests/codegen/none.cpp"), "-o", str(binary)], check=True)
    listing = subprocess.run([objdump, "-d", "-r", "--no-show-raw-insn", str(binary)],
                             capture_output=True, text=True, check=True).stdout
    result, name, start = {}, None, 0
    for line in listing.splitlines():
        if found := re.match(r"([0-9a-f]+) <(\w+)>:", line):
            name, start = found[2], int(found[1], 16)
            result[name] = []
        elif name and (found := re.match(r"\s*([0-9a-f]+):\s+(.*)", line)):
            # Jumps name their targets by address too: only the distance from the function's start counts.
            text = re.sub(r"\b([0-9a-f]+) <", "<", found[2])
            result[name].append((int(found[1], 16) - start, text))
    return {one: canonical(result[one]) for one in ("one_pass", "size_of_queue")}


def main(arguments):
    if len(arguments) < 3 or arguments[1] != "--":
        return __doc__
    source, compiler = pathlib.Path(arguments[0]), arguments[2:]
    objdump = shutil.which("objdump")
    if objdump is None:
        print("objdump is missing")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        bare, none, histogram = (functions(compiler, source, folder, objdump, observer)
                                 for observer in ("", "none", "histogram"))
    if len(bare["one_pass"]) < 20:
        return "the function is too short to be what it should be"
    if bare["one_pass"] == histogram["one_pass"]:
        return "an observer that observes leaves no trace: this check finds nothing"
    for name, instructions in bare.items():
        if none[name] != instructions:
            show = "\n".join(f"{a!s:70} | {b!s}" for a, b in zip(instructions, none[name]) if a != b)
            return f"{name} differs (without | with none):\n{show}\n{len(instructions)} | {len(none[name])} instructions"
    print(f"{len(bare['one_pass'])} instructions, the same")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
