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
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor.hang.verdict import Item

_UNRECORDED = ("monitored_barrier",)


def propose(case: Case) -> Iterator[Candidate]:
    """Pairs, roots, barriers, and the operations of ranks without a recording."""
    yield from _unpaired(case)
    if not case.suspects:
        yield from _roots(case.view)
        yield from _operations(case.view)
    if all_in_calls(case):
        yield from _not_come(case.view)


def _unpaired(case: Case) -> Iterator[Candidate]:
    """Yield ranks in send or recv whose partner is in another call."""
    view = case.view
    for proc in view.by_rank.values():
        if proc.cannot_run or proc.place.call != "p2p" or case.waits_for_work(proc):
            continue
        rank = partner_of(view, proc)
        peer = view.by_rank.get(rank) if rank is not None else None
        if peer is None and (case.suspects or view.elsewhere):
            continue  # a rank on another host may be the partner
        if peer is None or (peer.waits and not _answers(view, peer, proc)):
            partner = f" with rank {peer.rank}" if peer is not None else ""
            where = f", which is in {peer.place.operation}" if peer is not None else ""
            mistake = Candidate(
                cause="p2p-unmatched",
                culprits=ranks_of(proc),
                reason=f"waits in {proc.place.operation}{partner}{where}",
                evidence=(still_item(proc),),
                sink=Sink.RING,
            )
            yield deadlock(view, mistake)


def _answers(view: JobView, peer: Process, proc: Process) -> bool:
    """Whether one of the two sends to the other what that receives."""
    pair = peer.place.call == "p2p" and partner_of(view, peer) == proc.rank
    return pair and _receives(peer) != _receives(proc)


def _receives(proc: Process) -> bool:
    return "recv" in proc.place.operation


def _roots(view: JobView) -> Iterator[Candidate]:
    """Ranks that wait in one collective, each for another source or target."""
    calls: dict[tuple[str, int], dict[int, int]] = {}
    for wait in view.matching.waits:
        proc = view.by_rank.get(wait.rank)
        root = partner_of(view, proc) if proc is not None and wait.why == "joined" else None
        if root is not None:
            calls.setdefault((wait.group, wait.sequence), {})[wait.rank] = root
    for roots in calls.values():
        if len(set(roots.values())) > 1:
            yield _root_mismatch(view, roots)


def _root_mismatch(view: JobView, roots: dict[int, int]) -> Candidate:
    wrong = _with_wrong_root(roots)
    first = view.by_rank[wrong[0]]
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
    return deadlock(view, mistake)


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


def _not_come(view: JobView) -> Iterator[Candidate]:
    """Yield the few ranks that did not reach a barrier or group creation that most are in."""
    ranks = view.by_rank.values()
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
        culprits=tuple(sorted(rank for proc in few for rank in ranks_of(proc))),
        reason=f"is in {own}, and did not reach {operation}{f' ({where})' if where else ''}",
        evidence=tuple(still_item(proc) for proc in (*few[:2], example)),
        sink=Sink.RING,
    )
    yield deadlock(view, mistake)


def _is_unrecorded(proc: Process) -> bool:
    return proc.place.call == "store" or proc.place.operation in _UNRECORDED


def _operations(view: JobView) -> Iterator[Candidate]:
    """Yield ranks that are in another operation than most."""
    sides: dict[str, list[Process]] = {}
    for proc in view.by_rank.values():
        recorded = proc.rank in view.matching.heard
        if not recorded and proc.place.call == "collective" and not proc.cannot_run:
            sides.setdefault(proc.place.operation, []).append(proc)
    if len(sides) < 2:
        return
    largest = max(len(side) for side in sides.values())
    few = [proc for side in sides.values() if len(side) < largest for proc in side]
    odd = few or [proc for side in sides.values() for proc in side]
    usual = next(op for op, side in sorted(sides.items()) if len(side) == largest)
    mistake = Candidate(
        cause="collective-mismatch",
        culprits=tuple(sorted(rank for proc in odd for rank in ranks_of(proc))),
        reason=f"is in {odd[0].place.operation}, the others in {usual}",
        evidence=tuple(map(still_item, odd[:3])),
        sink=Sink.COUNTERS,
    )
    # No stack tells the group: it may be one with ranks of other hosts, or with an engine.
    senders = [proc for proc in odd if _may_be_with_engine(proc)]
    candidate = deadlock(view, mistake)
    if any(proc.activity.is_active for proc in senders):
        candidate = replace(candidate, liveness="computing")
    elif view.elsewhere or senders:
        candidate = replace(candidate, liveness="unseen")
    yield candidate


def _may_be_with_engine(proc: Process) -> bool:
    """Whether a rollout engine may be in its collective, to take new weights from it while the
    other ranks wait for that.
    """
    syncs = proc.phase == "sync" or "weight-sync" in proc.place.purposes
    return syncs or proc.activity.progresses
