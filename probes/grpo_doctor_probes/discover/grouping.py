"""Which processes belong to one job: those that a launcher, an address or a connection joins.

Some ties are certain, as a launcher's with its ranks. Others hold only between groups that can be
one job: two jobs may be started by one script, share one rollout server, or use one default port,
and a user may name processes of two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import is_ray_actor
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.scan import Tree
from grpo_doctor_probes.discover.sockets import Connection
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

_NO_RUN_ID = ("", "none")  # torchrun's default
CORE_KINDS = ("launcher", "engine", "engine-worker", "server", "ray")
_RAY_SESSION = re.compile(r"\bsession_[0-9A-Za-z_\-]{8,80}")
_NO_RAY_JOB = ("", "ffffffff")  # a worker that Ray started before it knew for which job


@dataclass(frozen=True, slots=True)
class Ties:
    """What joins processes in addition to the process tree.

    Attributes:
        spaces: The network name space of a process: the same address in another is another.
        connections: Among the core processes.
        together: Processes which the user names, as of one job.
    """

    spaces: Mapping[int, str] = field(default_factory=dict)
    connections: Sequence[Connection] = ()
    together: Sequence[int] = ()


def address_of(candidate: Candidate) -> str:
    """`host:port` of its rendezvous, empty where it says none."""
    host = candidate.environment.get("MASTER_ADDR", "")
    port = candidate.number("MASTER_PORT")
    return f"{host}:{port}" if host and port is not None else ""


def run_id_of(candidate: Candidate) -> str:
    """torchrun's name of the job, empty where it has none of its own."""
    run_id = candidate.environment.get("TORCHELASTIC_RUN_ID", "")
    return "" if run_id in _NO_RUN_ID else run_id


def same_address(
    candidates: Mapping[int, Candidate], cast: Cast, tree: Tree, spaces: Mapping[int, str]
) -> Iterator[tuple[int, int]]:
    """Yield pairs with one rendezvous address, or one name of the job, or of one step of Slurm."""
    first: dict[tuple[str, str], int] = {}
    # The newest first: what is left of an older run has its address too, and the rank of another.
    for pid in sorted({**cast.ranks, **cast.lost}, key=tree.started, reverse=True):
        candidate = candidates[pid]
        keys = [(spaces.get(pid, ""), address) for address in [address_of(candidate)] if address]
        if run_id := run_id_of(candidate):
            keys.append(("run id", run_id))
        if candidate.only_task and "SLURM_JOB_ID" in candidate.environment:
            step = (
                candidate.environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")
            )
            keys.append(("step", ".".join(step)))
        for key in keys:
            if (newest := first.setdefault(key, pid)) != pid:
                yield newest, pid


def made(core: set[int], cast: Cast, tree: Tree) -> Iterator[tuple[int, int]]:
    """Yield pairs of a rank and the launcher that no command gives away, or its next sibling."""
    last: dict[int, int] = {}
    for pid in sorted(cast.ranks):
        parent = tree.processes[pid].parent
        if parent in cast.launchers:
            yield pid, parent
        elif parent > 1 and parent not in core:
            image = tree.processes[pid].image
            maker = tree.processes.get(parent)
            if maker is not None and image is not None and maker.image == image:
                yield last.setdefault(parent, pid), pid


@dataclass(slots=True)
class _Group:
    pids: set[int]
    ranks: set[int] = field(default_factory=set)
    training: set[int] = field(default_factory=set)
    actors: set[int] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    run_ids: set[str] = field(default_factory=set)
    ray_jobs: set[str] = field(default_factory=set)
    run_dirs: set[str] = field(default_factory=set)
    makers: set[int] = field(default_factory=set)


class Groups:
    """A partition of processes into jobs, joined step by step."""

    def __init__(self, pids: set[int], candidates: Mapping[int, Candidate], cast: Cast) -> None:
        self._of = {pid: _group(pid, candidates.get(pid), cast) for pid in sorted(pids)}

    def join(
        self, pid: int, other: int, unless: Callable[[_Group, _Group], bool] = lambda *_: False
    ) -> None:
        """They are of one job, for certain or where nothing speaks against it."""
        group, absorbed = self._of[pid], self._of[other]
        if group is not absorbed and not unless(group, absorbed):
            for each in fields(_Group):
                getattr(group, each.name).update(getattr(absorbed, each.name))
            self._of |= dict.fromkeys(absorbed.pids, group)

    def all(self) -> list[frozenset[int]]:
        """Return the groups."""
        return [frozenset(group.pids) for group in {id(g): g for g in self._of.values()}.values()]


