"""A /proc of our own in which processes wait: what each thread is in, what they have open, whose
connections and locks those are. Formats: proc(5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.look.blocked import blocked
from grpo_doctor_probes.look.hostview import HostView, Unix
from grpo_doctor_probes.look.processes import processes
from grpo_doctor_probes.look.syscalls import call
from tests.unit.probes.discover.fakeproc import FakeProc
from tests.unit.probes.look.stage import job_of

_STATES = {
    "ESTABLISHED": 1, "SYN_SENT": 2, "SYN_RECV": 3, "FIN_WAIT1": 4, "CLOSE": 7, "CLOSE_WAIT": 8,
    "LISTEN": 10,
}  # fmt: skip
MACHINE = "x86_64"
RANK, OTHER, THIRD = 70, 90, 91
LOOPBACK = "0100007F"  # as the kernel prints it


def number_of(name: str) -> int:
    """The number of a system call."""
    calls = ((number, call(number, MACHINE)) for number in range(512))
    return next(number for number, entry in calls if entry is not None and entry.name == name)


@dataclass
class Scene(FakeProc):
    """Processes are added one by one; then what they have open and what they wait in."""

    unix: dict[int, Unix] = field(default_factory=dict)

    def waits(
        self,
        pid: int,
        name: str | None,
        *arguments: int,
        tid: int | None = None,
        state: str = "S",
        wchan: str = "do_wait",
    ) -> None:
        """A thread, the main one without `tid`, is in this call; None: in one that is not told."""
        folder = self.root / str(pid) / "task" / str(tid or pid)
        folder.mkdir(parents=True, exist_ok=True)
        words = ["0"] * 50
        words[0] = state
        (folder / "stat").write_text(f"{tid or pid} (python) {' '.join(words)}\n")
        (folder / "wchan").write_text(wchan)
        values = [*arguments, 0, 0, 0, 0, 0, 0][:6]
        number = "running" if name is None else f"{number_of(name)}"
        hexadecimal = " ".join(f"{value & (1 << 64) - 1:#x}" for value in values)
        (folder / "syscall").write_text(f"{number} {hexadecimal} 0x7ffe 0x7f00\n")

    def opened(self, pid: int, fd: int, target: str | Path, flags: int = 2, info: str = "") -> None:
        """A descriptor, open for reading and writing unless `flags` say otherwise."""
        folder = self.root / str(pid)
        (folder / "fdinfo").mkdir(exist_ok=True)
        (folder / "fd" / str(fd)).symlink_to(target)
        (folder / "fdinfo" / str(fd)).write_text(f"pos:\t0\nflags:\t{flags:07o}\n{info}")

    def socket(
        self,
        pid: int,
        fd: int | None,
        local: int,
        remote: int = 0,
        state: str = "ESTABLISHED",
        *,
        hosts: tuple[str, str] = (LOOPBACK, LOOPBACK),
        unsent: int = 0,
        unread: int = 0,
        resent: int = 0,
        inode: int | None = None,
    ) -> None:
        """A TCP socket where `pid` is, between two ports of `hosts`. Without `fd` no process has it
        open; with `inode` 0 it belongs to no program.
        """
        if inode is None:
            self._inode += 1
            inode = self._inode
        remote_end = f"{hosts[1]}:{remote:04X}" if remote else "00000000:0000"
        ends = f"{hosts[0]}:{local:04X} {remote_end} {_STATES[state]:02X}"
        queues = f"{unsent:08X}:{unread:08X} 00:00000000 {resent:08X}"
        row = f"0: {ends} {queues} 0 0 {inode} 1 0 100 0 0 10 0"
        if inode and fd is not None:
            self.opened(pid, fd, f"socket:[{inode}]")
        self._tell(pid, row)

    def mounted(self, pid: int, *mounts: tuple[str, str, str]) -> None:
        """File systems: where, of which kind, from where."""
        lines = [f"36 35 0:30 / {at} rw - {kind} {source} rw\n" for at, kind, source in mounts]
        (self.root / str(pid) / "mountinfo").write_text("".join(lines))

    def remembers(self, pid: int, at: int, content: bytes) -> int:
        """Bytes in the memory of a process; the address."""
        with (self.root / str(pid) / "mem").open("ab+") as file:
            file.truncate(max(file.tell(), at + 2 * 4096))
        with (self.root / str(pid) / "mem").open("rb+") as file:
            file.seek(at)
            file.write(content)
        return at

    def polls(self, pid: int, *polled: tuple[int, int], tid: int | None = None) -> None:
        """A thread polls these descriptors, each for these events."""
        rows = b"".join(struct.pack("ihh", fd, events, 0) for fd, events in polled)
        self.waits(pid, "poll", self.remembers(pid, 64, rows), len(polled), tid=tid)

    def locked(self, *lines: str) -> None:
        """The lines of /proc/locks, without their fixed words: `1: -> FLOCK 70 08:01:9`."""
        text = ""
        for line in lines:
            *first, kind, pid, file = line.split()
            text += f"{' '.join(first)} {kind}  ADVISORY  WRITE {pid} {file} 0 EOF\n"
        (self.root / "locks").write_text(text)

    def view(self, *job: int) -> HostView:
        """This host, to a visit of a job of these processes."""
        return HostView(self.root, job)

    def rows(self, *pids: int) -> list[Blocked]:
        """What the blocked threads of a job of these processes wait for."""
        job = job_of(*pids)
        return list(blocked(job, processes(job, self.root), self.root))
