"""Calls of ranks that do not match, by their recordings and by their stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.catalogue import BY_NAME
from grpo_doctor.hang.causes.candidate import (
    RECORDER,
    Candidate,
    Case,
    Sink,
    at_frame,
    frame_text,
    place_text,
    ranks_of,
    stack_item,
    still_item,
)
from grpo_doctor.hang.dumps import Entry, Recordings
from grpo_doctor.hang.model.matching.model import Blame, strongest
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor.hang.verdict import Fix, Item

CLASSES = {
    **dict.fromkeys(("other-op", "other-size", "other-type", "extra"), "collective-mismatch"),
    **dict.fromkeys(("skipped", "fewer-batches"), "collective-skipped"),
    **dict.fromkeys(("not-sent", "not-received"), "p2p-unmatched"),
}
_LATE = {"not-arrived": "unknown", "not-recorded": "rank-missing"}
INSPECT = "py-spy dump --pid PID  # on the host of the rank named above, if it still runs"


def mismatched_calls(case: Case) -> Iterator[Candidate]:
    """What the recordings blame ranks for, and ranks that called others than the rest."""
    yield from _blamed(case)
    if not case.view.evidence.looks:
        yield from _late(case.view)
    if all_in_calls(case) and not case.view.matching.cycles:
        yield from _another_sequence(case.view)


def _late(view: JobView) -> Iterator[Candidate]:
    """Yield ranks that others wait for, where no process shows what they do instead."""
    for blame in view.matching.blame:
        if blame.reason in _LATE and blame.rank not in view.recordings.unusable:
            unrecorded = blame.reason == "not-recorded"
            yield Candidate(
                cause=_LATE[blame.reason],
                culprits=(blame.rank,),
                reason="has no recording"
                if unrecorded
                else blame.text.partition(" ")[2].partition(" ")[2],
                whole=blame.text,
                evidence=(Item(RECORDER, blame.rank, blame.text),),
                sink=Sink.ORDER,
                liveness="unseen" if unrecorded else "never-wakes",
                still_s=view.wait_history.waited_s,
                confirm=(INSPECT,),
            )


def all_in_calls(case: Case) -> bool:
    """Return whether every rank is in such a call, and here: others may be in the same one."""
    ranks = case.view.by_rank.values()
    elsewhere = case.suspects or case.view.elsewhere or any(rank.cannot_run for rank in ranks)
    return len(ranks) > 1 and not elsewhere


def deadlock(view: JobView, mistake: Candidate) -> Candidate:
    """The same among ranks that all wait in calls to each other: nothing but a restart ends it."""
    procs = [view.by_rank[rank] for rank in mistake.culprits if rank in view.by_rank]
    phases = [proc.phase for proc in procs if proc.phase]
    return replace(
        mistake,
        evidence=(*mistake.evidence, *map(stack_item, procs[:2])),
        liveness="never-wakes",
        phase=phases[0] if phases else None,
        still_s=max((proc.activity.still_s or 0.0 for proc in procs), default=None),
        fixes=(Fix(BY_NAME[mistake.cause].what_to_do),),
        confirm=("TORCH_DISTRIBUTED_DEBUG=DETAIL  # the next run raises at this collective",),
    )


def _blamed(case: Case) -> Iterator[Candidate]:
    by_class: dict[str, list[Blame]] = {}
    for blame in case.view.matching.blame:
        if blame.reason in CLASSES and not _may_still_come(case, blame):
            by_class.setdefault(CLASSES[blame.reason], []).append(blame)
    for cause, blames in by_class.items():
        chosen = sorted(strongest(blames), key=lambda blame: blame.rank)
        mistake = Candidate(
            cause=cause,
            culprits=tuple(blame.rank for blame in chosen),
            reason=_reason_of(case.view, cause, chosen),
            evidence=tuple(Item(RECORDER, blame.rank, blame.text) for blame in chosen),
            sink=Sink.ORDER,
        )
        yield deadlock(case.view, mistake)


def _may_still_come(case: Case, blame: Blame) -> bool:
    """Return whether it is blamed only because others are late, or it is late itself: some rank
    is always the first in a call. A rank that is in no call has a cause of its own.
    """
    late = {suspect.rank for suspect in case.suspects}
    if CLASSES[blame.reason] == "p2p-unmatched":
        return blame.rank in late or blame.rank in case.view.elsewhere
    if blame.reason != "extra" or _is_one_ahead(case.view, blame):
        return False
    waits = [w for w in case.view.matching.waits if (w.rank, w.group) == (blame.rank, blame.group)]
    return any(rank in late for wait in waits for rank in wait.on)


def _is_one_ahead(view: JobView, blame: Blame) -> bool:
    """Return whether what was called after it shows that the others never made this call."""
    return any(
        (shift.kind, shift.rank, shift.group) == ("extra", blame.rank, blame.group)
        for shift in view.matching.shifts
    )


def _reason_of(view: JobView, cause: str, blames: list[Blame]) -> str:
    if cause == "p2p-unmatched":
        return "has no partner for its send or receive"
    first = blames[0]
    status = view.matching.status(first.group)
    sides = status.sides if status is not None else ()
    called = {rank: side.signature.text() for side in sides for rank in side.ranks}
    own = called.get(first.rank, "another operation")
    usual_call = next((side.signature.text() for side in sides if first.rank not in side.ranks), "")
    proc = view.by_rank.get(first.rank)
    where = at_frame(proc.place.user) if proc is not None else ""
    if cause == "collective-mismatch":
        callers = {
            called[blame.rank]: blame.rank for blame in reversed(blames) if blame.rank in called
        }
        if len(callers) > 1:
            each = ", ".join(
                f"rank {rank} calls {text}" for text, rank in reversed(callers.items())
            )
            return f"disagrees about the call{where}: {each}"
        return f"calls {own}{where} where the others call {usual_call or 'another operation'}"
    if first.rank in called and usual_call and own != usual_call:
        return (
            f"calls {own}{where} where the others call {usual_call}: it skipped that one, or "
            "calls the two in another order"
        )
    stands = f", and is now{where}" if where else ""
    return f"skipped a collective that the others call{stands}"


def _another_sequence(view: JobView) -> Iterator[Candidate]:
    """Since the last collective of all, one rank called others than the rest."""
    odd, usual = _novel_sequence(view.recordings, view.by_rank)
    if odd:
        called = " > ".join(usual)
        text = f"since the last collective of all ranks, the others called {called}"
        mistake = Candidate(
            cause="collective-skipped",
            culprits=odd,
            reason=f"did not call {called} as the others did",
            evidence=(Item(RECORDER, None, text),),
            sink=Sink.ORDER,
        )
        yield deadlock(view, mistake)


def _novel_sequence(
    recordings: Recordings, ranks: Iterable[int]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The few ranks that, since the last collective that all have called, called others than the
    rest, and what the rest called. Who called less of the same is merely behind.

    Groups are left aside: each rank may have its own for the same purpose. Empty where the ranks
    are not clearly divided.
    """
    rings = {rank: ring.entries for rank in ranks if (ring := recordings.of(rank)) is not None}
    if len(rings) < 3:
        return (), ()
    shared = set.intersection(*({_key(entry) for entry in entries} for entries in rings.values()))
    called = {rank: _since(entries, shared) for rank, entries in rings.items()}

    def followers(usual: tuple[str, ...]) -> int:
        return sum(usual[: len(calls)] == calls for calls in called.values())

    usual = max(called.values(), key=lambda calls: (len(calls), followers(calls), calls))
    odd = tuple(sorted(rank for rank, calls in called.items() if usual[: len(calls)] != calls))
    return (odd, usual) if odd and 2 * len(odd) < len(called) else ((), ())


def _key(entry: Entry) -> tuple[str, int, str]:
    return entry.group, entry.sequence, entry.op


def _since(entries: Sequence[Entry], shared: set[tuple[str, int, str]]) -> tuple[str, ...]:
    """What a rank called after the last that all have called."""
    last = max((i for i, entry in enumerate(entries) if _key(entry) in shared), default=-1)
    return tuple(entry.op for entry in entries[last + 1 :])


_UNRECORDED = ("monitored_barrier",)


def unrecorded_calls(case: Case) -> Iterator[Candidate]:
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
    """Return whether one of the two sends to the other what that receives."""
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
    """Return whether a rollout engine may be in its collective, to take new weights from it while
    the other ranks wait for that.
    """
    syncs = proc.phase == "sync" or "weight-sync" in proc.place.purposes
    return syncs or proc.activity.progresses
