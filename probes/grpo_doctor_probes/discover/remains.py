"""What an ended job has left behind: helpers that live on with a rank's environment, and no rank.

Beside a job they are none; alone they are named, and looked at only by their PID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import program
from grpo_doctor_probes.discover.modules import Modules, read_modules
from grpo_doctor_probes.discover.patience import unless_blocked
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.scan import parse_environment
from grpo_doctor_probes.discover.sockets import Connection
from grpo_doctor_probes.discover.tree import Tree
from grpo_doctor_probes.procfs import read

_REAPER_NAME = "systemd"  # of a user's session; that of the host is process 1
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Remains:
    """Tells groups of which only helpers are left from jobs.

    Attributes:
        connections: Among the processes of jobs.
    """

    proc: Path
    tree: Tree
    candidates: Mapping[int, Candidate]
    cast: Cast
    connections: Sequence[Connection]

    def is_left(self, core: frozenset[int]) -> bool:
        """Whether all of it are helpers that an ended job has left: what started them has ended,
        they talk to nobody and have no torch.

        A rank that is about to load torch may look like that where it was started by hand; it is
        known by the others, where they run the same program.
        """
        if not core <= self.cast.ranks.keys() or self._is_whole(core):
            return False
        return all(
            self._is_orphan(pid) and not self._talks(pid) and self._has_no_torch(pid)
            for pid in core
        )

    def _is_whole(self, core: frozenset[int]) -> bool:
        """Whether no rank is missing and all run one program, which no launcher has started."""
        ones = [self.candidates[pid] for pid in core]
        launched = any("TORCHELASTIC_RUN_ID" in one.environment for one in ones)
        scripts = {program(one.process.arguments).name for one in ones}
        alike = len(scripts) == 1 and "" not in scripts
        return alike and not launched and len(ones) == ones[0].world and len(ones) > 1

    def _talks(self, pid: int) -> bool:
        pairs = [{one.client, one.server} for one in self.connections]
        return any(pid in pair and len(pair) > 1 for pair in pairs)

    def _is_orphan(self, pid: int) -> bool:
        """Whether the one that started it has ended, so that init has become its parent. In a
        container init may be what starts ranks."""
        process = self.tree.processes[pid]
        parent = self.tree.processes.get(process.parent)
        if parent is None or not (parent.pid == 1 or parent.name == _REAPER_NAME):
            return False
        leaders = (process.group, process.session)
        headless = process.session == pid or any(
            one not in (0, pid) and one not in self.tree.processes for one in leaders
        )
        return headless and not self._has_rank(parent.pid)

    def _has_rank(self, pid: int) -> bool:
        try:
            return "RANK" in parse_environment(read(f"{self.proc}/{pid}/environ"))
        except OSError:
            return False

    def _has_no_torch(self, pid: int) -> bool:
        if not self.candidates[pid].torch:
            return True
        nothing: Modules | None = None
        ask = partial(read_modules, self.proc, pid)
        modules = unless_blocked(_PATIENCE_S, ask, nothing)
        return modules is not None and not modules.has_torch
