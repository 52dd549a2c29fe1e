# SPDX-License-Identifier: MIT
"""Fetches Debian's Xen and kernel, and makes of them what QEMU boots: hypervisor, kernel, and two root file systems.

Nothing is installed: packages are downloaded into the work folder, once, and unpacked there.
"""

import gzip
import lzma
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess

XEN = "4.17"
PACKAGES = [
    f"xen-hypervisor-{XEN}-amd64",
    f"xen-utils-{XEN}",
    "xen-utils-common",
    "xenstore-utils",
    "libxencall1",
    "libxendevicemodel1",
    "libxenevtchn1",
    "libxenforeignmemory1",
    "libxengnttab1",
    "libxenhypfs1",
    f"libxenmisc{XEN}",
    "libxenstore4",
    "libxentoolcore1",
    "libxentoollog1",
    "libyajl2",
    "busybox-static",
]
DOM0_MODULES = ["tun", "xen-gntdev", "xen-gntalloc", "xen-evtchn", "xen-privcmd", "xenfs", "loop", "ext4", "crc32c_generic"]
GUEST_MODULES = ["xen-blkfront", "xen-netfront", "ext4", "crc32c_generic"]
XEN_TOOLS = ["xl", "xen-init-dom0", "xenstored", "xenconsoled"]
# Of the machine that builds the images; Debian package e2fsprogs.
GUEST_PROGRAMS = ["mke2fs"]
DOM0_PROGRAMS = ["e2fsck"]
STORE_TOOLS = ["xenstore-read", "xenstore-write", "xenstore-ls", "xenstore-list", "xenstore-rm", "xenstore-chmod"]


