#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the code that a compiler makes: each byte of a slot that a request needs is loaded exactly once, no other is.

    check_loads.py SOURCE_DIR -- COMPILER [FLAG...]

Builds loads.cpp, which runs the compiled functions on a page that reports every access, and takes each access's width from
the disassembly. The functions bad_* are there to be found fault with: when one of them passes, the check is worthless, and
fails. Exits with 77 where it cannot run.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WIDTHS = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8, "XMMWORD": 16, "YMMWORD": 32, "ZMMWORD": 64}
SKIP = 77


def widths(binary, objdump):
    """The width in bytes of each instruction's memory operand, by address."""
    listing = subprocess.run([objdump, "-d", "--no-show-raw-insn", "-M", "intel", binary],
                             capture_output=True, text=True, check=True).stdout
    result = {}
    for line in listing.splitlines():
        found = re.match(r"\s*([0-9a-f]+):\s+(.*)", line)
        if found:
            operand = re.search(r"\b([XYZ]MMWORD|[DQ]?WORD|BYTE) PTR", found[2])
            if operand:
                result[int(found[1], 16)] = (WIDTHS[operand[1]], found[2])
    return result


def cases(output):
    """Yields (name, bytes expected, [(instruction, offset, kind)...])."""
    name, expected, accesses = None, set(), []
    for line in output.splitlines():
        kind, *rest = line.split()
        if kind == "case":
            if name:
                yield name, expected, accesses
            name, expected, accesses = rest[0], set(), []
        elif kind == "expect":
            expected.add(int(rest[0]))
        else:
            accesses.append((int(rest[0], 16), int(rest[1]), rest[2]))
    if name:
        yield name, expected, accesses


def problems(expected, accesses, width_of):
    """What is wrong with one run of a function."""
    loads = collections.Counter()
    found = []
    for instruction, offset, kind in accesses:
        if kind == "write":
            found.append(f"byte {offset} is written by {width_of.get(instruction, '?')}")
            continue
        if instruction not in width_of:
            found.append(f"access by an instruction of unknown width at {instruction:x}")
            continue
        loads.update(range(offset, offset + width_of[instruction][0]))
    found += [f"byte {byte} is loaded {n} times" for byte, n in sorted(loads.items()) if n > 1]
    found += [f"byte {byte} is loaded, but not needed" for byte in sorted(set(loads) - expected)]
    found += [f"byte {byte} is needed, but not loaded" for byte in sorted(expected - set(loads))]
    return found


def check(source, compiler, objdump):
    """Builds and runs with one set of flags: 0, SKIP, or what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        binary = pathlib.Path(folder, "loads")
        # At fixed addresses, so that they are those of the disassembly. Asserts would look at private copies only, but what
        # ships is built without.
        subprocess.run([*compiler, "-std=c++20", "-DNDEBUG", "-fno-pie", "-no-pie", f"-I{source}/include",
                        str(source / "tests/codegen/loads.cpp"), "-o", str(binary)], check=True)
        run = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
        if run.returncode == SKIP:
            print("only on x86-64 Linux")
            return SKIP
        if run.returncode != 0:
            return f"the program ended with {run.returncode}: {run.stderr}"
        width_of = widths(binary, objdump)
    failures, checked, caught = [], 0, set()
    for name, expected, accesses in cases(run.stdout):
        found = problems(expected, accesses, width_of)
        if name.startswith("bad_"):
            if any("times" in one for one in found):
                caught.add("bad_fetch" if name.startswith("bad_fetch") else "")
            if any("not needed" in one for one in found):
                caught.add("bad_greedy_fetch" if name.startswith("bad_greedy_fetch") else "")
        else:
            checked += 1
            failures += [f"{name}: {one}" for one in found]
    for bad in ("bad_fetch", "bad_greedy_fetch"):
        if bad not in caught:
            failures.append(f"{bad}: passes, but is bad on purpose: this check finds nothing")
    if checked < 60:
        failures.append(f"only {checked} cases ran")
    print(f"{checked} cases, {len(failures)} problems: {' '.join(compiler)}")
    return "\n".join(failures[:40]) if failures else 0


def main(arguments):
    if len(arguments) < 3 or arguments[1] != "--":
        return __doc__
    source, compiler = pathlib.Path(arguments[0]), arguments[2:]
    objdump = shutil.which("objdump")
    if objdump is None:
        print("objdump is missing")
        return SKIP
    result = check(source, compiler, objdump)
    # It must stay so when the linker optimises the whole program; clang's needs a plugin of its own.
    if result == 0 and "-O3" in compiler and "clang" not in compiler[0]:
        result = check(source, [*compiler, "-flto"], objdump)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
