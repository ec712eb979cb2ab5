"""What a dead rank has left behind: its helpers live on with its environment, and are no ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import program
from grpo_doctor_probes.discover.tree import Tree


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
    for pids in _worlds(claims, eligible):
        tops = [pid for pid in pids if tree.nearest(pid, pids) is None]
        suspects = _suspects(tops, eligible, candidates, tree)
        sure = [eligible[pid] for pid in tops if pid not in suspects]
        taken = {claims[one.pid] for one in sure}
        lost |= {
            pid: claims[pid]
            for pid in suspects
            if sure and (claims[pid] in taken or not _runs_one_of(eligible[pid], sure))
        }
    return lost


def _worlds(
    claims: Mapping[int, int], eligible: Mapping[int, Candidate]
) -> Iterable[Mapping[int, int]]:
    """The claims of each job; the helpers that its ranks forked are among them."""
    worlds: dict[object, dict[int, int]] = {}
    for pid, rank in claims.items():
        worlds.setdefault(world_of(eligible[pid]), {})[pid] = rank
    return worlds.values()


def world_of(one: Candidate) -> object:
    """The same for all ranks of a job, and for what they forked."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    address = tuple(one.environment.get(name, "") for name in names)
    return address if any(address) else one.process.image


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
    found: set[int] = set()
    if any(eligible[pid].process.group == pid for pid in tops):
        found |= {pid for pid in tops if _lost_its_leader(eligible[pid], tree)}
    if len(alone) < len(tops):
        found |= alone
    elif grouped:
        found |= alone - grouped
    return found


def _lost_its_leader(one: Candidate, tree: Tree) -> bool:
    # A leader outside of our process namespace has the number 0.
    return one.process.group not in (0, one.pid) and one.process.group not in tree.processes


def _runs_one_of(one: Candidate, others: Iterable[Candidate]) -> bool:
    """Whether it was started as one of these was, rather than forked or spawned by a rank."""
    started = program(one.process.arguments).name  # empty for what multiprocessing has spawned
    alike = any(program(other.process.arguments).name == started for other in others)
    return bool(started) and not one.process.forked and alike
