#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Boots Debian's Xen inside QEMU (software emulation, no KVM), with a dom0 that runs the scenarios.

    xen_vm.py --work DIR --programs FILE... [--results FILE] [SCENARIO...]

Each scenario is a script in scenarios/, run in dom0; it may make guests. Without names all are run, in one boot. Prints
"passed NAME" or "failed NAME" per scenario, and what a failed one printed; the consoles are kept in DIR. Exits with 1
when any failed, with 2 where the machine could not be made.
"""

import argparse
import pathlib
import re
import selectors
import subprocess
import sys
import time

import images

HERE = pathlib.Path(__file__).resolve().parent
# What QEMU 7.2's emulation gets wrong with Xen is off: SMAP (a PV dom0 dies at its first iret), XSAVE and AVX (registers
# get lost where Xen switches the FPU lazily; eager-fpu below is the same precaution), RDTSCP.
CPU = "max,smap=off,xsave=off,rdtscp=off"
XEN = (
    "console=com1 com1=115200,8n1 dom0_mem={dom0}M,max:{dom0}M dom0_max_vcpus=2 spec-ctrl=no,eager-fpu=yes "
    "loglvl=warning guest_loglvl=warning/all"
)
# All but the console only save boot time under emulation.
DOM0 = (
    "console=hvc0 quiet pmtmr=0 rodata=off cryptomgr.notests mitigations=off random.trust_cpu=on audit=0 "
    "init_on_alloc=0 xen_vm={scenarios}"
)


class Machine:
    """One boot. What dom0 prints comes line by line; silence for too long ends it."""

    def __init__(self, work, scenarios, memory):
        self.console = work / "xen.log"
        self.console.unlink(missing_ok=True)
        dom0 = memory * 5 // 8
        self.process = subprocess.Popen(
            [
                *("qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", CPU),
                *("-m", str(memory), "-smp", "2", "-no-reboot", "-nodefaults", "-display", "none", "-net", "none"),
                *("-monitor", "none", "-serial", f"file:{self.console}", "-serial", "stdio"),
                *("-kernel", str(work / "xen"), "-append", XEN.format(dom0=dom0)),
                *("-initrd", f"{work}/vmlinux {DOM0.format(scenarios=':'.join(scenarios))},{work}/initrd"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def lines(self, silence):
        """Yields lines; ends with the machine, or with None after `silence` seconds without any."""
        ready = selectors.DefaultSelector()
        ready.register(self.process.stdout, selectors.EVENT_READ)
        waiting = b""
        while True:
            if not ready.select(silence):
                yield None
                return
            chunk = self.process.stdout.read1(65536)
            if not chunk:
                return
            *whole, waiting = (waiting + chunk).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace").rstrip("\r")

    def end(self):
        if self.process.poll() is None:
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


def boot(work, scenarios, memory, silence):
    """Runs the scenarios; {name: (passed, lines)} for those that ended."""
    results, output, current = {}, [], None
    start = time.monotonic()
    log = (work / "dom0.log").open("w", encoding="utf-8")
    machine = Machine(work, scenarios, memory)
    complaint = False
    try:
        for line in machine.lines(silence):
            if line is None:
                print(f"the machine has been silent for {silence} s")
                break
            log.write(f"{time.monotonic() - start:7.2f} {line}\n")
            log.flush()
            begin = re.fullmatch(r"BEGIN (\S+)", line)
            end = re.fullmatch(r"END (\S+) (\d+)", line)
            if begin:
                current, output, began = begin[1], [], time.monotonic()
            elif end:
                passed = end[2] == "0"
                results[end[1]] = (passed, output)
                print(f"{'passed' if passed else 'FAILED'} {end[1]}, {time.monotonic() - began:.0f} s", flush=True)
                current = None
            elif line.startswith("READY"):
                print(f"Xen is up after {time.monotonic() - start:.0f} s", flush=True)
            elif line == "KERNEL complained":
                complaint = True
            elif current:
                output.append(line)
    finally:
        machine.end()
        log.close()
    if current:
        results[current] = (False, [*output, "it did not end"])
    return results, complaint


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for packages, images and logs")
    parser.add_argument("--programs", type=pathlib.Path, nargs="+", required=True, help="programs that dom0 needs")
    parser.add_argument("--results", type=pathlib.Path, help="where to write 'passed NAME' and 'failed NAME' lines")
    parser.add_argument("--memory", type=int, default=2048, help="MiB of the machine (default %(default)s)")
    parser.add_argument("--silence", type=float, default=200, help="seconds without a line that are too many")
    parser.add_argument("scenarios", nargs="*", help="of: " + ", ".join(known()))
    options = parser.parse_args()
    scenarios = options.scenarios or known()
    unknown = [s for s in scenarios if s not in known()]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(known())}")

    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        images.prepare(work, HERE, options.programs)
    except (images.PreparationError, OSError, subprocess.CalledProcessError) as problem:
        print(f"the machine could not be made: {problem}", file=sys.stderr)
        return 2
    print(f"images made in {time.monotonic() - start:.0f} s", flush=True)

    results, complaint = boot(work, scenarios, options.memory, options.silence)
    if not results:
        # Under emulation a boot itself may fail, now and then; a scenario that fails is not asked again.
        print("no scenario ran: the machine is booted once more", flush=True)
        results, complaint = boot(work, scenarios, options.memory, options.silence)
    verdicts = {s: results.get(s, (False, ["it did not run"])) for s in scenarios}
    if complaint:
        verdicts["kernel"] = (False, ["dom0's kernel complained: see xen.log"])
    for name, (passed, output) in verdicts.items():
        if not passed:
            print(f"--- {name}")
            print("\n".join(output[-60:]))
    if not results:
        print("--- what the machine said")
        print((work / "dom0.log").read_text(errors="replace")[-4000:])
        console = work / "xen.log"
        print("--- the last lines of Xen's console")
        print("\n".join(console.read_text(errors="replace").splitlines()[-20:]) if console.exists() else "none")
    if options.results:
        options.results.write_text(
            "".join(f"{'passed' if passed else 'failed'} {name}\n" for name, (passed, _) in verdicts.items()),
            encoding="utf-8",
        )
    return 0 if all(passed for passed, _ in verdicts.values()) else 1


def known():
    return sorted(p.stem for p in (HERE / "scenarios").glob("*.sh"))


if __name__ == "__main__":
    sys.exit(main())
