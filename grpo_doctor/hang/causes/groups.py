"""Ranks that all wait in communication calls which do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.habits import strayed
from grpo_doctor.hang.causes.network import silence
from grpo_doctor.hang.causes.wording import at, stack_item, still_item
from grpo_doctor.hang.model.matching import Blame, Cycle
from grpo_doctor.hang.model.matching.ruling import strongest
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text

_MISMATCH = ("other-op", "other-size", "other-type", "extra")
_SKIPPED = ("skipped", "fewer-batches")
_UNPAIRED = ("not-sent", "not-received")
_FIXES = {
    "collective-mismatch": (
        "Make every rank call the same collective with the same sizes in the same order; a call "
        "under `if rank == 0` or one that depends on a rank's own data is the usual reason."
    ),
    "collective-skipped": (
        "Make the number of collectives independent of a rank's own data: drop the last uneven "
        "batch, and move collectives out of branches that only some ranks take."
    ),
    "group-order-cycle": (
        "Use the process groups in one order on all ranks, or finish the collective of the first "
        "group (wait for it) before the other group's begins."
    ),
    "p2p-unmatched": "Give every recv a send of the same pair and tag, in the same order.",
    "weight-sync-blocked": (
        "Finish the trainer's own gather before the transfer to the rollout engine begins, on all "
        "ranks in the same order."
    ),
}


def propose(case: Case) -> Iterator[Candidate]:
    """Mismatched, skipped and unpaired calls, cycles over groups, and silence."""
    cycle = _cycle(case.scene)
    if cycle is not None:
        yield cycle
    yield from _blamed(case)
    if cycle is None and not case.suspects:
        yield from _by_stacks(case.scene)
        yield from silence(case.scene)


@dataclass(frozen=True, slots=True)
class Mistake:
    """What some ranks did that does not fit what the others did. `reason` follows their names."""

    cause: str
    culprits: tuple[int, ...]
    reason: str


def deadlock(
    scene: Scene, mistake: Mistake, items: list[Item], sink: Sink = Sink.ORDER
) -> Candidate:
    """A cause among ranks that all wait in calls to each other; nothing but a restart ends it."""
    actors = [scene.by_rank[rank] for rank in mistake.culprits if rank in scene.by_rank]
    phases = [actor.phase for actor in actors if actor.phase]
    return Candidate(
        cause=mistake.cause,
        culprits=mistake.culprits,
        reason=mistake.reason,
        evidence=(*items, *(stack_item(actor) for actor in actors[:2])),
        sink=sink,
        liveness="never-wakes",
        phase=phases[0] if phases else None,
        still_s=max((actor.motion.still_s or 0.0 for actor in actors), default=None),
        fixes=(Fix(_FIXES[mistake.cause]),),
        confirm=("TORCH_DISTRIBUTED_DEBUG=DETAIL  # the next run raises at this collective",),
    )


def _blamed(case: Case) -> Iterator[Candidate]:
    scene = case.scene
    by_cause: dict[str, list[Blame]] = {}
    for one in scene.matching.blame:
        if _may_still_come(case, one):
            continue
        if one.reason in _MISMATCH:
            by_cause.setdefault("collective-mismatch", []).append(one)
        elif one.reason in _SKIPPED:
            by_cause.setdefault("collective-skipped", []).append(one)
        elif one.reason in _UNPAIRED:
            by_cause.setdefault("p2p-unmatched", []).append(one)
    for cause, blames in by_cause.items():
        chosen = sorted(strongest(blames), key=lambda b: b.rank)
        items = [Item("flight recorder", one.rank, one.text) for one in chosen]
        culprits = tuple(one.rank for one in chosen)
        if any(_is_held(scene, rank) for rank in culprits):
            continue
        reason = _reason_of(scene, cause, chosen)
        yield deadlock(scene, Mistake(cause, culprits, reason), items)


def _may_still_come(case: Case, blame: Blame) -> bool:
    """Whether all that it is blamed for is that others are late, or that it is late itself: one is
    always the first in a call. Whoever is in no call has a cause of its own.
    """
    late = {one.rank for one in case.suspects}
    if blame.reason in _UNPAIRED:
        return blame.rank in late or blame.rank in case.scene.elsewhere
    if blame.reason != "extra" or _is_one_ahead(case.scene, blame):
        return False
    waits = [w for w in case.scene.matching.waits if (w.rank, w.group) == (blame.rank, blame.group)]
    return any(rank in late for wait in waits for rank in wait.on)


def _is_one_ahead(scene: Scene, blame: Blame) -> bool:
    """Whether what was called after it shows that the others never made this call."""
    return any(
        (one.kind, one.rank, one.group) == ("extra", blame.rank, blame.group)
        for one in scene.matching.shifts
    )


def _reason_of(scene: Scene, cause: str, blames: list[Blame]) -> str:
    first = blames[0]
    standing = scene.matching.standing(first.group)
    camps = standing.camps if standing is not None else ()
    called = {rank: camp.signature.text() for camp in camps for rank in camp.ranks}
    own = called.get(first.rank, "another operation")
    others = next((camp.signature.text() for camp in camps if first.rank not in camp.ranks), "")
    actor = scene.by_rank.get(first.rank)
    place = at(actor.place.user) if actor is not None else ""
    where = f" at {place}" if place else ""
    if cause == "collective-mismatch":
        sides = {called[one.rank]: one.rank for one in reversed(blames) if one.rank in called}
        if len(sides) > 1:
            each = ", ".join(f"rank {rank} calls {text}" for text, rank in reversed(sides.items()))
            return f"does not agree on the call{where}: {each}"
        return f"calls {own}{where} where the others call {others or 'another operation'}"
    if cause == "collective-skipped":
        if first.rank in called and others and own != others:
            return (
                f"calls {own}{where} where the others call {others}: it left that one out, or "
                "calls the two in another order"
            )
        stands = f", and is{where}" if where else ""
        return f"left out a collective that the others call{stands}"
    return "has no partner for its send or receive"


def _cycle(scene: Scene) -> Candidate | None:
    """A ring of waits over two process groups or more."""
    rings = [one for one in scene.matching.cycles if len(one.groups) > 1]
    rings = [one for one in rings if not any(_is_held(scene, rank) for rank in one.ranks)]
    if not rings:
        return None
    ring = min(rings, key=lambda one: (len(one.ranks), one.ranks))
    blamed = _blamed_in_rings(scene, rings)
    culprits = tuple(sorted(strayed(scene.recordings, blamed) or blamed))
    items = [
        Item(
            "flight recorder",
            wait.rank,
            f"is in {wait.operation} of group {wait.group} and needs {ranks_text(wait.on)}"
            f"{f' ({wait.site})' if wait.site else ''}",
        )
        for wait in ring.waits
    ]
    sites = [
        f"{wait.operation} at {at(scene.by_rank[wait.rank].place.user)}"
        for wait in ring.waits[:2]
        if wait.rank in scene.by_rank
    ]
    against = " against ".join(sites)
    if _is_ahead(scene, culprits):
        reason = f"left out a collective and is ahead of the others: {against}"
        return deadlock(scene, Mistake("collective-skipped", culprits, reason), items, Sink.RING)
    reason = f"is in a ring of waits over {len(ring.groups)} process groups: {against}"
    return deadlock(scene, Mistake("group-order-cycle", culprits, reason), items, Sink.RING)


def _blamed_in_rings(scene: Scene, rings: list[Cycle]) -> list[int]:
    """Who turned the order around; of a ring of which nothing tells that, all of it. What the
    recordings blame a rank of it for otherwise is the reason of the ring.
    """
    inside = {rank for one in rings for wait in one.waits for rank in (wait.rank, *wait.on)}
    blames = [one for one in scene.matching.blame if one.rank in inside]
    blames = [one for one in blames if one.reason == "out-of-order"] or blames
    shortest = min(rings, key=lambda one: (len(one.ranks), one.ranks))
    return [one.rank for one in strongest(blames)] or list(shortest.ranks)


def _is_held(scene: Scene, rank: int) -> bool:
    actor = scene.by_rank.get(rank)
    return actor is not None and actor.held


def _is_ahead(scene: Scene, culprits: tuple[int, ...]) -> bool:
    """Whether a single rank is in another phase than all others: it did not take the groups in
    another order, it did not come to the first one at all.
    """
    if len(culprits) != 1 or len(scene.by_rank) < 3:
        return False
    phases = {
        rank: actor.phase for rank, actor in scene.by_rank.items() if actor.place.communicates
    }
    own = phases.pop(culprits[0], None)
    others = set(phases.values())
    return own is not None and bool(others) and None not in others and own not in others


def _by_stacks(scene: Scene) -> Iterator[Candidate]:
    """Without recordings: ranks that stand in another operation than most."""
    told = set(scene.matching.heard)
    camps: dict[str, list[Actor]] = {}
    for actor in scene.by_rank.values():
        if actor.rank not in told and actor.place.call == "collective" and not actor.held:
            camps.setdefault(actor.place.operation, []).append(actor)
    if len(camps) < 2:
        return
    largest = max(len(camp) for camp in camps.values())
    few = [a for camp in camps.values() if len(camp) < largest for a in camp]
    chosen = few or [a for camp in camps.values() for a in camp]
    most = next(op for op, camp in sorted(camps.items()) if len(camp) == largest)
    found = deadlock(
        scene,
        Mistake(
            "collective-mismatch",
            tuple(sorted(a.rank for a in chosen if a.rank is not None)),
            f"stands in {chosen[0].place.operation}, the others in {most}",
        ),
        [still_item(actor) for actor in chosen[:3]],
        Sink.COUNTERS,
    )
    # No stack tells the group: it may be one with ranks of other hosts, or with an engine.
    sends = [one for one in chosen if _may_be_with_engine(one)]
    at_it = any(one.motion.stirs for one in sends)
    if at_it:
        found = replace(found, liveness="computing")
    elif scene.elsewhere or sends:
        found = replace(found, liveness="unseen")
    yield found


def _may_be_with_engine(actor: Actor) -> bool:
    """Whether a rollout engine may be in its collective, to take new weights from it while the
    other ranks wait for that.
    """
    syncs = actor.phase == "sync" or "weight-sync" in actor.place.purposes
    return syncs or actor.motion.progresses
