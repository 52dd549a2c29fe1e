#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Drives a disk behind our ring with tools that others wrote.

    engine_test.py --plugin nbdkit-pvring-plugin.so --work DIR --results FILE

nbdkit serves the plugin of examples/nbd_frontend on each engine; nbdcopy, qemu-img, fio and e2fsprogs use and check
it. Prints a line per check, writes "passed NAME" or "failed NAME" lines, and ends with 1 if any failed.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
DISK = 64 * MIB


def run(*words, timeout=120):
    """The output of a command; whatever it says is in the exception when it fails."""
    done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{words[0]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


@contextlib.contextmanager
def served(*arguments):
    """An nbdkit with these arguments; its URI. It has to end well."""
    with tempfile.TemporaryDirectory(prefix="pvring_engines_") as folder:
        socket, ready = f"{folder}/socket", pathlib.Path(folder, "pid")
        with open(f"{folder}/log", "w+", encoding="utf-8") as log:
            server = subprocess.Popen(["nbdkit", "-f", "-U", socket, "-P", str(ready), *map(str, arguments)],
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            try:
                end = time.monotonic() + 30
                while not (ready.exists() and ready.read_text(encoding="utf-8").strip()):
                    log.seek(0)
                    assert server.poll() is None and time.monotonic() < end, "nbdkit does not start: " + log.read()
                    time.sleep(0.02)
                yield f"nbd+unix:///?socket={socket}"
            finally:
                server.terminate()
                try:
                    server.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()
                    raise AssertionError("nbdkit does not end") from None
            log.seek(0)
            said = log.read()
            assert server.returncode == 0 and "broke the protocol" not in said, f"nbdkit: {server.returncode}: {said}"


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else \
            hashlib.sha256(file.read()).hexdigest()


def copies(uri, image, work):
    """What nbdcopy puts in comes out again, and is what the image holds."""
    source, back = work / "source", work / "back"
    source.write_bytes(os.urandom(DISK))
    run("nbdcopy", "--flush", source, uri)
    run("nbdcopy", uri, back)
    assert digest(source) == digest(back), "nbdcopy does not get back what it has written"
    if image is not None:
        assert digest(source) == digest(image), "the image does not hold what was written"


def compares(uri, _image, work):
    """qemu-img sees the same disk as the file, and converts it to another format and back."""
    source, back, qcow = work / "source", work / "back", work / "disk.qcow2"
    source.write_bytes(os.urandom(DISK // 2) + bytes(DISK // 2))
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, uri)
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri)
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", uri, qcow)
    run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", qcow, back)
    assert digest(source) == digest(back), "qemu-img converts it to something else"


def verifies(uri, _image, work):
    """fio writes at random, in mixed sizes and depths, with flushes and trims, and verifies."""
    for depth in (1, 16, 128):
        run("fio", "--name=verify", "--ioengine=nbd", f"--uri={uri}", "--rw=randwrite", "--bsrange=512-128k",
            "--bs_unaligned=0", "--blockalign=512", "--size=24M", f"--iodepth={depth}", "--verify=crc32c",
            "--verify_fatal=1", "--fsync=64", f"--randseed={depth}", f"--aux-path={work}")
    run("fio", "--name=trim", "--ioengine=nbd", f"--uri={uri}", "--rw=randtrim", "--bs=64k", "--size=16M",
        "--iodepth=16", f"--aux-path={work}")


def holds_a_file_system(uri, _image, work):
    """A file system, made with files in it, arrives whole, and is read back file by file."""
    tree, local, back = work / "tree", work / "local", work / "back"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    for i in range(64):
        (tree / f"file{i}").write_bytes(os.urandom(i * 3001))
    local.unlink(missing_ok=True)
    run("truncate", "-s", DISK, local)
    run("mke2fs", "-q", "-t", "ext4", "-d", tree, local)
    run("nbdcopy", "--flush", local, uri)
    run("nbdcopy", uri, back)
    run("e2fsck", "-fn", back)
    for i in range(64):
        out = work / "out"
        out.unlink(missing_ok=True)
        run("debugfs", "-R", f"dump /file{i} {out}", back)
        assert out.read_bytes() == (tree / f"file{i}").read_bytes(), f"file{i} is another one"


CHECKS = (copies, compares, verifies, holds_a_file_system)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    wanted = parser.parse_args()
    wanted.work.mkdir(parents=True, exist_ok=True)
    plugin, lines = wanted.plugin.resolve(), []

    def check(name, function, uri, image):
        start = time.monotonic()
        try:
            function(uri, image, wanted.work)
            lines.append(f"passed {name}")
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            lines.append(f"failed {name}")
            print(error, flush=True)
        print(f"{lines[-1]} ({time.monotonic() - start:.1f} s)", flush=True)

    def on(name, image, *arguments):
        try:
            with served(plugin, *arguments, "queues=2") as uri:
                for function in CHECKS:
                    check(f"{name}.{function.__name__}", function, uri, image)
        except AssertionError as error:
            print(error, flush=True)
            lines.append(f"failed {name}.ends")

    for engine in ("libaio", "uring"):
        image = wanted.work / "disk"
        image.unlink(missing_ok=True)
        run("truncate", "-s", DISK, image)
        on(engine, image, f"image={image}", f"engine={engine}")
    # Over another NBD server: the disk of a disk.
    image = wanted.work / "disk"
    with served("file", image) as uri:
        on("nbd", image, f"image={uri}")

    if wanted.results:
        wanted.results.write_text("\n".join(lines) + "\n", encoding="utf-8")
    failed = sum(line.startswith("failed") for line in lines)
    print(f"{len(lines) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
