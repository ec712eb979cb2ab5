"""What is looked up at most once in a visit: who runs, who holds what, sockets, locks."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from grpo_doctor_probes.look.descriptors import Entry, Holders, process_table
from grpo_doctor_probes.look.filelocks import Lock, read_locks
from grpo_doctor_probes.look.sockets import Tcp, TcpTable
from grpo_doctor_probes.look.unixsockets import Unix, unix_sockets

if TYPE_CHECKING:
    from pathlib import Path


class HostView:
    """This host as the blocked calls of a job need it. Each part is read when first asked for."""

    def __init__(self, proc: Path, job: tuple[int, ...] = ()) -> None:
        self.proc = proc
        self._job = job  # processes whose network namespaces may have the other end of a connection
        self.mute: set[int] = set()  # processes whose memory did not answer in time
        self._tcp: dict[str, TcpTable] = {}

    @cached_property
    def table(self) -> dict[int, Entry]:
        """All processes."""
        return process_table(self.proc)

    @cached_property
    def holders(self) -> Holders:
        """All descriptors."""
        return Holders(self.proc, self.table)

    @cached_property
    def locks(self) -> list[Lock]:
        """All file locks."""
        return read_locks(self.proc)

    @cached_property
    def unix(self) -> dict[int, Unix]:
        """All Unix sockets by inode."""
        return unix_sockets()

    @cached_property
    def children(self) -> dict[int, list[Entry]]:
        """Children of every process."""
        found: dict[int, list[Entry]] = {}
        for entry in self.table.values():
            found.setdefault(entry.parent, []).append(entry)
        return found

    def tcp(self, pid: int) -> TcpTable:
        """The TCP sockets of the network namespace of `pid`."""
        try:
            namespace = os.readlink(f"{self.proc}/{pid}/ns/net")  # noqa: PTH115
        except OSError:
            namespace = str(pid)
        if namespace not in self._tcp:
            self._tcp[namespace] = TcpTable(self.proc, pid)
        return self._tcp[namespace]

    @cached_property
    def _namespaces(self) -> list[TcpTable]:
        """The sockets of every network namespace in which the job has processes."""
        return list({id(table): table for table in map(self.tcp, self._job)}.values())

    def other_end(self, pid: int, one: Tcp) -> Tcp | None:
        """The other end of a connection of `pid`, also where a process of the job has it in another
        network namespace, as a container beside this one.
        """
        own = self.tcp(pid).other_end(one)
        if own is not None:
            return own
        return next((end for t in self._namespaces if (end := t.other_end(one))), None)

    def is_complete_for(self, pid: int) -> bool:
        """Whether nobody can hold the other end of a pipe of `pid` without being seen."""
        entry = self.table.get(pid)
        return entry is not None and self.holders.complete_for(entry.session)

    def descendants(self, pids: tuple[int, ...]) -> list[int]:
        """All processes below these that are not among them."""
        known, waiting, found = set(pids), list(pids), []
        while waiting:
            for child in self.children.get(waiting.pop(), []):
                if child.pid not in known:
                    known.add(child.pid)
                    waiting.append(child.pid)
                    found.append(child.pid)
        return found

    def is_stopped(self, pid: int) -> bool:
        """Whether a signal or a debugger keeps it from running."""
        entry = self.table.get(pid)
        return entry is not None and entry.state in ("T", "t")

    def describe(self, pid: int) -> str:
        """`4711 (python, sleeping)`."""
        entry = self.table.get(pid)
        if entry is None:
            return f"{pid} (gone)"
        return f"{pid} ({entry.name}, {_STATES.get(entry.state, entry.state)})"


_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "ended, not yet waited for",
    "X": "gone",
    "I": "idle",
}
