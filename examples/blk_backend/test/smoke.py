#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the daemon on an emulated machine, and the other commands against it: smoke.py PVRING_BLK HOSTILE_GUEST"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
HOSTILE_GUEST = os.path.abspath(sys.argv[2])
failures = 0


def check(what, okay, detail=""):
    global failures
    failures += not okay
    print(("ok      " if okay else "FAILED  ") + what + ("" if okay else f": {detail}"), flush=True)


class Machine:
    """A daemon with its emulated machine, in the working directory."""

    def __init__(self, *options):
        self.log = open("serve.log", "a+")
        self.daemon = subprocess.Popen(
            [PROGRAM, "serve", "--platform", "emulated", "--socket", "host", *options],
            stderr=self.log, stdout=self.log)
        wait_for("the daemon's socket", lambda: os.path.exists("host") or self.daemon.poll() is not None)

    def run(self, command, *options, timeout=60):
        where = ["--socket", "host"] if command == "try" else ["--platform", "emulated", "--socket", "host"]
        return subprocess.run([PROGRAM, command, *where, *options], capture_output=True, text=True, timeout=timeout)

    def list(self, *kind):
        options = ["--json"] + [word for name in kind for word in ("--type", name)]
        return {(one["domain"], one["device"]): one for one in json.loads(self.run("list", *options).stdout)}

    def expect(self, what, code, words, command, *options):
        done = self.run(command, *options)
        text = done.stdout + done.stderr
        check(what, done.returncode == code and all(word in text for word in words), f"{done.returncode}, {text}")
        return text

    def end(self, what="the daemon ends in good order at SIGTERM"):
        self.daemon.send_signal(signal.SIGTERM)
        try:
            code = self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            code = "killed after 30 s"
        self.log.seek(0)
        check(what, code == 0 and not os.path.exists("host"), f"{code}: {self.log.read()[-2000:]}")


def wait_for(what, done, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.05)
    check("waiting for " + what, False, "it did not come")
    return False


def disk(domain, device):
    return ["--domain", str(domain), "--device", device]


def same(one, other):
    with open(one, "rb") as a, open(other, "rb") as b:
        return a.read() == b.read()


