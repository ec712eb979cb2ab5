"""What a fault needs of the machine: control groups, disks, network name spaces. Each is a context
that undoes everything, or raises `Unavailable` with the reason that the case is then skipped for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.events import POLL_S
from tests.faults.registry import Facts

CGROUPS = Path("/sys/fs/cgroup")
CLONE_NEWNET = 0x40000000
MS_NOSUID = 2
MNT_DETACH = 2
LIBC = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):  # noqa: N818 - it says what is so
    """This machine or user cannot do what the fault needs."""


def each_thread(pid: int, change: Callable[[int], None]) -> None:
    """Changes every thread of a process; one that ends meanwhile needs it no more."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            change(int(task.name))


def _root() -> None:
    if os.geteuid() != 0:
        raise Unavailable("needs root")


def _command(*words: str) -> str:
    if shutil.which(words[0]) is None:
        raise Unavailable(f"needs the program {words[0]}")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(words)}`: {done.stderr.strip()[:200]}")
    return done.stdout.strip()


def eventually(what: str, is_so: object, at_most_s: float = 10.0) -> None:
    """Waits until the condition holds."""
    assert callable(is_so)
    deadline = time.monotonic() + at_most_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {at_most_s:.0f} s: {what}")
        time.sleep(POLL_S)


@contextlib.contextmanager
def cgroup(controller: str) -> Iterator[Facts]:
    """A control group of version 1; its folder is `cgroup`."""
    _root()
    parent = CGROUPS / controller
    if not (parent / "cgroup.procs").exists() or (parent / "cgroup.controllers").exists():
        raise Unavailable(f"needs the version 1 control groups of {controller} at {parent}")
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=parent))
    try:
        yield {"cgroup": str(folder)}
    finally:
        for name, text in (("freezer.state", "THAWED"), ("cpu.cfs_quota_us", "-1")):
            if (folder / name).exists():
                (folder / name).write_text(text)
        eventually(f"{folder} is empty", lambda: _left(folder))


def _left(folder: Path) -> bool:
    """Moves what is left to the root group, and removes the group."""
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (folder.parent / "cgroup.procs").write_text(pid)
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def freezer() -> contextlib.AbstractContextManager[Facts]:
    return cgroup("freezer")


def memory() -> contextlib.AbstractContextManager[Facts]:
    return cgroup("memory")


def cpu() -> contextlib.AbstractContextManager[Facts]:
    return cgroup("cpu")


@contextlib.contextmanager
def swap(megabytes: int = 512) -> Iterator[Facts]:
    """A control group for memory, and a file to swap to: `cgroup`."""
    with memory() as facts, tempfile.NamedTemporaryFile(prefix="swap-") as file:
        for _ in range(megabytes):
            file.write(bytes(1 << 20))
        file.flush()
        _command("mkswap", file.name)
        _command("swapon", file.name)
        try:
            yield facts
        finally:
            subprocess.run(["swapoff", file.name], capture_output=True, check=False)


@contextlib.contextmanager
def disk(megabytes: int = 32) -> Iterator[Facts]:
    """A file system of its own, ext4 on a loop device: `disk` its folder, `device` its device."""
    _root()
    with tempfile.TemporaryDirectory(prefix="disk-") as name:
        image, mount = Path(name, "image"), Path(name, "mount")
        image.touch()
        os.truncate(image, megabytes << 20)
        mount.mkdir()
        _command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image))
        device = _command("losetup", "--find", "--show", str(image))
        try:
            _command("mount", device, str(mount))
            try:
                yield {"disk": str(mount), "device": device}
            finally:
                subprocess.run(["fsfreeze", "-u", str(mount)], capture_output=True, check=False)
                eventually(f"{mount} is unmounted", lambda: LIBC.umount(bytes(mount)) == 0)
        finally:
            subprocess.run(["losetup", "-d", device], capture_output=True, check=False)


@contextlib.contextmanager
def silent_fuse() -> Iterator[Facts]:
    """A user-space file system whose server never answers, as a hung network mount: `disk`."""
    _root()
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        raise Unavailable(f"needs /dev/fuse: {error}") from error
    folder = tempfile.mkdtemp(prefix="fuse-")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    try:
        if LIBC.mount(b"shared", folder.encode(), b"fuse", MS_NOSUID, options) != 0:
            raise Unavailable(f"cannot mount fuse: {os.strerror(ctypes.get_errno())}")
        try:
            yield {"disk": folder}
        finally:
            LIBC.umount2(folder.encode(), MNT_DETACH)
    finally:
        os.close(server)
        Path(folder).rmdir()


@contextlib.contextmanager
def small_tmpfs() -> Iterator[Facts]:
    """A file system of a megabyte: `disk`."""
    _root()
    with tempfile.TemporaryDirectory(prefix="small-") as name:
        if LIBC.mount(b"tmpfs", name.encode(), b"tmpfs", 0, b"size=1m") != 0:
            raise Unavailable(f"cannot mount tmpfs: {os.strerror(ctypes.get_errno())}")
        try:
            yield {"disk": name}
        finally:
            LIBC.umount2(name.encode(), MNT_DETACH)


@contextlib.contextmanager
def other_host() -> Iterator[Facts]:
    """A network of its own for one rank, joined by a cable that can be cut: `network` is its name,
    `cable` our end; ranks meet at `address`, where the rank in it is not 127.0.0.1.
    """
    _root()
    name = f"job{os.getpid() % 10000}"
    subnet = f"10.213.{os.getpid() % 200}"
    _command("ip", "netns", "add", name)
    try:
        ours, theirs = f"{name}a", f"{name}b"
        _command("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _command("ip", "addr", "add", f"{subnet}.1/24", "dev", ours)
        _command("ip", "link", "set", ours, "up")
        inside = ("ip", "-n", name)
        _command(*inside, "addr", "add", f"{subnet}.2/24", "dev", theirs)
        _command(*inside, "link", "set", theirs, "up")
        _command(*inside, "link", "set", "lo", "up")
        yield {
            "network": name, "cable": ours, "address": f"{subnet}.1",
            "interfaces": [ours, theirs],
        }  # fmt: skip
    finally:
        subprocess.run(["ip", "link", "del", f"{name}a"], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def enter_network(facts: Facts, other: bool) -> None:
    """Makes gloo use the cable of `other_host`; this process moves to its other end if `other`."""
    ours, theirs = facts["interfaces"]
    os.environ["GLOO_SOCKET_IFNAME"] = theirs if other else ours
    if other:
        with Path("/run/netns", facts["network"]).open() as namespace:
            if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def http_server(every_s: float = 0.0) -> Iterator[Facts]:
    """A reward server that never answers, but sends a byte `every_s` unless that is 0: `port`."""
    script = str(Path(__file__).with_name("reward_server.py"))
    command = [sys.executable, "-S", script, str(every_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield {"port": int(server.stdout.readline())}
        finally:
            server.kill()
