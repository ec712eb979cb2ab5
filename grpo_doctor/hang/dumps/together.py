"""Which dumps are of one job and one moment: a folder also has those of earlier runs, and of an
engine's own world.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from grpo_doctor.hang.dumps.entries import GIVES_UP
from grpo_doctor.hang.dumps.model import DumpProblem, Entry, GroupSeen, Recording

ALONE = "Give --dumps a folder with the dumps of one job and one hang."
_DEFAULT = "default_pg"
# No member can be through before all have come. An all_to_all skips who gets nothing from it.
_OF_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier"})


class _Reach(NamedTuple):
    """How far a recording is in a group: what it is through with, and the last that it called."""

    rank: int
    done: int
    called: int
    is_file: bool


def of_one_world(parts: Sequence[Recording]) -> tuple[list[Recording], list[DumpProblem]]:
    """The parts whose default group has the members that most list, and those that list none."""
    worlds = [_world(part) for part in parts]
    listed = Counter(world for world in worlds if world)
    if len(listed) < 2:
        return list(parts), []
    usual = max(listed, key=lambda world: (listed[world], len(world), world))
    kept: list[Recording] = []
    problems: list[DumpProblem] = []
    for part, world in zip(parts, worlds):
        if world in ((), usual):
            kept.append(part)
            continue
        what = f"it is of a job of {len(world)} ranks, most others are of one of {len(usual)}"
        problems.append(_left_out(part, what))
    return kept, problems


def _left_out(one: Recording, what: str) -> DumpProblem:
    remedy = ALONE if one.from_file else ""
    return DumpProblem(one.sources[0], one.rank, f"{what}; not used", remedy)


def _world(part: Recording) -> tuple[int, ...]:
    """The members of the default group, in order; empty where they are not listed."""
    for group in part.groups:
        if group.ranks and (group.description == _DEFAULT or _is_first(group)):
            return tuple(sorted(group.ranks))
    return ()


def _is_first(group: GroupSeen) -> bool:
    return group.name == "0" and not group.description


def of_one_moment(
    recordings: Sequence[Recording],
) -> tuple[list[Recording], list[DumpProblem]]:
    """Without the files that contradict most of the others: nobody is through with a collective
    that a member has not called, so one of the two is of an earlier moment, or of another run.
    """
    apart: set[int] = set()
    for reaches in _reaches(recordings):
        told = [one for one in reaches if one.rank not in apart]
        meeting = _meeting(told)
        if 2 * len(meeting) > len(told):
            apart |= {one.rank for one in told if one.is_file and one.rank not in meeting}
    what = "it is of another run or moment than most others: their collectives rule it out"
    problems = [_left_out(one, what) for one in recordings if one.rank in apart]
    return [one for one in recordings if one.rank not in apart], problems


def _reaches(recordings: Sequence[Recording]) -> list[list[_Reach]]:
    """Of every group whose members are listed, the largest first."""
    found: dict[tuple[str, str, tuple[int, ...]], list[_Reach]] = defaultdict(list)
    for one in recordings:
        if one.rank is None:
            continue
        done: dict[tuple[str, str], int] = {}
        called: dict[tuple[str, str], int] = {}
        for entry in one.entries:
            if entry.is_p2p or entry.backend not in GIVES_UP:
                continue
            key = entry.group, entry.backend
            called[key] = max(called.get(key, -1), entry.sequence)
            if entry.done and entry.op in _OF_ALL and not _is_empty(entry):
                done[key] = max(done.get(key, -1), entry.sequence)
        for group in one.groups:
            key = group.name, group.backend
            if group.ranks and key in called:
                last = max(called[key], group.status.enqueued)
                reach = _Reach(one.rank, done.get(key, -1), last, one.from_file)
                found[(*key, group.ranks)].append(reach)
    return [found[key] for key in sorted(found, key=lambda key: (-len(found[key]), key))]


def _is_empty(entry: Entry) -> bool:
    """Without an element NCCL does nothing, and waits for nobody."""
    return any(0 in shape for shape in entry.input_sizes)


def _meeting(reaches: Sequence[_Reach]) -> frozenset[int]:
    """The most ranks that can be of one moment: all are through with what they must have called,
    up to one and the same collective. Of equally many, those that are further.
    """
    steps = Counter[int]()
    for one in reaches:
        steps[one.done] += 1
        steps[one.called + 1] -= 1
    numbers = sorted(steps)
    together = dict(zip(numbers, accumulate(steps[number] for number in numbers)))
    at = max(numbers, key=lambda number: (together[number], number), default=0)
    return frozenset(one.rank for one in reaches if one.done <= at <= one.called)
