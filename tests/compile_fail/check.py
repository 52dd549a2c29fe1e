#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that a file is refused by the compiler, and for the reason it states.

    check.py FILE -- COMPILER [FLAG...]
    check.py --self-check -- COMPILER [FLAG...]

The file's first line is "// expect: REGEX"; some line of the compiler's output must match it. With -DPVRING_CONTROL the
same file must compile: so what is refused is the one thing the file is about, not a typing mistake.
"""

import pathlib
import re
import subprocess
import sys
import tempfile


def compile_file(compiler, file, *extra):
    done = subprocess.run(
        [*compiler, "-fsyntax-only", "-fdiagnostics-color=never", "-fmessage-length=0", *extra, str(file)],
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check(file, compiler):
    """What is wrong with the file, or None."""
    first = file.read_text(encoding="utf-8").split("\n", 1)[0]
    expect = re.fullmatch(r"// expect: (.+)", first)
    if expect is None:
        return f'{file}: the first line must be "// expect: REGEX"'
    status, output = compile_file(compiler, file, "-DPVRING_CONTROL")
    if status != 0:
        return f"{file}: must compile with -DPVRING_CONTROL, but:\n{output}"
    status, output = compile_file(compiler, file)
    if status == 0:
        return f"{file}: compiles, but should not"
    if not any(re.search(expect[1], line) for line in output.splitlines()):
        return f'{file}: is refused, but nothing the compiler says matches "{expect[1]}":\n{output}'
    return None


SELF_CHECK = {
    # name: (file's content, whether the check is to pass)
    "good": ("// expect: no_such_thing\n#ifndef PVRING_CONTROL\nint x = no_such_thing;\n#endif\n", True),
    "compiles": ("// expect: anything\nint x = 0;\n", False),
    "wrong_reason": ("// expect: another_reason\n#ifndef PVRING_CONTROL\nint x = no_such_thing;\n#endif\n", False),
    "broken_control": ("// expect: no_such_thing\nint x = no_such_thing;\n", False),
    "no_reason": ("#ifndef PVRING_CONTROL\nint x = no_such_thing;\n#endif\n", False),
}


def self_check(compiler):
    with tempfile.TemporaryDirectory() as folder:
        for name, (content, good) in SELF_CHECK.items():
            file = pathlib.Path(folder, name + ".cpp")
            file.write_text(content, encoding="utf-8")
            problem = check(file, compiler)
            if (problem is None) != good:
                return f"self-check {name}: {problem or 'was accepted'}"
    return None


def main(arguments):
    if len(arguments) < 3 or arguments[1] != "--":
        return __doc__
    compiler = arguments[2:]
    if arguments[0] == "--self-check":
        return self_check(compiler)
    return check(pathlib.Path(arguments[0]), compiler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
