#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that no public header includes what its layer must not know.

    check_layers.py include/pvring          prints what is wrong; exits with 1 if there is anything
    check_layers.py --graph include/pvring  prints the layers and who includes whom, as a graph for dot
    check_layers.py --self-check FOLDER     each sub-folder of FOLDER is an include/pvring with one fault, named in
                                            its file "expect" as a regular expression; "good" has none
"""

import fnmatch
import pathlib
import re
import sys

# Each layer, and the layers below it that it may include.
POLICY_BELOW = {"base", "protocol", "ring", "platform"}
BELOW = {
    "base": set(),
    "protocol": {"base"},
    "ring": {"base", "protocol"},
    "platform": {"base", "protocol"},
    "grant": POLICY_BELOW,
    "aio": POLICY_BELOW,
    "wait": POLICY_BELOW,
    "observe": POLICY_BELOW,
    "xenbus": POLICY_BELOW | {"grant", "aio", "wait", "observe"},
    "blk": POLICY_BELOW | {"grant", "aio", "wait", "observe", "xenbus"},
    "net": POLICY_BELOW | {"grant", "aio", "wait", "observe", "xenbus"},
}
BELOW["testing"] = set(BELOW)
# A header directly in include/pvring gathers others for users: it may include everything but the test kit.
TOP = "(top)"
BELOW[TOP] = set(BELOW) - {"testing"}

# Headers of components that need a library, and a header of that library. Others may include them only inside
# "#if __has_include(<library's header>)", so that without the library all the others are still there.
COMPONENTS = {
    "testing": (["testing/*"], "gtest/gtest.h"),
    "libaio": (["aio/libaio*"], "libaio.h"),
    "uring": (["aio/uring*"], "liburing.h"),
    "nbd": (["aio/nbd*"], "libnbd.h"),
    "xen": (["platform/xen*"], "xengnttab.h"),
}

# Which external headers, beside the standard library's, may be included where. The kernel's and libc's need no library.
SYSTEM = (r"(unistd|fcntl|poll|pthread|sched|signal|errno|time|endian|byteswap|limits|dirent)\.h"
          r"|(sys|linux|asm|netinet|net|arpa)/.*\.h")
EVERYWHERE_BUT = {"protocol", "ring"}  # pure: the standard library only
BOOST = r"boost/(intrusive|lockfree)/.*"
BOOST_FREE = {"base", "protocol", "ring"}
LIBRARIES = {
    # external header: patterns of the headers that may include it
    r"libaio\.h": ["aio/libaio*"],
    r"liburing\.h": ["aio/uring*"],
    r"libnbd\.h": ["aio/nbd*"],
    r"xen(gnttab|evtchn|store|toollog)\.h": ["platform/xen*"],
    r"(gtest|gmock)/.*": ["testing/*"],
    r"sys/sdt\.h": ["observe/*"],
}
# Expensive to parse: each in one header only.
ONCE = r"boost/lockfree/.*"

STANDARD = r"[a-z_0-9]+"  # <vector>, <cstdint>: no dot, no slash
INCLUDE = re.compile(r'\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)")
HAS_INCLUDE = re.compile(r"\s*__has_include\s*\(\s*<([^>]+)>\s*\)\s*")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def layer_of(header):
    return header.split("/", 1)[0] if "/" in header else TOP


def component_of(header):
    for component, (patterns, _) in COMPONENTS.items():
        if any(fnmatch.fnmatch(header, pattern) for pattern in patterns):
            return component
    return "core"


def matches_any(header, patterns):
    return any(fnmatch.fnmatch(header, pattern) for pattern in patterns)


def includes_of(text):
    """(name, is quoted, headers that must be there for this line to count) for each #include."""
    conditions = []
    for line in COMMENT.sub("", text).splitlines():
        condition = CONDITION.match(line)
        if condition:
            if condition[1].startswith("if"):
                conditions.append(HAS_INCLUDE.fullmatch(condition[2]) if condition[1] == "if" else None)
            elif condition[1] == "endif" and conditions:
                conditions.pop()
            elif conditions:
                conditions[-1] = None  # another branch: nothing is known to be there
        include = INCLUDE.match(line)
        if include:
            yield include[1] or include[2], include[1] is None, {c[1] for c in conditions if c}


