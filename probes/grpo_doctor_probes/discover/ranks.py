"""Which candidates are ranks: an environment with RANK is inherited by every helper of a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import SPAWNED_CODE, is_ray_actor, program, trains_in_ray
from grpo_doctor_probes.discover.scan import Tree

# Whose children are never ranks of the training, whatever they inherited.
_NO_RANKS_BELOW = ("engine", "engine-worker", "server", "reward", "dataloader")


def lost_helpers(
    claims: Mapping[int, int],
    eligible: Mapping[int, Candidate],
    candidates: Mapping[int, Candidate],
    tree: Tree,
) -> dict[int, int]:
    """Processes that claim a rank only because one that has ended had it, and that rank.

    A rank that runs the others' program by an exec of its own is none of them, wherever it was
    started from, and however late it joins. Not even where nothing else is left of a job are all
    that claim its ranks called helpers.
    """
    lost: dict[int, int] = {}
    worlds: dict[object, dict[int, int]] = {}
    for pid, rank in claims.items():
        worlds.setdefault(world_of(eligible[pid]), {})[pid] = rank
    for pids in worlds.values():
        tops = [pid for pid in pids if tree.nearest(pid, pids) is None]
        suspects = _suspects(tops, eligible, candidates, tree)
        sure = [eligible[pid] for pid in tops if pid not in suspects]
        present = {claims[candidate.pid] for candidate in sure}
        lost |= {
            pid: claims[pid]
            for pid in suspects
            if sure and (claims[pid] in present or not _runs_one_of(eligible[pid], sure))
        }
    return lost


def world_of(candidate: Candidate) -> object:
    """Return the same for all ranks of a job, and for what they forked."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    address = tuple(candidate.environment.get(name, "") for name in names)
    return address if any(address) else candidate.process.image


def _suspects(
    tops: Collection[int],
    eligible: Mapping[int, Candidate],
    candidates: Mapping[int, Candidate],
    tree: Tree,
) -> set[int]:
    """Unlike others of their world they have lost the launcher above them, the leader of their
    process group, or the threads of a process group, which a fork does not copy."""
    alone = {pid for pid in tops if tree.nearest(pid, candidates) is None}
    grouped = {pid for pid in tops if eligible[pid].grouped}
    suspects: set[int] = set()
    if any(eligible[pid].process.group == pid for pid in tops):
        # A leader outside of our process namespace has the number 0.
        leaders = {pid: eligible[pid].process.group for pid in tops}
        lost = {
            pid
            for pid in tops
            if leaders[pid] not in (0, pid) and leaders[pid] not in tree.processes
        }
        suspects |= lost
    if len(alone) < len(tops):
        suspects |= alone
    elif grouped:
        suspects |= alone - grouped
    return suspects


def _runs_one_of(candidate: Candidate, ranks: Iterable[Candidate]) -> bool:
    """Whether it was started as one of these was, rather than forked or spawned by a rank."""
    # Empty for what multiprocessing has spawned.
    started = program(candidate.process.arguments).name
    alike = any(program(rank.process.arguments).name == started for rank in ranks)
    return bool(started) and not candidate.process.forked and alike


@dataclass(frozen=True, slots=True)
class Cast:
    """Who is what.

    Attributes:
        ranks: training processes and their numbers, None where unknown.
        launchers: processes which no command gives away, but which made ranks.
        lost: helpers whose rank has ended, and its number.
    """

    ranks: Mapping[int, int | None]
    launchers: frozenset[int]
    lost: Mapping[int, int]


def cast(candidates: Mapping[int, Candidate], tree: Tree, left_out: frozenset[int]) -> Cast:
    """Distinguish ranks from their launchers and helpers.

    Args:
        candidates: By pid.
        tree: Of all processes of the host.
        left_out: Processes that are never part of a job: this tool, and what started it.
    """
    eligible = {pid: c for pid, c in candidates.items() if may_train(c, candidates, tree)}
    claims = {pid: rank for pid, c in eligible.items() if (rank := c.rank) is not None}
    _drop_forkers(claims, eligible, tree)
    _drop_tasks(claims, candidates, tree)
    _drop_starters(claims, candidates, tree)
    _drop_wrappers(claims, eligible, tree)
    lost = lost_helpers(claims, eligible, candidates, tree)
    stops = {pid for pid, candidate in candidates.items() if candidate.kind == "launcher"}
    ranks: dict[int, int | None] = {
        pid: rank
        for pid, rank in claims.items()
        if pid not in lost and not _below_same(pid, claims, tree, stops)
    }
    ranks.update(dict.fromkeys(_numberless(eligible, claims, tree)))
    return Cast(ranks, frozenset(_makers(ranks, candidates, tree)) - left_out, lost)