class PreparationError(Exception):
    """Something that the machine lacks; the message names it and the remedy."""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise PreparationError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def find_program(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        raise PreparationError(f"{name} is not installed")
    return pathlib.Path(found).resolve()


def kernel_package():
    """The package behind linux-image-amd64, whose own content is only a dependency."""
    found = re.search(r"Depends: (linux-image-(\S+))", run("apt-cache", "depends", "linux-image-amd64"))
    if not found:
        raise PreparationError("apt knows no linux-image-amd64: run apt-get update")
    return found[1], found[2]


def fetch(work, packages):
    debs = work / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    missing = [p for p in packages if not list(debs.glob(f"{p}_*.deb"))]
    if missing:
        # As root apt would hand over to a user of its own, who may not write here.
        run("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *missing, cwd=debs)
    return [next(debs.glob(f"{p}_*.deb")) for p in packages]


def uncompressed_kernel(image):
    """The ELF kernel inside a bzImage: neither Xen nor xl then has to unpack it under emulation."""
    data = image.read_bytes()
    setup_sectors = data[0x1F1]
    offset, length = struct.unpack_from("<II", data, 0x248)
    # The payload's last four bytes are its unpacked size.
    begin = (setup_sectors + 1) * 512 + offset
    payload = data[begin : begin + length - 4]
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return gzip.decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run(["zstd", "-dcq"], input=payload, stdout=subprocess.PIPE, check=True).stdout
    raise PreparationError(f"{image}: its payload is packed in a way that is not known here")


class Tree:
    """A root file system in the making."""

    def __init__(self, at, root, kernel):
        self.at, self.root, self.kernel = at, root, kernel
        shutil.rmtree(at, ignore_errors=True)
        for folder in "bin dev proc sys run tmp etc lib lib64 mnt var/lib var/log".split():
            (at / folder).mkdir(parents=True)
        busybox = next(root.rglob("bin/busybox"))
        shutil.copy2(busybox, at / "bin/busybox")
        (at / "bin/sh").symlink_to("busybox")
        if os.geteuid() == 0:
            os.mknod(at / "dev/console", 0o600 | stat.S_IFCHR, os.makedev(5, 1))

    def library_path(self):
        places = [self.root / f"usr/lib/xen-{XEN}/lib/x86_64-linux-gnu", self.root / "usr/lib/x86_64-linux-gnu"]
        return ":".join(map(str, places))

    def add_program(self, program, folder="bin"):
        """A program and the libraries that it needs."""
        program = pathlib.Path(program)
        target = self.at / folder / program.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, target)
        target.chmod(0o755)
        subprocess.run(["strip", str(target)], stderr=subprocess.DEVNULL, check=False)  # scripts stay as they are
        listing = subprocess.run(
            ["ldd", str(program)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LD_LIBRARY_PATH": self.library_path()},
        ).stdout
        if "not found" in listing:
            raise PreparationError(f"{program} needs a library that is not there:\n{listing}")
        for line in listing.splitlines():
            found = re.search(r"(?:=> )?(/\S+) \(0x", line)
            if found:
                self.add_library(pathlib.Path(found[1]))

    def add_library(self, library):
        folder = "lib64" if library.name.startswith("ld-linux") else "lib"
        target = self.at / folder / library.name
        if not target.exists():
            shutil.copy2(library.resolve(), target)

    def add_modules(self, modules):
        base = self.at / "lib/modules" / self.kernel
        base.mkdir(parents=True)
        source = self.root / "lib/modules" / self.kernel
        for module in modules:
            shown = run("modprobe", "-d", str(self.root), "-S", self.kernel, "--show-depends", module)
            for file in re.findall(r"^insmod (\S+)", shown, re.MULTILINE):
                target = base / pathlib.Path(file).relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
        for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"]:
            shutil.copy2(source / name, base / name)
        run("depmod", "-b", str(self.at), self.kernel)

    def pack(self):
        names = sorted(str(p.relative_to(self.at)) for p in self.at.rglob("*"))
        return subprocess.run(
            ["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"],
            cwd=self.at,
            input="\n".join(names).encode(),
            stdout=subprocess.PIPE,
            check=True,
        ).stdout


def prepare(work, here, programs):
    """Makes xen, vmlinux and initrd below `work`; `programs` go into dom0's /xen_vm."""
    package, kernel = kernel_package()
    files = fetch(work, [*PACKAGES, package])
    root = work / "root"
    stamp = root / ".unpacked"
    wanted = "\n".join(f.name for f in files)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for file in files:
            run("dpkg-deb", "-x", str(file), str(root))
        run("depmod", "-b", str(root), kernel)
        (work / "xen").write_bytes(gzip.decompress((root / f"boot/xen-{XEN}-amd64.gz").read_bytes()))
        (work / "vmlinux").write_bytes(uncompressed_kernel(root / f"boot/vmlinuz-{kernel}"))
        stamp.write_text(wanted)

    guest = Tree(work / "guest", root, kernel)
    guest.add_modules(GUEST_MODULES)
    shutil.copy2(here / "guest/init", guest.at / "init")
    for program in GUEST_PROGRAMS:
        guest.add_program(find_program(program), "sbin")  # before busybox's own of that name

    dom0 = Tree(work / "dom0", root, kernel)
    dom0.add_modules(DOM0_MODULES)
    for tool in XEN_TOOLS:
        dom0.add_program(root / f"usr/lib/xen-{XEN}/bin" / tool)
    for tool in STORE_TOOLS:
        found = root / "usr/bin" / tool
        dom0.add_program(found.resolve())
        if found.is_symlink() and found.resolve().name != tool:
            (dom0.at / "bin" / tool).symlink_to(found.resolve().name)
    for program in DOM0_PROGRAMS:
        dom0.add_program(find_program(program), "xen_vm")
    for program in programs:
        dom0.add_program(program, "xen_vm")
    # xl create cancels a thread, for which libc opens this library by name.
    unwinder = re.search(r"libgcc_s\.so\.1 .*x86-64.* => (\S+)", run("ldconfig", "-p"))
    if unwinder:
        dom0.add_library(pathlib.Path(unwinder[1]))
    for folder in ["etc/xen", "var/lib/xen", "var/lib/xenstored", "var/log/xen"]:
        (dom0.at / folder).mkdir(parents=True, exist_ok=True)
    (dom0.at / "etc/xen/xl.conf").write_text('autoballoon="off"\n')
    shutil.copytree(here / "dom0", dom0.at / "xen_vm", dirs_exist_ok=True)
    shutil.copytree(here / "scenarios", dom0.at / "xen_vm/scenarios")
    (dom0.at / "init").symlink_to("xen_vm/init")
    (dom0.at / "xen_vm/guest.cpio").write_bytes(guest.pack())
    shutil.copy2(work / "vmlinux", dom0.at / "xen_vm/vmlinux")
    (work / "initrd").write_bytes(dom0.pack())
