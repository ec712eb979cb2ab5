"""Ranks that all wait in calls to each other, where no single group shows who is to blame.

gloo's recorder has neither the members of a group nor the making of one, nor monitored barriers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.groups import Mistake, deadlock
from grpo_doctor.hang.causes.habits import odd_way
from grpo_doctor.hang.causes.wording import at, place_text, still_item
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import ranks_text

_UNRECORDED = ("monitored_barrier",)


def propose(case: Case) -> Iterator[Candidate]:
    """Only where every rank is in such a call, and here: others may be in the same one."""
    ranks = list(case.scene.by_rank.values())
    if case.suspects or case.scene.elsewhere or len(ranks) < 2 or any(one.held for one in ranks):
        return
    yield from _not_come(case.scene, ranks)
    if not case.scene.matching.cycles:
        yield from _another_way(case.scene)
        yield from _each_in_its_own(case.scene)


def _not_come(scene: Scene, ranks: list[Actor]) -> Iterator[Candidate]:
    """Most ranks make a group or stand in a barrier that no recorder shows, some do not."""
    calls = Counter(one.place.operation for one in ranks if _is_unrecorded(one))
    operation, count = calls.most_common(1)[0] if calls else ("", 0)
    few = [one for one in ranks if one.place.operation != operation]
    # On one's way into a group, one is as late as those who wait for it.
    if not few or 2 * count <= len(ranks) or any(_is_unrecorded(one) for one in few):
        return
    others = [one for one in ranks if one not in few]
    where = at(others[0].place.user)
    own = f"{few[0].place.operation} at {place_text(few[0].place)}"
    yield deadlock(
        scene,
        Mistake(
            "collective-skipped",
            tuple(sorted(one.rank for one in few if one.rank is not None)),
            f"is in {own}, and did not come to {operation}{f' ({where})' if where else ''}",
        ),
        [still_item(one) for one in (*few[:2], *others[:1])],
        Sink.RING,
    )


def _is_unrecorded(actor: Actor) -> bool:
    return actor.place.call == "store" or actor.place.operation in _UNRECORDED


def _another_way(scene: Scene) -> Iterator[Candidate]:
    """Since the last collective of all, one rank called others than the rest."""
    odd, usual = odd_way(scene.recordings, scene.by_rank)
    if not odd:
        return
    way = " > ".join(usual)
    items = [Item("flight recorder", None, f"the others called {way} since the last of all ranks")]
    yield deadlock(
        scene,
        Mistake("collective-skipped", odd, f"did not call {way} as the others did"),
        items,
        Sink.ORDER,
    )


def _each_in_its_own(scene: Scene) -> Iterator[Candidate]:
    """No two ranks wait in the same group: each waits for one that waits in another."""
    alone = {wait.rank: wait for wait in scene.matching.waits if wait.why == "missing"}
    groups = Counter(wait.group for wait in alone.values())
    if set(alone) != set(scene.by_rank) or len(groups) != len(alone):
        return
    items = [
        Item("flight recorder", rank, f"waits alone in {wait.operation} of group {wait.group}")
        for rank, wait in sorted(alone.items())[:8]
    ]
    first = scene.by_rank[min(alone)]
    place = place_text(first.place)
    found = deadlock(
        scene,
        Mistake(
            "group-order-cycle",
            tuple(sorted(alone)),
            f"waits alone in {first.place.operation} at {place}",
        ),
        items,
        Sink.ORDER,
    )
    whole = f"{ranks_text(sorted(alone))} wait in as many process groups, each alone, at {place}"
    yield replace(found, whole=f"{whole}: they use their groups in different orders")
