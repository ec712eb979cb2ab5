"""Which system calls block, and where in their arguments stands what they wait for.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64).

A path and a set of descriptors are in the memory of the process. Reading takes its memory lock for
a moment and stops nothing; it is bounded in time, since a process that hangs inside a page fault
can hold that lock.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.procs.bounded import within

Waits = Literal[
    "read",  # argument `at` is a descriptor of anything
    "write",
    "receive",  # ... of a socket
    "send",
    "connect",
    "accept",
    "file",  # ... of a file, which the call works on
    "flock",  # ... of a file, locked
    "fcntl",
    "path",  # argument `at` is a path, relative to the descriptor before it
    "poll",
    "select",
    "epoll",
    "child",  # wait4
    "child-id",  # waitid
    "futex",
    "sleep",
    "restarted",  # after a stop or a thaw: what it was is lost
    "other",
]
_PATH_BYTES = 4096
_MEMORY_AT_MOST_S = 1.0
_POLLFD = struct.Struct("ihh")
_READABLE, _WRITABLE = 0x41, 0x4  # POLLIN | POLLRDNORM, POLLOUT
_MOST_POLLED = 256


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that can block. `at`: which argument matters."""

    name: str
    waits: Waits
    at: int = 0


_NAMES: tuple[tuple[Waits, int, str], ...] = (
    ("read", 0, "read readv pread64 preadv preadv2"),
    ("write", 0, "write writev pwrite64 pwritev pwritev2"),
    ("receive", 0, "recvfrom recvmsg recvmmsg"),
    ("send", 0, "sendto sendmsg sendmmsg"),
    ("connect", 0, "connect"),
    ("accept", 0, "accept accept4"),
    ("file", 0, "fsync fdatasync sync_file_range fallocate ftruncate getdents64 close"),
    ("flock", 0, "flock"),
    ("fcntl", 0, "fcntl"),
    ("path", 0, "open stat lstat statfs truncate mkdir rename unlink access"),
    ("path", 1, "openat openat2 newfstatat statx mkdirat renameat renameat2 unlinkat"),
    ("path", 1, "faccessat faccessat2 readlinkat"),
    ("poll", 0, "poll ppoll"),
    ("select", 0, "select pselect6"),
    ("epoll", 0, "epoll_wait epoll_pwait epoll_pwait2"),
    ("child", 0, "wait4"),
    ("child-id", 0, "waitid"),
    ("futex", 0, "futex futex_waitv"),
    ("sleep", 0, "nanosleep clock_nanosleep"),
    ("restarted", 0, "restart_syscall"),
    ("other", 0, "ioctl splice sendfile copy_file_range pause rt_sigtimedwait msync munmap"),
)
_CALLS = {name: Call(name, waits, at) for waits, at, names in _NAMES for name in names.split()}
_X86_64 = """
    read 0 write 1 open 2 close 3 stat 4 lstat 6 poll 7 munmap 11 ioctl 16 pread64 17 pwrite64 18
    readv 19 writev 20 access 21 select 23 msync 26 pause 34 nanosleep 35 sendfile 40 connect 42
    accept 43 sendto 44 recvfrom 45 sendmsg 46 recvmsg 47 wait4 61 fcntl 72 flock 73 fsync 74
    fdatasync 75 truncate 76 ftruncate 77 rename 82 mkdir 83 unlink 87 rt_sigtimedwait 128
    statfs 137 futex 202 getdents64 217 restart_syscall 219 clock_nanosleep 230 epoll_wait 232
    waitid 247 openat 257 mkdirat 258 newfstatat 262 unlinkat 263 renameat 264 readlinkat 267
    faccessat 269 pselect6 270 ppoll 271 splice 275 sync_file_range 277 epoll_pwait 281
    fallocate 285 accept4 288 preadv 295 pwritev 296 recvmmsg 299 sendmmsg 307 renameat2 316
    copy_file_range 326 preadv2 327 pwritev2 328 statx 332 openat2 437 faccessat2 439
    epoll_pwait2 441 futex_waitv 449
"""
_AARCH64 = """
    epoll_pwait 22 fcntl 25 ioctl 29 flock 32 mkdirat 34 unlinkat 35 renameat 38 statfs 43
    truncate 45 ftruncate 46 fallocate 47 faccessat 48 openat 56 close 57 getdents64 61 read 63
    write 64 readv 65 writev 66 pread64 67 pwrite64 68 preadv 69 pwritev 70 sendfile 71 pselect6 72
    ppoll 73 splice 76 readlinkat 78 newfstatat 79 fsync 82 fdatasync 83 sync_file_range 84
    waitid 95 futex 98 nanosleep 101 clock_nanosleep 115 restart_syscall 128 rt_sigtimedwait 137
    accept 202 connect 203 sendto 206 recvfrom 207 sendmsg 211 recvmsg 212 munmap 215 msync 227
    accept4 242 recvmmsg 243 wait4 260 sendmmsg 269 renameat2 276 copy_file_range 285 preadv2 286
    pwritev2 287 statx 291 openat2 437 faccessat2 439 epoll_pwait2 441 futex_waitv 449
"""


def _by_number(table: str) -> dict[int, Call]:
    words = table.split()
    return {int(number): _CALLS[name] for name, number in zip(words[::2], words[1::2])}


_TABLES = {"x86_64": _by_number(_X86_64), "aarch64": _by_number(_AARCH64)}


def call(number: int, machine: str | None = None) -> Call | None:
    """The blocking call of this number; None for others. `machine` as `platform.machine()`."""
    return _TABLES.get(machine or platform.machine(), {}).get(number)


def path_at(proc: Path, pid: int, address: int) -> bytes:
    """Return the string at `address`, without its end mark. Raises OSError, or TimeoutError."""
    return _in_memory(proc, pid, lambda memory: memory.text(address, _PATH_BYTES))


def polled(proc: Path, pid: int, address: int, count: int) -> list[tuple[int, bool, bool]]:
    """`(descriptor, for reading, for writing)` of a poll call. Raises OSError or TimeoutError."""
    data = _bytes_at(proc, pid, address, _POLLFD.size * min(count, _MOST_POLLED))
    entries = data[: len(data) // _POLLFD.size * _POLLFD.size]
    return [
        (fd, bool(events & _READABLE), bool(events & _WRITABLE))
        for fd, events, _ in _POLLFD.iter_unpack(entries)
        if fd >= 0
    ]


def selected(
    proc: Path, pid: int, count: int, addresses: tuple[int, ...]
) -> list[tuple[int, bool, bool]]:
    """Return the same of a select call; `addresses` of its first two sets, 0 for none."""
    size = (min(count, 1024) + 7) // 8
    sets = [
        _bytes_at(proc, pid, address, size) if address else bytes(size) for address in addresses
    ]
    reading, writing = (int.from_bytes(bits, "little") for bits in sets)
    return [
        (fd, bool(reading >> fd & 1), bool(writing >> fd & 1))
        for fd in range(min(count, 1024))
        if (reading | writing) >> fd & 1
    ]


def _in_memory(proc: Path, pid: int, read: Callable[[Memory], bytes]) -> bytes:
    def ask() -> bytes:
        with Memory(pid, proc) as memory:
            return read(memory)

    return within(_MEMORY_AT_MOST_S, ask)


def _bytes_at(proc: Path, pid: int, address: int, size: int) -> bytes:
    return _in_memory(proc, pid, lambda memory: memory.read(address, size))
