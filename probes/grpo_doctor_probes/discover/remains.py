"""What an ended job has left behind: helpers that live on with a rank's environment, and no rank.

Next to a job they are ignored; alone they are named, and inspected only by their PID. Those that a
rank has forked have all that it had: torch, its sockets and its GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import program
from grpo_doctor_probes.discover.modules import Modules, has_torch, read_modules
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.scan import Tree
from grpo_doctor_probes.discover.sockets import Connection
from grpo_doctor_probes.procs.bounded import unless_blocked
from grpo_doctor_probes.procs.procfs import content, variables

_WORKERS = frozenset({"dataloader", "reward", "engine", "engine-worker"})
_REAPER_NAME = "systemd"  # of a user's session; that of the host is process 1
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Remains:
    """Separates jobs from groups of which only helpers are left.

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
        and nothing says that they are ranks of their own.

        A rank that is about to load torch may look like that where it was started by hand; it is
        known by the others, where they run the same program.
        """
        ranks = core & self.cast.ranks.keys()
        if not ranks or not all(map(self._is_worker, core - ranks)):
            return False
        originals = frozenset(pid for pid in ranks if not self.only_inherits(pid))
        pairs = ({connection.client, connection.server} for connection in self.connections)
        talking = set().union(*(pair for pair in pairs if len(pair) > 1))
        return not self._is_complete(originals) and all(
            self._is_orphan(pid) and pid not in talking and self._has_no_torch(pid)
            for pid in originals
        )

    def workers(self) -> frozenset[int]:
        """The helpers of ranks, by what they run, that no process waits for."""
        return frozenset(filter(self._is_worker, self.candidates))

    def _is_worker(self, pid: int) -> bool:
        candidate = self.candidates.get(pid)
        if candidate is None or candidate.kind not in _WORKERS:
            return False
        return self._has_lost_its_forker(pid) or self._is_orphan(pid)

    def only_inherits(self, pid: int) -> bool:
        """Whether it was forked by a rank that has ended: the rank has its number in its
        environment, and a fork copies that, torch and the sockets, but not the threads of a
        process group."""
        candidate = self.candidates[pid]
        is_rank = candidate.set_late or candidate.grouped
        return not is_rank and self._has_lost_its_forker(pid)

    def _has_lost_its_forker(self, pid: int) -> bool:
        """Return whether its parent is not the one that forked it, which then has ended."""
        process = self.tree.processes[pid]
        parent = self.tree.processes.get(process.parent)
        if not process.forked or process.image is None or parent is None:
            return False
        return not parent.python or parent.image not in (None, process.image)

    def _is_complete(self, core: frozenset[int]) -> bool:
        """Whether no rank is missing and all run one program, which no launcher has started."""
        members = [self.candidates[pid] for pid in core]
        launched = any("TORCHELASTIC_RUN_ID" in candidate.environment for candidate in members)
        scripts = {program(candidate.process.arguments).name for candidate in members}
        alike = len(scripts) == 1 and "" not in scripts
        return alike and not launched and len(members) == members[0].world and len(members) > 1

    def _is_orphan(self, pid: int) -> bool:
        """Whether the one that started it has ended, so that init has become its parent. In a
        container init may be what starts ranks."""
        process = self.tree.processes[pid]
        parent = self.tree.processes.get(process.parent)
        if parent is None or not (parent.pid == 1 or parent.name == _REAPER_NAME):
            return False
        leaders = (process.group, process.session)
        headless = process.session == pid or any(
            leader not in (0, pid) and leader not in self.tree.processes for leader in leaders
        )
        return headless and "RANK" not in variables(content(f"{self.proc}/{parent.pid}/environ"))

    def _has_no_torch(self, pid: int) -> bool:
        if not self.candidates[pid].torch:
            return True
        nothing: Modules | None = None
        ask = partial(read_modules, self.proc, pid)
        modules = unless_blocked(_PATIENCE_S, ask, nothing)
        return modules is not None and not has_torch(modules)
