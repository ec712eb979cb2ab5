"""Calls of ranks that do not fit together and that no recorder has: read off their stacks.

gloo records no sends and receives, no monitored barriers, no members of groups; no recorder has
the root of a collective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink, ranks_of
from grpo_doctor.hang.causes.collectives import all_in_calls, deadlock
from grpo_doctor.hang.causes.description import at_frame, frame_text, place_text, still_item
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor.hang.verdict import Item

_UNRECORDED = ("monitored_barrier",)


def propose(case: Case) -> Iterator[Candidate]:
    """Pairs, roots, barriers, and the operations of ranks without a recording."""
    yield from _unpaired(case)
    if not case.suspects:
        yield from _roots(case.scene)
        yield from _operations(case.scene)
    if all_in_calls(case):
        yield from _not_come(case.scene)


def _unpaired(case: Case) -> Iterator[Candidate]:
    """Yield ranks in send or recv whose partner is in another call."""
    scene = case.scene
    for actor in scene.by_rank.values():
        if actor.held or actor.place.call != "p2p" or case.waits_for_work(actor):
            continue
        rank = partner_of(scene, actor)
        peer = scene.by_rank.get(rank) if rank is not None else None
        if peer is None and (case.suspects or scene.elsewhere):
            continue  # a rank on another host may be the partner
        if peer is None or (peer.waits and not _answers(scene, peer, actor)):
            partner = f" with rank {peer.rank}" if peer is not None else ""
            where = f", which is in {peer.place.operation}" if peer is not None else ""
            mistake = Candidate(
                cause="p2p-unmatched",
                culprits=ranks_of(actor),
                reason=f"waits in {actor.place.operation}{partner}{where}",
                evidence=(still_item(actor),),
                sink=Sink.RING,
            )
            yield deadlock(scene, mistake)


def _answers(scene: Scene, peer: Actor, actor: Actor) -> bool:
    """Whether one of the two sends to the other what that receives."""
    pair = peer.place.call == "p2p" and partner_of(scene, peer) == actor.rank
    return pair and _receives(peer) != _receives(actor)


def _receives(actor: Actor) -> bool:
    return "recv" in actor.place.operation


def _roots(scene: Scene) -> Iterator[Candidate]:
    """Ranks that wait in one collective, each for another source or target."""
    calls: dict[tuple[str, int], dict[int, int]] = {}
    for wait in scene.matching.waits:
        actor = scene.by_rank.get(wait.rank)
        root = partner_of(scene, actor) if actor is not None and wait.why == "joined" else None
        if root is not None:
            calls.setdefault((wait.group, wait.sequence), {})[wait.rank] = root
    for roots in calls.values():
        if len(set(roots.values())) > 1:
            yield _root_mismatch(scene, roots)


def _root_mismatch(scene: Scene, roots: dict[int, int]) -> Candidate:
    wrong = _with_wrong_root(roots)
    first = scene.by_rank[wrong[0]]
    operation = first.place.operation
    calls = (
        Item("stack", rank, f"is in {operation} of rank {root}") for rank, root in roots.items()
    )
    other_roots = sorted(set(roots.values()) - {roots[wrong[0]]})
    mistake = Candidate(
        cause="collective-mismatch",
        culprits=wrong,
        reason=f"calls {operation}{at_frame(first.place.user)} with rank {roots[wrong[0]]} as "
        f"its source or target where others have rank {other_roots[0]}",
        evidence=(*calls, still_item(first)),
        sink=Sink.RING,
    )
    return deadlock(scene, mistake)


def _with_wrong_root(roots: dict[int, int]) -> tuple[int, ...]:
    """Whose root has left the collective, and so was not what it meant; else the fewer; of as
    many, all.
    """
    mistaken = [rank for rank, root in roots.items() if root not in roots]
    if mistaken and len(mistaken) < len(roots):
        return tuple(sorted(mistaken))
    counts = Counter(roots.values())
    highest = max(counts.values())
    fewer = [rank for rank, root in roots.items() if counts[root] < highest]
    return tuple(sorted(fewer or roots))


def _not_come(scene: Scene) -> Iterator[Candidate]:
    """Yield the few ranks that did not reach a barrier or group creation that most are in."""
    ranks = scene.by_rank.values()
    calls = Counter(rank.place.operation for rank in ranks if _is_unrecorded(rank))
    operation, count = calls.most_common(1)[0] if calls else ("", 0)
    few = [rank for rank in ranks if rank.place.operation != operation]
    # On one's way into a group, one is as late as those who wait for it.
    if not few or 2 * count <= len(ranks) or any(_is_unrecorded(rank) for rank in few):
        return
    example = next(rank for rank in ranks if rank not in few)
    where = frame_text(example.place.user)
    own = f"{few[0].place.operation} at {place_text(few[0].place)}"
    mistake = Candidate(
        cause="collective-skipped",
        culprits=tuple(sorted(rank for actor in few for rank in ranks_of(actor))),
        reason=f"is in {own}, and did not reach {operation}{f' ({where})' if where else ''}",
        evidence=tuple(still_item(actor) for actor in (*few[:2], example)),
        sink=Sink.RING,
    )
    yield deadlock(scene, mistake)


def _is_unrecorded(actor: Actor) -> bool:
    return actor.place.call == "store" or actor.place.operation in _UNRECORDED


def _operations(scene: Scene) -> Iterator[Candidate]:
    """Yield ranks that are in another operation than most."""
    camps: dict[str, list[Actor]] = {}
    for actor in scene.by_rank.values():
        recorded = actor.rank in scene.matching.heard
        if not recorded and actor.place.call == "collective" and not actor.held:
            camps.setdefault(actor.place.operation, []).append(actor)
    if len(camps) < 2:
        return
    largest = max(len(camp) for camp in camps.values())
    few = [actor for camp in camps.values() if len(camp) < largest for actor in camp]
    odd = few or [actor for camp in camps.values() for actor in camp]
    usual = next(op for op, camp in sorted(camps.items()) if len(camp) == largest)
    mistake = Candidate(
        cause="collective-mismatch",
        culprits=tuple(sorted(rank for actor in odd for rank in ranks_of(actor))),
        reason=f"is in {odd[0].place.operation}, the others in {usual}",
        evidence=tuple(map(still_item, odd[:3])),
        sink=Sink.COUNTERS,
    )
    # No stack tells the group: it may be one with ranks of other hosts, or with an engine.
    senders = [actor for actor in odd if _may_be_with_engine(actor)]
    candidate = deadlock(scene, mistake)
    if any(actor.motion.stirs for actor in senders):
        candidate = replace(candidate, liveness="computing")
    elif scene.elsewhere or senders:
        candidate = replace(candidate, liveness="unseen")
    yield candidate


def _may_be_with_engine(actor: Actor) -> bool:
    """Whether a rollout engine may be in its collective, to take new weights from it while the
    other ranks wait for that.
    """
    syncs = actor.phase == "sync" or "weight-sync" in actor.place.purposes
    return syncs or actor.motion.progresses