def may_train(candidate: Candidate, candidates: Mapping[int, Candidate], tree: Tree) -> bool:
    """Return whether nothing that it is, or that it works for, speaks against its being a rank."""
    if candidate.kind != "unknown":
        return False
    if is_ray_actor(candidate.process.arguments):
        return trains_in_ray(candidate.process.arguments) or (
            candidate.grouped and candidate.rank is not None
        )
    above = tree.nearest(candidate.pid, candidates)
    return above is None or candidates[above].kind not in _NO_RANKS_BELOW


def _drop_forkers(claims: dict[int, int], eligible: Mapping[int, Candidate], tree: Tree) -> None:
    """`for r in range(n): os.environ["RANK"] = str(r); fork()` leaves a rank in the parent too."""
    for pid in [pid for pid in claims if eligible[pid].set_late and not eligible[pid].grouped]:
        below = [child.pid for child in tree.children(pid) if child.pid in claims]
        if any(claims[child] != claims[pid] or eligible[child].grouped for child in below):
            del claims[pid]


def _drop_tasks(claims: dict[int, int], candidates: Mapping[int, Candidate], tree: Tree) -> None:
    """A task of MPI or Slurm may be one rank, or start a launcher, or several ranks by itself: of
    those each has the number of the task that they are of."""
    tasks = {pid for pid in claims if candidates[pid].only_task}
    launchers = {pid for pid, candidate in candidates.items() if candidate.kind == "launcher"}
    above = {up for pid in (launchers | claims.keys()) - tasks for up in tree.ancestors(pid)}
    twins = Counter((tree.processes[pid].parent, claims[pid]) for pid in tasks)
    for pid in tasks:
        if pid in above or twins[tree.processes[pid].parent, claims[pid]] > 1:
            del claims[pid]


def _drop_starters(claims: dict[int, int], candidates: Mapping[int, Candidate], tree: Tree) -> None:
    """All in a pod may have the pod's number as RANK: who starts the launcher of ranks is none."""
    starters: set[int] = set()
    for pid in claims:
        launched = False
        for above in tree.ancestors(pid):
            launched |= above in candidates and candidates[above].kind == "launcher"
            if launched and above in claims:
                same = world_of(candidates[above]) == world_of(candidates[pid])
                starters |= {above} if same else set()
    for pid in starters:
        del claims[pid]


def _drop_wrappers(claims: dict[int, int], eligible: Mapping[int, Candidate], tree: Tree) -> None:
    """A Python process that only starts the real rank has its environment: a small one, or one
    that is in no process group where a program that it has started is."""
    wrappers: set[int] = set()
    for pid in [pid for pid in claims if eligible[pid].torch]:
        process = eligible[pid].process  # started as a program, or as a worker of its parent
        is_program = not process.forked and not program(process.arguments).code
        joined = eligible[pid].grouped and is_program
        same = [above for above in tree.ancestors(pid) if claims.get(above) == claims[pid]]
        wrappers |= {above for above in same if not eligible[above].torch}
        wrappers |= {above for above in same if joined and not eligible[above].grouped}
    for pid in wrappers:
        del claims[pid]


def _below_same(pid: int, claims: Mapping[int, int], tree: Tree, stops: set[int]) -> bool:
    """Return whether an ancestor up to the next launcher is the rank that this one says it is."""
    for above in tree.ancestors(pid):
        if above in stops:
            return False
        if claims.get(above) == claims[pid]:
            return True
    return False


def _numberless(
    eligible: Mapping[int, Candidate], claims: Mapping[int, int], tree: Tree
) -> Iterable[int]:
    """Yield processes that are in a process group, and say no rank."""
    grouped = {pid for pid, candidate in eligible.items() if candidate.grouped}
    for pid in grouped - claims.keys():
        if eligible[pid].torch and tree.nearest(pid, {**claims, **dict.fromkeys(grouped)}) is None:
            yield pid


def _makers(ranks: Iterable[int], candidates: Mapping[int, Candidate], tree: Tree) -> Iterable[int]:
    """Parents that forked or spawned ranks, or gave them their environment."""
    ranks = set(ranks)
    for pid in ranks:
        child = tree.processes[pid]
        parent = tree.processes.get(child.parent)
        if parent is None or not parent.python or parent.pid in ranks or parent.kernel:
            continue
        candidate = candidates.get(parent.pid)
        if candidate is not None and candidate.kind != "unknown":
            continue
        forked = child.image is not None and child.image == parent.image
        spawned = bool(SPAWNED_CODE.search(program(child.arguments).code))
        rank = child.environment.get("RANK")
        gave = rank is not None and rank != parent.environment.get("RANK")
        if forked or spawned or gave:
            yield parent.pid
