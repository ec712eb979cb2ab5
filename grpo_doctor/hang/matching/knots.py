"""Who broke the order where ranks wait for each other in a ring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from grpo_doctor.hang.matching.model import Wait
from grpo_doctor.hang.matching.ruling import Blame, Reason
from grpo_doctor.hang.matching.scene import Scene
from grpo_doctor.hang.matching.waits import DIRECTED, edges, knots
from grpo_doctor.hang.matching.words import ranks_text

LEFT_OUT = 0.85
OUTNUMBERED = 0.85
UNLIKE_BEFORE = 0.8
EITHER = 0.5


def of_cycles(scene: Scene, guilty: Collection[int]) -> Iterator[Blame]:
    """Who left out a send or receive, if that closed the ring. Else one side of it: the smaller
    one; of equal ones, the one that came in another order before; else both. Rings with a rank that
    is guilty of something else are its consequence.
    """
    for knot in knots(edges(scene.waits)):
        if set(guilty) & set(knot):
            continue
        inside = [w for w in scene.waits if w.rank in knot and w.why in DIRECTED]
        if left_out := list(_left_out(scene, inside)):
            yield from left_out
            continue
        sides: dict[str, list[Wait]] = defaultdict(list)
        for wait in inside:
            if set(wait.on) & set(knot):
                sides[wait.group].append(wait)
        weight, wrong = _wrong(scene, list(sides.values()))
        for wait in wrong:
            yield _blame(scene, wait, weight, inside)


def _left_out(scene: Scene, inside: list[Wait]) -> Iterator[Blame]:
    """Ranks that went on to a collective past what a partner waits for. How many wait beside them
    says nothing: a send has one partner and a collective has many.
    """
    for awaited in (w for w in inside if w.why == "p2p"):
        for own in (w for w in inside if w.rank in awaited.on and w.why != "p2p"):
            if not scene.left_out(own.rank, own.group, own.sequence, awaited):
                continue
            receives = awaited.operation.startswith("receive")
            reason: Reason = "not-sent" if receives else "not-received"
            text = (
                f"Rank {own.rank} did not {'send to' if receives else 'receive from'} rank "
                f"{awaited.rank}, which waits for it ({scene.title(awaited.group)}), as it did in "
                f"earlier rounds: it is in {own.operation}{f' at {own.site}' if own.site else ''}."
            )
            yield Blame(own.rank, LEFT_OUT, reason, text, awaited.group, awaited.sequence)


def _wrong(scene: Scene, sides: list[list[Wait]]) -> tuple[float, list[Wait]]:
    """The waits that should not be there yet, and how sure that is."""
    largest = max(len(side) for side in sides)
    smaller = [wait for side in sides if len(side) < largest for wait in side]
    if smaller and sum(len(side) == largest for side in sides) == 1:
        return OUTNUMBERED, smaller
    everyone = [wait for side in sides for wait in side]
    for unlike in (_unlike_before(scene, everyone), [w for w in everyone if scene.novel(w)]):
        if unlike and len(unlike) < len(everyone):
            return UNLIKE_BEFORE, unlike
    return EITHER, everyone


def _unlike_before(scene: Scene, waits: list[Wait]) -> list[Wait]:
    """Waits of ranks that used to go to another group at this point."""
    return [wait for wait in waits if scene.as_before(wait) is False]


def _blame(scene: Scene, wait: Wait, weight: float, inside: list[Wait]) -> Blame:
    waiting = next((w for w in inside if wait.rank in w.on and w.group != wait.group), None)
    where = f" at {wait.site}" if wait.site else ""
    text = f"Rank {wait.rank} is in {wait.operation} of the {scene.title(wait.group)}{where}"
    if waiting is not None:
        there = sorted({w.rank for w in inside if w.group == waiting.group and wait.rank in w.on})
        text += (
            f", while {ranks_text(there)} {'wait' if len(there) > 1 else 'waits'} for it in "
            f"{waiting.operation} of the {scene.title(waiting.group)}"
        )
    if scene.novel(wait) and scene.as_before(wait) is not False:
        text += ". It had not called that before: it left the loop before the others did"
        return Blame(wait.rank, weight, "fewer-batches", text + ".", wait.group, wait.sequence)
    usual_line = wait.site and not scene.novel(wait)
    if waiting is not None and usual_line and scene.as_before(wait) is False:
        text += ". The line is the usual one, so it left out what comes before"
        return Blame(wait.rank, weight, "skipped", text + ".", waiting.group, waiting.sequence)
    return Blame(wait.rank, weight, "out-of-order", text + ".", wait.group, wait.sequence)
