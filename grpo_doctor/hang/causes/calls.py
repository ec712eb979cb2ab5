"""Calls of ranks that do not match, by their recordings and by their stacks; and process groups
that ranks use, or create, in different orders.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_doctor.hang.catalogue import BY_NAME, advice
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
from grpo_doctor.hang.model.matching.match import novel_sequence
from grpo_doctor.hang.model.matching.model import Blame, Wait, strongest
from grpo_doctor.hang.model.nodes import Node, RankNode
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text

CLASSES = {
    **dict.fromkeys(("other-op", "other-size", "other-type", "extra"), "collective-mismatch"),
    **dict.fromkeys(("skipped", "fewer-batches"), "collective-skipped"),
    **dict.fromkeys(("not-sent", "not-received"), "p2p-unmatched"),
}
_LATE = {"not-arrived": "unknown", "not-recorded": "rank-missing"}
_MOST_ITEMS = 8
_MEMBERS = ("global_ranks_in_group", "ranks")
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


def deadlock(  # noqa: PLR0913 - what a mistake is made of
    view: JobView,
    cause: str,
    culprits: tuple[int, ...],
    reason: str,
    evidence: Iterable[Item],
    sink: Sink,
) -> Candidate:
    """A mistake among ranks that all wait in calls to each other: nothing but a restart ends it."""
    procs = [view.by_rank[rank] for rank in culprits if rank in view.by_rank]
    phases = [proc.phase for proc in procs if proc.phase]
    return Candidate(
        cause=cause,
        culprits=culprits,
        reason=reason,
        evidence=(*evidence, *map(stack_item, procs[:2])),
        sink=sink,
        liveness="never-wakes",
        phase=phases[0] if phases else None,
        still_s=max((proc.activity.still_s or 0.0 for proc in procs), default=None),
        fixes=(Fix(BY_NAME[cause].what_to_do),),
        confirm=("TORCH_DISTRIBUTED_DEBUG=DETAIL  # the next run raises at this collective",),
    )


def _blamed(case: Case) -> Iterator[Candidate]:
    by_class: dict[str, list[Blame]] = {}
    for blame in case.view.matching.blame:
        if blame.reason in CLASSES and not _may_still_come(case, blame):
            by_class.setdefault(CLASSES[blame.reason], []).append(blame)
    for cause, blames in by_class.items():
        chosen = sorted(strongest(blames), key=lambda blame: blame.rank)
        culprits = tuple(blame.rank for blame in chosen)
        items = [Item(RECORDER, blame.rank, blame.text) for blame in chosen]
        reason = _reason_of(case.view, cause, chosen)
        yield deadlock(case.view, cause, culprits, reason, items, Sink.ORDER)


def _may_still_come(case: Case, blame: Blame) -> bool:
    """Return whether it is blamed only because others are late, or it is late itself: some rank
    is always the first in a call. A rank that is in no call has a cause of its own.
    """
    late = {suspect.rank for suspect in case.suspects}
    if CLASSES[blame.reason] == "p2p-unmatched":
        return blame.rank in late or blame.rank in case.view.elsewhere
    one_ahead = any(  # what was called after it shows that the others never made this call
        (shift.kind, shift.rank, shift.group) == ("extra", blame.rank, blame.group)
        for shift in case.view.matching.shifts
    )
    if blame.reason != "extra" or one_ahead:
        return False
    waits = [w for w in case.view.matching.waits if (w.rank, w.group) == (blame.rank, blame.group)]
    return any(rank in late for wait in waits for rank in wait.on)


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
    odd, usual = novel_sequence(view.recordings, view.by_rank)
    if odd:
        called = " > ".join(usual)
        text = f"since the last collective of all ranks, the others called {called}"
        items = [Item(RECORDER, None, text)]
        reason = f"did not call {called} as the others did"
        yield deadlock(view, "collective-skipped", odd, reason, items, Sink.ORDER)


def unrecorded_calls(case: Case) -> Iterator[Candidate]:
    """Pairs, roots, barriers, and the operations of ranks without a recording."""
    yield from _unpaired(case)
    if not case.suspects:
        yield from _roots(case.view)
        yield from _operations(case.view)
    if all_in_calls(case):
        yield from _not_come(case.view)


def _unpaired(case: Case) -> Iterator[Candidate]:
    view = case.view
    may_be_busy: set[Node] = {suspect.node for suspect in case.suspects}
    may_be_busy |= {RankNode(rank) for rank in view.elsewhere}
    unpaired: list[tuple[bool, Candidate]] = []
    for proc in view.by_rank.values():
        # A chain of waits, as in a pipeline, may end at a rank that is busy.
        for_work = not may_be_busy.isdisjoint(case.graph.reach.get(proc.node, ()))
        if proc.cannot_run or proc.place.call != "p2p" or for_work:
            continue
        rank = partner_of(view, proc)
        peer = view.by_rank.get(rank) if rank is not None else None
        if peer is None and (case.suspects or view.elsewhere):
            continue  # a rank on another host may be the partner
        if peer is None or (peer.waits and not _answers(view, peer, proc)):
            partner = f" with rank {peer.rank}" if peer is not None else ""
            where = f", which is in {peer.place.operation}" if peer is not None else ""
            reason = f"waits in {proc.place.operation}{partner}{where}"
            items = [still_item(proc)]
            label = deadlock(view, "p2p-unmatched", ranks_of(proc), reason, items, Sink.RING)
            unpaired.append((peer is not None and _is_in_another_pair(view, peer, proc), label))
    # Who waits for one that waits for a third is its victim; unless all are, in a ring.
    in_ring = all(behind_another for behind_another, _ in unpaired)
    yield from (label for behind_another, label in unpaired if in_ring or not behind_another)


def _is_in_another_pair(view: JobView, proc: Process, other: Process) -> bool:
    return proc.place.call == "p2p" and partner_of(view, proc) not in (None, other.rank)


def _answers(view: JobView, peer: Process, proc: Process) -> bool:
    """Return whether one of the two sends to the other what that receives."""
    pair = peer.place.call == "p2p" and partner_of(view, peer) == proc.rank
    return pair and ("recv" in peer.place.operation) != ("recv" in proc.place.operation)


def _roots(view: JobView) -> Iterator[Candidate]:
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
    reason = (
        f"calls {operation}{at_frame(first.place.user)} with rank {roots[wrong[0]]} as "
        f"its source or target where others have rank {other_roots[0]}"
    )
    items = (*calls, still_item(first))
    return deadlock(view, "collective-mismatch", wrong, reason, items, Sink.RING)


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
    culprits = tuple(sorted(rank for proc in few for rank in ranks_of(proc)))
    reason = f"is in {own}, and did not reach {operation}{f' ({where})' if where else ''}"
    items = map(still_item, (*few[:2], example))
    yield deadlock(view, "collective-skipped", culprits, reason, items, Sink.RING)


def _is_unrecorded(proc: Process) -> bool:
    return proc.place.call == "store" or proc.place.operation == "monitored_barrier"


def _operations(view: JobView) -> Iterator[Candidate]:
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
    culprits = tuple(sorted(rank for proc in odd for rank in ranks_of(proc)))
    reason = f"is in {odd[0].place.operation}, the others in {usual}"
    items = map(still_item, odd[:3])
    candidate = deadlock(view, "collective-mismatch", culprits, reason, items, Sink.COUNTERS)
    # No stack tells the group: it may be one with ranks of other hosts, or with a rollout engine,
    # which takes new weights from the rank while the other ranks wait for that.
    senders = [
        proc
        for proc in odd
        if proc.phase == "sync" or "weight-sync" in proc.place.purposes or proc.activity.progresses
    ]
    if any(proc.activity.is_active for proc in senders):
        candidate = replace(candidate, liveness="computing")
    elif view.elsewhere or senders:
        candidate = replace(candidate, liveness="unseen")
    yield candidate


def group_order(case: Case) -> Iterator[Candidate]:
    """Rings over groups, ranks of which each waits in a group of its own, and groups in making."""
    view = case.view
    ring = _ring(view)
    if ring is not None:
        yield ring
    yield from _new_groups(view)
    if all_in_calls(case) and not view.matching.cycles:
        yield from _each_in_its_own(view)


def _ring(view: JobView) -> Candidate | None:
    rings = [ring for ring in view.matching.cycles if len({wait.group for wait in ring}) > 1]
    if not rings:
        return None
    ring = min(rings, key=lambda ring: (len(ring), [wait.rank for wait in ring]))
    groups = {wait.group for wait in ring}
    culprits = tuple(sorted(_blamed_in_rings(view, rings) or [wait.rank for wait in ring]))
    explained = any(b.rank in culprits and b.reason in CLASSES for b in view.matching.blame)
    if explained and not view.by_rank:
        return None  # the ring follows from another mistake of a rank in it
    sites = []
    for wait in ring[:2]:
        proc = view.by_rank.get(wait.rank)
        site = wait.site if proc is None else frame_text(proc.place.user)
        sites += [f"{wait.operation} in {_title(view, wait.group)} at {site}"] if site else []
    against = " against ".join(sites)
    items = []
    for wait in ring:
        at = f" ({wait.site})" if wait.site else ""
        needs = f"{_title(view, wait.group)} and needs {ranks_text(wait.on)}{at}"
        items.append(Item(RECORDER, wait.rank, f"is in {wait.operation} of {needs}"))
    if _is_ahead(view, culprits):
        cause, does = "collective-skipped", "skipped a collective and is ahead of the others"
    else:
        cause, does = (
            "group-order-cycle",
            f"is in a cycle of waits over {len(groups)} process groups",
        )
    return deadlock(view, cause, culprits, f"{does}: {against}", items, Sink.RING)


def _title(view: JobView, key: str) -> str:
    status = view.matching.status(key)
    return f"group {key}" if status is None else status.group.title()


def _blamed_in_rings(view: JobView, rings: Sequence[Sequence[Wait]]) -> list[int]:
    """Return the ranks that reversed the order; empty where nothing shows that. Any other blame of
    a rank in a ring is the reason of the ring.
    """
    inside = {rank for ring in rings for wait in ring for rank in (wait.rank, *wait.on)}
    blames = [blame for blame in view.matching.blame if blame.rank in inside]
    blames = [blame for blame in blames if blame.reason == "out-of-order"] or blames
    return [blame.rank for blame in strongest(blames)]


def _is_ahead(view: JobView, culprits: tuple[int, ...]) -> bool:
    """Return whether a single rank is in another phase than all others: it did not take the groups
    in another order, it skipped the first one.
    """
    if len(culprits) != 1 or len(view.by_rank) < 3:
        return False
    phases = {rank: proc.phase for rank, proc in view.by_rank.items() if proc.place.communicates}
    own = phases.pop(culprits[0], None)
    usual = set(phases.values())
    return own is not None and bool(usual) and None not in usual and own not in usual


def _each_in_its_own(view: JobView) -> Iterator[Candidate]:
    """No two ranks wait in the same group: each waits for one that waits in another."""
    alone = {wait.rank: wait for wait in view.matching.waits if wait.why == "missing"}
    groups = Counter(wait.group for wait in alone.values())
    if set(alone) != set(view.by_rank) or len(groups) != len(alone):
        return
    ranks = tuple(sorted(alone))
    first = view.by_rank[ranks[0]]
    where = place_text(first.place)
    reason = f"waits alone in {first.place.operation} at {where}"
    whole = (
        f"{ranks_text(ranks)} each wait alone in a different process group at {where}: "
        "they use their groups in different orders"
    )
    waits = [alone[rank] for rank in ranks[:_MOST_ITEMS]]
    texts = (f"waits alone in {w.operation} of {_title(view, w.group)}" for w in waits)
    items = [Item(RECORDER, wait.rank, text) for wait, text in zip(waits, texts)]
    ring = deadlock(view, "group-order-cycle", ranks, reason, items, Sink.ORDER)
    yield replace(ring, whole=whole)


@dataclass(frozen=True, slots=True)
class _NewGroup:
    """The group that a rank creates: its name in the store and its members, as text.

    Every rank must call `new_group` for every group in one order, members or not: the calls are
    counted, and the count is the group's name in the store through which its members find each
    other. Source: torch/distributed/distributed_c10d.py, `_process_group_name` (torch 2.1 to 2.13).
    """

    name: str
    members: str

    def contradicts(self, other: _NewGroup) -> bool:
        """Of two ranks that create the same groups in the same order none does."""
        return (self.name == other.name) != (self.members == other.members)

    def is_past(self, other: _NewGroup) -> bool:
        """Whether this one is created after the other; names are numbers, or hashes of members."""
        return self.name.isdecimal() and other.name.isdecimal() and int(self.name) > int(other.name)

    def has(self, rank: int) -> bool:
        """Return whether a rank is one of the members that are shown; a long list is cut off."""
        return str(rank) in re.findall(r"\d+", self.members)


def _new_groups(view: JobView) -> Iterator[Candidate]:
    groups = {
        rank: group
        for rank, proc in view.by_rank.items()
        if not proc.cannot_run and (group := _created_by(view, proc)) is not None
    }
    if not any(group.contradicts(other) for group in groups.values() for other in groups.values()):
        return
    wrong = _in_another_order(groups)
    first, own = view.by_rank[wrong[0]], groups[wrong[0]]
    contrary = [group for group in groups.values() if group.contradicts(own)]
    other = next((group for group in contrary if group.name == own.name), contrary[0])
    created = (
        Item("stack", rank, f"creates group {group.name} of ranks {group.members}")
        for rank, group in groups.items()
    )
    reason = (
        f"creates process groups in another order{at_frame(first.place.user)}: its group "
        f"{own.name} has ranks {own.members}, but another rank creates group {other.name} with "
        f"ranks {other.members}"
    )
    items = (*created, still_item(first))
    ring = deadlock(view, "group-order-cycle", wrong, reason, items, Sink.RING)
    yield replace(ring, fixes=advice("new_group"), confirm=())


def _created_by(view: JobView, proc: Process) -> _NewGroup | None:
    for call in view.evidence.arguments:
        if call.pid == proc.pid and call.values.get("group_name"):
            members = next((call.values[name] for name in _MEMBERS if call.values.get(name)), "")
            if members:
                return _NewGroup(call.values["group_name"], members)
    return None


def _in_another_order(groups: Mapping[int, _NewGroup]) -> tuple[int, ...]:
    """Whom most others contradict, or have left behind in a group of which it thinks they are."""
    against = {
        rank: sum(group.contradicts(other) for other in groups.values())
        + sum(group.has(rank) and other.is_past(group) for rank, other in groups.items())
        for rank, group in groups.items()
    }
    highest = max(against.values())
    return tuple(sorted(rank for rank, count in against.items() if count == highest))