def read_includes(root):
    """header -> ([(own header, headers that are there)], [external header]), names relative to root; and what is wrong."""
    found, wrong = {}, []
    for path in sorted(root.rglob("*.hpp")):
        header = path.relative_to(root).as_posix()
        own, external = [], []
        for name, quoted, there in includes_of(path.read_text(encoding="utf-8")):
            if name.startswith("pvring/"):
                target = root / name[len("pvring/"):]
            elif quoted:
                target = path.parent / name
            else:
                external.append(name)
                continue
            target = target.resolve()
            if not target.is_file() or not target.is_relative_to(root.resolve()):
                wrong.append(f"{header}: includes {name}, which is not there")
                continue
            own.append((target.relative_to(root.resolve()).as_posix(), there))
        found[header] = (own, external)
    return found, wrong


def check_own(header, target, there):
    """What is wrong with a header's including another of ours, or None."""
    layer, below = layer_of(header), layer_of(target)
    if target == "version.hpp":
        return None
    if below != layer and below not in BELOW[layer]:
        return f"{header}: includes {target}; {layer} must not know {below}"
    theirs, ours = component_of(target), component_of(header)
    if theirs not in {"core", ours} and COMPONENTS[theirs][1] not in there:
        return (f"{header}: includes {target} without #if __has_include(<{COMPONENTS[theirs][1]}>); "
                f"that would make component {ours} need component {theirs}")
    return None


def check_external(header, name):
    """What is wrong with a header's including an external one, or None."""
    layer = layer_of(header)
    for pattern, where in LIBRARIES.items():
        if re.fullmatch(pattern, name):
            return None if matches_any(header, where) else f"{header}: includes <{name}>; only {where} may"
    if re.fullmatch(STANDARD, name):
        return None
    if re.fullmatch(SYSTEM, name) and layer not in EVERYWHERE_BUT:
        return None
    if re.fullmatch(BOOST, name) and layer not in BOOST_FREE:
        return None
    return f"{header}: includes <{name}>; {layer} must not"


def find_cycle(includes):
    done = set()

    def visit(header, path):
        if header in path:
            return path[path.index(header):] + [header]
        if header in done:
            return None
        for target, _ in includes[header][0]:
            cycle = visit(target, path + [header])
            if cycle:
                return cycle
        done.add(header)
        return None

    for header in includes:
        cycle = visit(header, [])
        if cycle:
            return cycle
    return None


def check(root):
    """Everything that is wrong below root."""
    includes, wrong = read_includes(root)
    if not includes:
        return [f"{root}: no headers"]
    for header, (own, external) in includes.items():
        if layer_of(header) not in BELOW:
            wrong.append(f"{header}: {layer_of(header)} is not a layer")
            continue
        wrong += [problem for target, there in own if (problem := check_own(header, target, there))]
        wrong += [problem for name in external if (problem := check_external(header, name))]
    for name in sorted({n for _, external in includes.values() for n in external if re.fullmatch(ONCE, n)}):
        users = sorted(h for h, (_, external) in includes.items() if name in external)
        if len(users) > 1:
            wrong.append(f"{' and '.join(users)}: only one header may include {name}")
    cycle = find_cycle(includes)
    if cycle:
        wrong.append(f"{' -> '.join(cycle)}: a cycle")
    return wrong


def graph(root):
    includes, _ = read_includes(root)
    edges = {(layer_of(header), layer_of(target)) for header, (own, _) in includes.items()
             for target, _ in own}
    lines = [f'  "{a}" -> "{b}";' for a, b in sorted(edges) if a != b and TOP not in (a, b)]
    return "\n".join(["digraph layers {", "  node [shape=box];", *lines, "}"])


def self_check(folder):
    wrong, names = [], []
    for root in sorted(path for path in folder.iterdir() if path.is_dir()):
        names.append(root.name)
        problems = check(root)
        expect = root / "expect"
        if not expect.exists():
            wrong += [f"{root.name}: refused without reason: {problem}" for problem in problems]
        elif len(problems) != 1 or not re.search(expect.read_text(encoding="utf-8").strip(), problems[0]):
            wrong.append(f"{root.name}: found {problems}, not its fault")
    if "good" not in names or len(names) < 2:
        wrong.append(f"{folder}: fixtures are missing")
    return wrong


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--graph":
        print(graph(pathlib.Path(arguments[1])))
        return 0
    if len(arguments) == 2 and arguments[0] == "--self-check":
        wrong = self_check(pathlib.Path(arguments[1]))
    elif len(arguments) == 1:
        wrong = check(pathlib.Path(arguments[0]))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for problem in wrong:
        print(problem)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