def _group(pid: int, candidate: Candidate | None, cast: Cast) -> _Group:
    group = _Group({pid})
    if candidate is None:
        return group
    ray_job = candidate.environment.get("RAY_JOB_ID", "")
    if ray_job not in _NO_RAY_JOB and candidate.kind != "ray":
        group.ray_jobs.add(ray_job)
    if pid in cast.ranks:
        group.training = {pid}
        group.actors = {pid} if is_ray_actor(candidate.process.arguments) else set()
        group.makers = {candidate.process.parent} - {0, 1}
        group.run_dirs = {candidate.environment.get(RUN_DIR_VARIABLE, "")} - {""}
        if (rank := cast.ranks[pid]) is not None:
            group.ranks.add(rank)
    if pid in cast.ranks or pid in cast.lost:
        if address := address_of(candidate):
            group.addresses.add(address)
        if run_id := run_id_of(candidate):
            group.run_ids.add(run_id)
    return group


def _differ(first: set[str], second: set[str]) -> bool:
    return bool(first and second and not first & second)


def _of_two_ray_jobs(first: _Group, second: _Group) -> bool:
    """Whether they are of two of the jobs that one Ray cluster may run."""
    return _differ(first.ray_jobs, second.ray_jobs)


def _contradict(first: _Group, second: _Group) -> bool:
    nameless = not (first.addresses or second.addresses or first.ranks or second.ranks)
    return (
        bool(first.ranks & second.ranks)
        or _differ(first.addresses, second.addresses)
        or _differ(first.run_ids, second.run_ids)
        or _differ(first.ray_jobs, second.ray_jobs)
        or (nameless and len(first.training) > 1 and len(second.training) > 1)
    )


def _are_two_jobs(first: _Group, second: _Group) -> bool:
    """Whether both have a rank of one number, as the worker groups of a single job have only where
    Ray made them, or one recorded run; two ranks of one launcher and rendezvous have it by mistake.
    """
    if not first.ranks & second.ranks:
        return False
    of_ray = first.actors == first.training and second.actors == second.training
    in_one_ray_job = of_ray and not _differ(first.ray_jobs, second.ray_jobs)
    by_mistake = first.makers & second.makers and first.addresses & second.addresses
    return not (in_one_ray_job or by_mistake or first.run_dirs & second.run_dirs)


def group_jobs(
    candidates: Mapping[int, Candidate], cast: Cast, tree: Tree, ties: Ties
) -> list[frozenset[int]]:
    """Return the jobs as groups of core processes: ranks, launchers, engines, servers and Ray's.

    Args:
        candidates: By pid.
        cast: Who is a rank or a launcher.
        tree: Of all processes.
        ties: What else joins them.
    """
    core = core_of(candidates, cast)
    groups = Groups(core, candidates, cast)
    alike = list(same_address(candidates, cast, tree, ties.spaces))
    for pair in alike:
        # First, because of workers that do not know their Ray job only this tells which it is.
        if all(is_ray_actor(tree.processes[pid].arguments) for pid in pair):
            groups.join(*pair, _contradict)
    _join_tree(groups, core, candidates, cast, tree)
    _join_sessions(groups, core, tree)
    talks = [(link.client, link.server) for link in ties.connections]
    for pair in (*alike, *talks, *made(core, cast, tree)):
        if core.issuperset(pair):
            groups.join(*pair, _contradict)
    chosen = [pid for pid in ties.together if pid in core]
    for pid in chosen[1:]:
        groups.join(chosen[0], pid, _are_two_jobs)
    return groups.all()


def core_of(candidates: Mapping[int, Candidate], cast: Cast) -> set[int]:
    """Return the processes that make a job; all others only belong to one of these."""
    programs = {pid for pid, candidate in candidates.items() if candidate.kind in CORE_KINDS}
    return programs | set(cast.ranks) | set(cast.lost) | cast.launchers


def _join_tree(
    groups: Groups, core: set[int], candidates: Mapping[int, Candidate], cast: Cast, tree: Tree
) -> None:
    for pid in sorted(core):
        above = tree.nearest(pid, core)
        if above is None or above in cast.launchers:
            continue
        if candidates[above].kind == "ray":
            groups.join(above, pid, _of_two_ray_jobs)
        else:
            groups.join(above, pid)


def _join_sessions(groups: Groups, core: set[int], tree: Tree) -> None:
    first: dict[str, int] = {}
    for pid in sorted(core):
        for session in _RAY_SESSION.findall(" ".join(tree.processes[pid].arguments))[:1]:
            groups.join(first.setdefault(session, pid), pid, _of_two_ray_jobs)