def devices():
    machine = Machine("--stats", "1", "--metrics", "unix:metrics", "--trace", "trace.json", "--log-json")
    machine.expect("attach prints the device's path", 0, ["/local/domain/0/backend/vbd-pvring/3/51712"],
                   "attach", *disk(3, "xvda"), "--image", "good.img")
    machine.expect("a device that exists is refused", 3, ["xvda of domain 3 exists already", "detach it first"],
                   "attach", *disk(3, "xvda"), "--image", "other.img")
    machine.expect("a missing image is refused", 2, ["nothing.img does not exist"],
                   "attach", *disk(4, "xvda"), "--image", "nothing.img")
    machine.expect("a directory is refused", 2, ["is a directory"], "attach", *disk(4, "xvda"), "--image", ".")
    machine.expect("an odd name is refused", 2, ["device 'xvdA'", "xvda1"],
                   "attach", *disk(4, "xvdA"), "--image", "good.img")
    # Fit to be attached, and not fit to be served by the time it is.
    os.rename("other.img", "kept.img")
    with open("other.img", "wb") as image:
        image.truncate(4096)
    machine.expect("a second device", 0, [], "attach", *disk(4, "xvdb"), "--image", "good.img")
    machine.expect("a CD-ROM", 0, [], "attach", *disk(4, "xvdc"), "--image", "kept.img", "--cdrom")
    wait_for("the refusal", lambda: machine.list().get((4, "xvdb"), {}).get("error"))
    error = machine.list()[4, "xvdb"]
    check("a device that cannot be served says why",
          "already served to domain 3 as xvda" in error["error"] and error["backend"] == "Closing", error)
    machine.expect("and its guest hears so", 4, ["does not connect"], "try", *disk(4, "xvdb"))

    machine.expect("a disk is read, and a block is written", 0, ["read the whole disk", "read it back", "closed"],
                   "try", *disk(3, "xvda"), "--queues", "2", "--ring-order", "2", "--copy-to", "copy.img")
    check("what was read is the image", same("good.img", "copy.img"))
    machine.expect("its guest comes back", 0, ["closed"], "try", *disk(3, "xvda"))
    text = machine.expect("a CD-ROM is read", 0, ["read the whole disk"], "try", *disk(4, "xvdc"))
    check("and not written", "wrote" not in text, text)

    guest = subprocess.Popen([PROGRAM, "try", "--socket", "host", *disk(3, "xvda"), "--seconds", "60"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for("rates", lambda: machine.list()[3, "xvda"]["requests_per_second"] > 0)
    busy = machine.list()[3, "xvda"]
    check("list shows states and strategy", busy["backend"] == "Connected" and busy["frontend"] == "Connected" and
          busy["strategy"] == "batched_copy" and busy["queues"] == 1, busy)
    metrics()
    machine.expect("detach waits for the guest, which is told, and takes the device away", 0,
                   ["xvda of domain 3 is detached"], "detach", *disk(3, "xvda"))
    guest.wait(30)
    check("that guest ends", guest.returncode in (0, 1), guest.stdout.read())
    machine.expect("a refused device can be detached too", 0, ["is detached"], "detach", *disk(4, "xvdb"))
    machine.expect("a device that is not there cannot", 3, ["there is no xvda of domain 9"], "detach", *disk(9, "xvda"))
    check("list shows the rest", list(machine.list()) == [(4, "xvdc")], machine.list())
    machine.expect("what was detached can be attached", 0, [], "attach", *disk(3, "xvda"), "--image", "good.img")
    machine.expect("and is served", 0, ["closed"], "try", *disk(3, "xvda"))
    machine.end()
    with open("trace.json") as trace:
        check("the trace is JSON with requests", len(json.load(trace)["traceEvents"]) > 100)
    with open("serve.log") as log:
        lines = log.read().splitlines()
    check("the log is JSON", all("message" in json.loads(line) for line in lines), lines)


def metrics():
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect("metrics")
        peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = b"".join(iter(lambda: peer.recv(65536), b"")).decode()
    check("metrics are served", text.startswith("HTTP/1.0 200") and text.endswith("# EOF\n") and
          'pvring_blk_connected{type="vbd-pvring",domain="3",device="xvda"} 1\n' in text and
          'pvring_blk_served{type="vbd-pvring",domain="4",device="xvdb"} 0\n' in text, text)


def under_load():
    machine = Machine("--queues", "2", "--wait", "adaptive:start=10us,max=100us", "--direct", "off")
    machine.run("attach", *disk(3, "xvda"), "--image", "good.img")
    guest = subprocess.Popen([PROGRAM, "try", "--socket", "host", *disk(3, "xvda"), "--queues", "2", "--seconds", "60"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in guest.stdout:
        if "read the whole disk" in line:
            break
    machine.end("SIGTERM under load drains, and ends in good order")
    text = guest.communicate(timeout=30)[0]
    check("the guest sees the device close, and no wrong protocol", guest.returncode == 1 and
          "the backend closed the disk" in text, f"{guest.returncode}, {text}")


def configuration():
    with open("config.json", "w") as file:
        json.dump({"grants": "map", "direct": "off", "stats": 1, "metrics": "metrics.txt", "devices": [
            {"domain": 5, "device": "xvda", "image": os.path.abspath("good.img"), "attach": True},
            {"domain": 5, "device": "xvdb", "image": os.path.abspath("kept.img"), "attach": True, "read-only": True,
             "grants": "persistent", "queues": 1}]}, file)
    machine = Machine("--config", "config.json")
    wait_for("the devices", lambda: len(machine.list()) == 2)
    for device in ("xvda", "xvdb"):
        machine.expect("a device of the configuration is served: " + device, 0, ["closed"], "try", *disk(5, device))
    machine.end()
    with open("serve.log") as log:
        text = log.read()
    check("options for all hold", "51712 of domain 5: grant strategy map_each" in text, text)
    check("options of a single device win", "51728 of domain 5: grant strategy persistent_pool" in text, text)
    with open("metrics.txt") as file:
        check("metrics are written", file.read().endswith("# EOF\n"))

    def refused(what, words, *options, config=None):
        if config is not None:
            with open("config.json", "w") as file:
                file.write(config)
            options = ["--config", "config.json"]
        done = subprocess.run([PROGRAM, "serve", "--platform", "emulated", "--socket", "host", *options],
                              capture_output=True, text=True, timeout=20)
        check("refused: " + what, done.returncode == 2 and all(word in done.stderr for word in words),
              f"{done.returncode}, {done.stderr}")

    refused("a strategy", ["--grants is 'fast'", "auto, copy, persistent or map"], "--grants", "fast")
    refused("a number", ["--ring-order is '5'", "from 0 to 4"], "--ring-order", "5")
    refused("a wait policy", ["--wait", "grow"], "--wait", "adaptive:grow=1")
    refused("CPUs", ["--cpus is '3-1'", "0,2-3"], "--cpus", "3-1")
    refused("a type", ["a/b"], "--type", "a/b")
    refused("no JSON", ["config.json", "no JSON"], config="{")
    refused("an unknown option", ["config.json: devices[0].speed", "grants"], config='{"devices": [{"speed": 3}]}')
    refused("a value", ["config.json: queues", "1 to 256"], config='{"queues": 0}')
    refused("an incomplete device", ["needs domain, device and image"], config='{"devices": [{"attach": true}]}')


def alone():
    machine = Machine()
    machine.expect("nobody else serves what the daemon serves", 1, ["serves the devices of type vbd-pvring already"],
                   "attach", *disk(6, "xvda"), "--image", "good.img", "--serve")
    check("and no device is made for it", not machine.list(), machine.list())
    # Its own process serves it; the daemon, which serves another type, keeps its hands off.
    one = subprocess.Popen([PROGRAM, "attach", "--platform", "emulated", "--socket", "host", *disk(6, "xvda"),
                            "--type", "vbd-alone", "--image", "good.img", "--serve", "--grants", "copy"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    one.stdout.readline()
    machine.expect("attach --serve serves", 0, ["closed"], "try", *disk(6, "xvda"))
    machine.expect("until it is detached", 0, ["is detached"], "detach", *disk(6, "xvda"), "--type", "vbd-alone")
    text = one.communicate(timeout=30)[1]
    check("and ends then", one.returncode == 0, text)
    for name, number in ("xvdb1", 51729), ("xvdp15", 51967), ("xvdq", 268439552), ("xvdaa2", 268442114):
        machine.expect(f"{name} has its number", 0, [f"/vbd-none/7/{number}\n"],
                       "attach", *disk(7, name), "--type", "vbd-none", "--image", "good.img")
        check(f"and its name: {name}", (7, name) in machine.list("vbd-none"), machine.list("vbd-none"))
    machine.expect("nobody serves this one", 0, [], "attach", *disk(6, "xvdb"), "--type", "vbd-none",
                   "--image", "good.img")
    machine.expect("detach gives up in time", 4, ["is pvring-blk serve --type vbd-none running?"],
                   "detach", *disk(6, "xvdb"), "--type", "vbd-none", "--timeout", "1")
    machine.expect("or removes it by force", 0, ["removed all the same", "is detached"],
                   "detach", *disk(6, "xvdb"), "--type", "vbd-none", "--force-after", "1")
    machine.end()


def hostile():
    machine = Machine("--type", "vbd", "--stats", "1")
    for domain, image in (3, "good.img"), (4, "kept.img"):
        machine.expect(f"a device of domain {domain}", 0, [], "attach", *disk(domain, "xvda"), "--type", "vbd",
                       "--image", image)
    bad = subprocess.Popen([HOSTILE_GUEST, "host", "4", "xvda", "4"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    machine.expect("a good guest does not notice the hostile one", 0, ["read it back", "closed"],
                   "try", *disk(3, "xvda"), "--seconds", "3", "--copy-to", "copy.img")
    text = bad.communicate(timeout=30)[0]
    check("the hostile one was busy: " + text.strip(), bad.returncode == 0, text)
    check("the good disk is as it was", same("good.img", "copy.img"))
    machine.expect("the hostile one's disk can be taken away", 0, ["is detached"],
                   "detach", *disk(4, "xvda"), "--type", "vbd")
    machine.end()


def journals():
    for name, mode, words in ("open", 0o777, "is open to other users"), ("file", None, "is no directory"):
        if mode is None:
            open(name, "w").close()
        else:
            os.mkdir(name)
            os.chmod(name, mode)
        done = subprocess.run([PROGRAM, "serve", "--platform", "emulated", "--socket", "host", "--journals", name],
                              capture_output=True, text=True, timeout=60)
        check(f"journals: what {words} is refused", done.returncode == 2 and f"/{name}': it {words}" in done.stderr,
              f"{done.returncode}, {done.stderr}")
    os.mkdir("journals", 0o700)
    lost, others = "vbd-pvring-0-99-51712-0", {"vbd-pvring-0-0-99-51712-0", "vbd-99-51712-0", "note-1-2-3"}
    for name in {lost} | others:
        open(os.path.join("journals", name), "w").close()
    machine = Machine("--journals", "none", "--journals", "journals")  # the last one counts
    machine.expect("a device with a journal", 0, [], "attach", *disk(3, "xvda"), "--image", "good.img")
    check("a lost journal is removed, and nothing else", set(os.listdir("journals")) == others, os.listdir("journals"))
    guest = subprocess.Popen([PROGRAM, "try", "--socket", "host", *disk(3, "xvda"), "--queues", "2", "--seconds", "60"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    kept = {f"vbd-pvring-0-3-51712-{queue}" for queue in (0, 1)}
    wait_for("the journals of its queues", lambda: set(os.listdir("journals")) == others | kept)
    check("they are its user's alone", all(os.stat(os.path.join("journals", name)).st_mode & 0o777 == 0o600
                                           for name in kept))
    machine.expect("an image that is served is not to be had for another process", 1, ["good.img is used by another"],
                   "attach", *disk(8, "xvda"), "--type", "vbd-other", "--image", "good.img", "--serve")
    machine.expect("its device is detached", 0, ["is detached"], "detach", *disk(3, "xvda"))
    guest.wait(30)
    # An image that somebody has is waited for: the toolstack hears why, and nothing is refused for good.
    with open("good.img", "r+b") as image:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 62, 1, 0)
        fcntl.fcntl(image, 37, lock)  # F_OFD_SETLK
        machine.run("attach", *disk(5, "xvda"), "--image", "good.img")
        wait_for("the reason", lambda: "used by another process" in machine.list().get((5, "xvda"), {}).get("error", ""))
    machine.expect("it is served as soon as it can be", 0, [], "try", *disk(5, "xvda"))
    machine.expect("and detached", 0, ["is detached"], "detach", *disk(5, "xvda"))
    guest.stdout.close()
    check("journals go with the connection", set(os.listdir("journals")) == others, os.listdir("journals"))
    machine.end()


def main():
    with tempfile.TemporaryDirectory(prefix="pvring-blk-") as directory:
        os.chdir(directory)
        with open("good.img", "wb") as image:
            image.write(os.urandom(16 << 20))
        with open("other.img", "wb") as image:
            image.write(os.urandom(1 << 20))
        for part in (devices, under_load, configuration, alone, journals, hostile):
            part()
            if os.path.exists("serve.log"):
                os.remove("serve.log")
        os.chdir("/")
    print(f"{failures} failed")
    return 1 if failures else 0


sys.exit(main())
