"""The job's processes on this host, looked for now and then: its ranks, and who helps them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from grpo_doctor_probes.discover.commands import Kind, kind_of, program
from grpo_doctor_probes.discover.scan import read_process
from grpo_doctor_probes.samplers.jobtree import JobTree, RankGroup
from grpo_doctor_probes.supervisor.deaths import DeathWatch, Subject

SCAN_PERIOD_NS = 1_000_000_000
_DIES_WITHIN_S = 2.0


# Ranks can't continue without these.
_SERVING: Mapping[Kind, str] = {
    "engine": "the rollout engine",
    "engine-worker": "a rollout worker",
    "server": "the rollout server",
    "reward": "a reward process",
    "dataloader": "a data-loading worker",
}


def role_of(name: str, arguments: tuple[str, ...]) -> tuple[str, bool]:
    """Return the role of a process by its name and command line, and whether it serves ranks."""
    kind = kind_of(name, arguments)
    if kind in _SERVING:
        return _SERVING[kind], True
    if kind == "helper" and program(arguments).title:  # a coordinator, a detokenizer
        return "a helper of the rollout engine", True
    first = Path(arguments[0].partition(" ")[0]).name if arguments else ""
    return f"a helper ({first[:32]})" if first else "a helper", False


class Members:
    """Keeps `groups` up to date and has every newcomer watched by `deaths`."""

    def __init__(self, job_pid: int, run_dir: Path, deaths: DeathWatch) -> None:
        self.groups: list[RankGroup] = []
        self._job_pid = job_pid
        self._deaths = deaths
        self._tree = JobTree(job_pid, run_dir, os.uname().nodename)
        self._scanned_ns: int | None = None
        self._seen_before: set[int] = set()
        self._trains: dict[int, int] = {}  # the process that trains, by rank
        self._helps: dict[int, int] = {}  # the rank that a helper works for, by process

    @property
    def ranks(self) -> dict[int, int]:
        """The processes that train, and which rank each is."""
        return {group.main: group.rank for group in self.groups}

    @property
    def everyone(self) -> tuple[int, ...]:
        """All processes of the job, the launcher included."""
        return tuple(self._tree.processes)

    @property
    def pids(self) -> list[int]:
        """All that have not ended, but for the launcher; a number given away is not ours."""
        return [pid for pid in self._living() if pid != self._job_pid]

    def _living(self) -> list[int]:
        return [p.pid for p in self._tree.processes.values() if p.usage() is not None]

    def refresh(self, now_ns: int) -> None:
        """Scans when it is time."""
        if self._scanned_ns is not None and now_ns - self._scanned_ns < SCAN_PERIOD_NS:
            return
        self._scanned_ns = now_ns
        self.groups = self._without_orphans(self._tree.scan(now_ns))
        deaths = self._deaths
        rank_of = self.ranks
        works_for = {pid: group.rank for group in self.groups for pid in group.pids}
        works_for |= self._helps
        for pid in self._tree.processes:
            if pid in rank_of:
                deaths.watch(Subject(pid, f"rank {rank_of[pid]}", rank_of[pid]))
            elif pid in self._seen_before and pid != self._job_pid and not deaths.watches(pid):
                # Compilers and shells that live for less than a scan are not worth a descriptor,
                # and between fork and exec a process still has its parent's name.
                process, rank = read_process(Path("/proc"), pid), works_for.get(pid)
                role = role_of(process.name, process.arguments) if process else role_of("", ())
                words = role[0] if rank is None else f"{role[0]} of rank {rank}"
                deaths.watch(Subject(pid, words, None, role[1]))
        self._seen_before = set(self._tree.processes)
        deaths.check()

    def _without_orphans(self, groups: list[RankGroup]) -> list[RankGroup]:
        """Without those of which only helpers are left: they have the environment of their rank,
        and would pass for it. One whose launcher has not collected it yet has ended as well."""
        alive = self._tree.processes
        training = [group for group in groups if self._trains_still(group)]
        self._trains |= {group.rank: group.main for group in training}
        helpers = {p: group.rank for group in groups for p in group.pids if p != group.main}
        self._helps = {p: rank for p, rank in {**self._helps, **helpers}.items() if p in alive}
        return training

    def _trains_still(self, group: RankGroup) -> bool:
        main = group.main
        if self._helps.get(main) == group.rank:
            main = self._trains.get(group.rank, main)
        process = self._tree.processes.get(main)
        return process is not None and process.usage() is not None

    def kill(self) -> None:
        """Kill all but the launcher, which then ends by itself with its exit code."""
        _send(signal.SIGKILL, self.pids)

    def end(self, grace_s: float, *, launcher: bool = False) -> None:
        """End what a launcher that is gone has left behind: SIGTERM, SIGKILL after `grace_s`.
        `launcher`: it may live, and is ended as well."""
        for number, at_most_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _DIES_WITHIN_S)):
            _send(number, self._living() if launcher else self.pids)
            deadline = time.monotonic() + at_most_s  # at last so that their deaths are heard of
            while (self._living() if launcher else self.pids) and time.monotonic() < deadline:
                time.sleep(0.05)


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
