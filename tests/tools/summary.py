#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds up what the stages of a test run reported.

    summary.py RESULTS_DIR ALLOWED_SKIPS

RESULTS_DIR holds one <stage>.xml (JUnit, by ctest) or <stage>.txt ("passed NAME" or "failed NAME" lines) per stage, or
both. Where <stage>/<name>.xml is there as well (by GoogleTest), it stands for the ctest test <name>: the tests in it are
counted, and it only if it failed and none of them did. A share of a suite (<suite>.<number>) that left no such report
has failed, whatever it returned. Prints what failed and what was skipped and why; the last line is
"N passed, N failed[, N skipped]". With CI=true in the environment a skip is a failure unless ALLOWED_SKIPS lists it. Exits with 1 when anything failed.
"""

import fnmatch
import os
import pathlib
import re
import sys
import xml.etree.ElementTree as ET


def skip_reason(case, output):
    """GoogleTest prints "file:line: Skipped" and the reason on the next line; others say it last."""
    found = re.search(r"^.*: Skipped\n(.*)$", output, re.MULTILINE)
    if found and found[1].strip():
        return found[1].strip()
    message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    if message in ("", "SKIP_REGULAR_EXPRESSION_MATCHED") or message.startswith("SKIP_RETURN_CODE"):
        return lines[-1].strip() if lines else "no reason given"
    return message


def read_junit(file, stage):
    """(stage, name, "passed" | "failed" | "skipped", reason) for each test."""
    for case in ET.parse(file).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        output = case.findtext("system-out") or ""
        if status == "run":
            yield stage, name, "passed", ""
        elif status == "fail":
            yield stage, name, "failed", ""
        elif case.find("skipped") is not None:
            reason = skip_reason(case, output)
            # A test that could not be started is not a test that chose to be skipped.
            started = "Unable to find" not in reason and "NOT_BUILT" not in name
            yield stage, name, "skipped" if started else "failed", reason
        else:
            yield stage, name, "failed" if status == "notrun" else "skipped", status or "unknown"


def read_gtest(file, stage, suite):
    for case in ET.parse(file).getroot().iter("testcase"):
        name = f"{suite}.{case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            yield stage, name, "failed", ""
        elif skipped is not None or case.get("result") != "completed":
            message = (skipped.get("message") if skipped is not None else "") or "no reason given"
            yield stage, name, "skipped", message.strip().splitlines()[-1]
        else:
            yield stage, name, "passed", ""


def read_stage(file):
    """What ctest says of a stage, and in its place what GoogleTest says where that is known."""
    stage = file.stem
    for case in read_junit(file, stage):
        report = file.parent / stage / f"{case[1]}.xml"
        tests = []
        if report.is_file():
            tests = list(read_gtest(report, stage, case[1].rsplit(".", 1)[0]))
            yield from tests
            if case[2] != "failed" or any(test[2] == "failed" for test in tests):
                continue
        elif case[2] == "passed" and re.fullmatch(r".*\.\d+", case[1]):
            case = (*case[:2], "failed", "it ended without a report")
        yield case


def read_text(file, stage):
    for line in file.read_text(encoding="utf-8").splitlines():
        verdict, name = line.split(" ", 1)
        yield stage, name, verdict, ""


def read_allowed(file):
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            stage, test, _reason = line.split(maxsplit=2)
            yield stage, test


def main(results_dir, allowed_skips):
    results = []
    for file in sorted(pathlib.Path(results_dir).iterdir()):
        if file.suffix == ".xml":
            results += read_stage(file)
        elif file.suffix == ".txt":
            results += read_text(file, file.stem)
    allowed = list(read_allowed(pathlib.Path(allowed_skips)))
    strict = os.environ.get("CI") == "true"

    def may_be_skipped(stage, name):
        return not strict or any(fnmatch.fnmatch(stage, s) and fnmatch.fnmatch(name, t) for s, t in allowed)

    passed = [r for r in results if r[2] == "passed"]
    skipped = [r for r in results if r[2] == "skipped"]
    refused = [r for r in skipped if not may_be_skipped(r[0], r[1])]
    failed = [r for r in results if r[2] == "failed"] + refused
    skipped = [r for r in skipped if r not in refused]

    print()
    for stage, name, _, reason in skipped:
        print(f"skipped: {stage}: {name}: {reason}")
    for stage, name, verdict, reason in failed:
        print(f"FAILED: {stage}: {name}" + (f": skipped, which CI does not allow: {reason}" if verdict == "skipped"
                                            else f": {reason}" if reason else ""))
    print(f"{len(passed)} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
