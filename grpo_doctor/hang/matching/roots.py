"""Ranks that others wait for, and that wait for nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from grpo_doctor.hang.matching.model import Wait
from grpo_doctor.hang.matching.ruling import Blame, Reason
from grpo_doctor.hang.matching.scene import Scene
from grpo_doctor.hang.matching.waits import DIRECTED
from grpo_doctor.hang.matching.words import ranks_text

FEW = 0.25  # of a group, or fewer: they may have come by mistake
ONE_ROOT = 0.85
UNHEARD = 0.7
BY_MISTAKE = 0.75
MAYBE_BY_MISTAKE = 0.4
ALSO_WAITS = 0.3  # it is in a collective that all have joined


def of_waits(scene: Scene, guilty: Sequence[Blame]) -> Iterator[Blame]:
    """The ends of all chains of waits, but those that are explained by `guilty`."""
    extra = {(one.rank, one.group) for one in guilty if one.reason == "extra"}
    waits = [w for w in scene.waits if w.why in DIRECTED and (w.rank, w.group) not in extra]
    few = list(_few(scene, waits))
    yield from few
    mistaken = {(one.rank, one.group) for one in few if one.weight >= BY_MISTAKE}
    waits = [w for w in waits if (w.rank, w.group) not in mistaken]
    blocked = {w.rank for w in scene.waits if w.why != "joined"} | {one.rank for one in guilty}
    joined = {w.rank for w in scene.waits if w.why == "joined"}
    waited: dict[int, list[Wait]] = defaultdict(list)
    for wait in waits:
        for rank in wait.on:
            if rank not in blocked:
                waited[rank].append(wait)
    for rank, behind in sorted(waited.items()):
        weight = UNHEARD if rank not in scene.heard else ONE_ROOT
        weight *= max(1 / len(waited) ** 0.5, 0.4) if not few else 0.35
        if rank in joined:
            weight = min(weight, ALSO_WAITS)
        yield _blame(scene, rank, behind, weight)


def _few(scene: Scene, waits: Iterable[Wait]) -> Iterator[Blame]:
    """Ranks that are in a collective almost alone: a call under `if rank == 0:` looks like this,
    and so do ranks that are a round ahead after one. Of members without a recording nobody knows.
    """
    came: dict[tuple[str, int], list[Wait]] = defaultdict(list)
    for wait in waits:
        if wait.why == "missing":
            came[wait.group, wait.sequence].append(wait)
    for (key, sequence), waiting in sorted(came.items()):
        members = scene.gathered[key].group.members
        told = scene.heard.intersection(members)
        if len(told) < 4 or len(waiting) > FEW * len(told):
            continue
        if any(len(wait.on) + len(waiting) < len(members) for wait in waiting):
            continue  # some are already through
        past = scene.pasts[key]
        expected = past.expected(sequence)
        for wait in waiting:
            mine = past.calls.get(sequence, {}).get(wait.rank)
            if mine is None:
                continue
            weight = BY_MISTAKE if scene.novel(wait) else MAYBE_BY_MISTAKE
            usual = expected == mine
            text = (
                f"{ranks_text([wait.rank]).capitalize()} called {wait.operation}"
                f"{f' at {wait.site}' if wait.site else ''} of the {scene.title(key)}, which "
                f"{ranks_text(told.intersection(wait.on))} did not"
                f"{': it is one ahead' if usual else ', and earlier rounds did not have there'}."
            )
            yield Blame(wait.rank, weight, "extra", text, key, sequence)


def _telling(scene: Scene, rank: int, behind: Sequence[Wait]) -> Sequence[Wait]:
    """The waits that say what the rank did not do. Who has stopped before a collective has not come
    to the sends after it either: those count where it went past them, or nothing else waits.
    """
    transfers = [wait for wait in behind if wait.why == "p2p"]
    if not transfers or len(transfers) == len(behind):
        return behind
    latest = scene.latest(rank)
    passed = [wait for wait in transfers if latest and scene.left_out(rank, *latest, wait)]
    return passed or [wait for wait in behind if wait.why != "p2p"]


def _blame(scene: Scene, rank: int, behind: Sequence[Wait], weight: float) -> Blame:
    behind = _telling(scene, rank, behind)
    # The wait that began first is nearest to where the rank stands: the others came of it.
    first = min(behind, key=lambda w: (w.since_ns or float("inf"), w.group, w.sequence))
    same = sorted({w.rank for w in behind if (w.group, w.why) == (first.group, first.why)})
    who = f"{ranks_text(same)} {'wait' if len(same) > 1 else 'waits'}"
    title = scene.title(first.group)
    if rank not in scene.heard:
        reason: Reason = "not-recorded"
        text = f"Nothing was recorded of rank {rank}, and {who} for it in {first.operation}."
    elif first.why == "p2p":
        reason = "not-sent" if first.operation.startswith("receive") else "not-received"
        verb = "send to" if reason == "not-sent" else "receive from"
        text = f"Rank {rank} did not {verb} rank {first.rank}, which waits for it ({title})."
    else:
        reason = "not-arrived"
        text = (
            f"Rank {rank} has not come to {first.operation}, number {first.sequence} of the "
            f"{title}, in which {who} for it."
        )
    return Blame(rank, weight, reason, text, first.group, first.sequence)
