"""Collectives with one source or target, of which ranks mean different ones.

No recorder has it: it is read off the stacks of ranks that stay in one that others have left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.groups import Mistake, deadlock
from grpo_doctor.hang.causes.wording import at, still_item
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor.hang.verdict import Item


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks that wait in one collective, each for another source or target."""
    scene = case.scene
    if case.suspects:
        return
    calls: dict[tuple[str, int], dict[int, int]] = {}
    for wait in scene.matching.waits:
        actor = scene.by_rank.get(wait.rank)
        root = partner_of(scene, actor) if actor is not None and wait.why == "joined" else None
        if root is not None:
            calls.setdefault((wait.group, wait.sequence), {})[wait.rank] = root
    for meant in calls.values():
        if len(set(meant.values())) > 1:
            yield _differ(scene, meant)


def _differ(scene: Scene, meant: dict[int, int]) -> Candidate:
    wrong = _wrong(meant)
    first = scene.by_rank[wrong[0]]
    operation = first.place.operation
    items = [
        Item("stack", rank, f"is in {operation} of rank {root}") for rank, root in meant.items()
    ]
    where = at(first.place.user)
    others = sorted(set(meant.values()) - {meant[wrong[0]]})
    return deadlock(
        scene,
        Mistake(
            "collective-mismatch",
            wrong,
            f"calls {operation}{f' at {where}' if where else ''} with rank {meant[wrong[0]]} as "
            f"its source or target where others have rank {others[0]}",
        ),
        [*items, still_item(first)],
        Sink.RING,
    )


def _wrong(meant: dict[int, int]) -> tuple[int, ...]:
    """Who means a rank that has left the collective, and so was not what it meant; else the fewer;
    of as many, all.
    """
    left = [rank for rank, root in meant.items() if root not in meant]
    if left and len(left) < len(meant):
        return tuple(sorted(left))
    counts = Counter(meant.values())
    most = max(counts.values())
    fewer = [rank for rank, root in meant.items() if counts[root] < most]
    return tuple(sorted(fewer or meant))
