"""From recordings to a matching: who waits for whom, and whom that points at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from grpo_doctor.hang.dumps import Entry, Recordings
from grpo_doctor.hang.model.matching import groups
from grpo_doctor.hang.model.matching.graph import (
    DIRECTED,
    MatchContext,
    Node,
    Waiting,
    context_of,
    cycles,
    waits,
)
from grpo_doctor.hang.model.matching.groups import gather
from grpo_doctor.hang.model.matching.history import pace, shifts
from grpo_doctor.hang.model.matching.model import (
    STRENGTH,
    Blame,
    Grounds,
    GroupStatus,
    Kind,
    Matching,
    Reason,
    Shift,
    Side,
    Wait,
)
from grpo_doctor.hang.model.matching.queues import JointOp, JointOps
from grpo_doctor.hang.model.matching.suspects import hung, not_met, novel, of_ring, sides_of
from grpo_doctor.hang.wording import ranks_text

FEW = 0.25  # of a group, or fewer: they may have come by mistake


def blame(context: MatchContext) -> tuple[Blame, ...]:
    """One blame per rank, the strongest grounds first.

    Every sink of the waits has its own: a host with nothing left to do, an operation that all have
    joined, or a ring. A rank without a dump is named only where no other rank explains anything.
    """
    blames = list(context.hung)
    blames += _mistaken(context)
    mistaken = {(blamed.rank, blamed.group) for blamed in blames if blamed.reason == "extra"}
    explained: set[str] = set()
    for sink in context.waiting.sinks:
        blames += _of_sink(context, sink, explained, mistaken)
    if all(blamed.grounds == "unrecorded" for blamed in blames):
        blames += _of_heads(context)
    if any(blamed.grounds != "unrecorded" for blamed in blames):
        blames = [blamed for blamed in blames if blamed.grounds != "unrecorded"]
    strongest: dict[int, Blame] = {}
    for candidate in sorted(blames, key=_order):
        strongest.setdefault(candidate.rank, candidate)
    return tuple(sorted(strongest.values(), key=_order))


def _order(blamed: Blame) -> tuple[int, int, str, str, int]:
    return (
        STRENGTH.index(blamed.grounds),
        blamed.rank,
        blamed.reason,
        blamed.group,
        blamed.sequence or 0,
    )


def _of_sink(
    context: MatchContext,
    sink: frozenset[Node],
    explained: set[str],
    mistaken: Collection[tuple[int, str]],
) -> Iterator[Blame]:
    joint_ops = sorted(
        (node for node in sink if isinstance(node, JointOp)), key=lambda m: (m.group, m.number)
    )
    hosts = [node for node in sink if isinstance(node, int)]
    behind = [w for w in context.waits if w.why in DIRECTED and not set(hosts).isdisjoint(w.on)]
    groups = {joint_op.group for joint_op in joint_ops} or {wait.group for wait in behind}
    shifted = [shift for shift in context.shifts if shift.group in groups]
    if shifted:
        yield from _of_shifts((shift for shift in shifted if shift.group not in explained), context)
        explained |= groups
    elif not joint_ops and hosts:
        if unexplained := [w for w in behind if (w.rank, w.group) not in mistaken]:
            yield _of_host(context, hosts[0], unexplained)
    elif joint_ops and (
        wrong := [differing for joint_op in joint_ops for differing in _of_camps(context, joint_op)]
    ):
        yield from wrong
    elif len(sink) > 1:
        yield from of_ring(context, sink)


def _of_shifts(shifts: Iterable[Shift], context: MatchContext) -> Iterator[Blame]:
    for shift in shifts:
        did = "issued" if shift.kind == "extra" else "skipped"
        extra = " that the others did not" if shift.kind == "extra" else " that the others issued"
        also = f" and {shift.count - 1} more" if shift.count > 1 else ""
        where = f" at {shift.site}" if shift.site else ""
        text = (
            f"Rank {shift.rank} {did} {shift.operation}{where}{also}{extra}, as number "
            f"{shift.first} of the {context.title(shift.group)}; everything after it is shifted."
        )
        yield Blame(shift.rank, "shown", shift.kind, text, shift.group, shift.first)


def _of_camps(context: MatchContext, joint_op: JointOp) -> Iterator[Blame]:
    sides, even = sides_of(context, joint_op)
    if len(sides) < 2:
        return
    right = sides[0]
    for side in sides:
        tied = even and len(side.ranks) == len(right.ranks)
        if side is right and not tied:
            continue
        other = right if side is not right else sides[1]
        for rank in side.ranks:
            text = _differs(rank, side, other, joint_op, context)
            grounds: Grounds = "either" if tied else "outnumbered"
            reason = _difference(side, other)
            yield Blame(rank, grounds, reason, text, joint_op.group, joint_op.number)


def _of_heads(context: MatchContext) -> Iterator[Blame]:
    """Where the waits end at ranks of which nothing is known: an operation to which ranks came with
    different calls never ends, whichever other ranks are missing.
    """
    joint_ops = {
        joint_op
        for unit in context.waiting.heads
        for joint_op in context.waiting.joint_ops.of(unit)
    }
    for joint_op in sorted(joint_ops, key=lambda met: (met.group, met.number)):
        yield from _of_camps(context, joint_op)


def _difference(side: Side, other: Side) -> Reason:
    if side.signature.op != other.signature.op:
        return "other-op"
    same_sizes = side.signature.sizes == other.signature.sizes
    same_types = side.signature.dtypes == other.signature.dtypes
    return "other-type" if same_sizes and not same_types else "other-size"


def _differs(rank: int, side: Side, other: Side, joint_op: JointOp, context: MatchContext) -> str:
    mine, theirs = side.signature, other.signature
    own_site = f" at {mine.site}" if mine.site else ""
    their_site = f" at {theirs.site}" if theirs.site else ""
    text = (
        f"Rank {rank} called {mine.text()}{own_site} as number {joint_op.number} of the "
        f"{context.title(joint_op.group)}, where {ranks_text(other.ranks)} called "
        f"{theirs.text()}{their_site}"
    )
    before = context.pasts[joint_op.group].expected(joint_op.number)
    usual = "" if before is None else context.signatures.text(context.signatures.key(before))
    return f"{text}, as in earlier rounds." if usual == theirs.text() != mine.text() else f"{text}."


def _mistaken(context: MatchContext) -> Iterator[Blame]:
    """Yield ranks almost alone in a collective: a call under `if rank == 0:` looks like this, and
    so do ranks that are a round ahead after one. Members without a recording are unknown.
    """
    came: dict[tuple[str, int], list[Wait]] = defaultdict(list)
    for wait in context.waits:
        if wait.why == "missing":
            came[wait.group, wait.sequence].append(wait)
    for (key, sequence), waiting in sorted(came.items()):
        members = context.gathered[key].group.members
        recorded = context.heard.intersection(members)
        if len(recorded) < 4 or len(waiting) > FEW * len(recorded):
            continue
        if any(len(wait.on) + len(waiting) < len(members) for wait in waiting):
            continue  # some are already through, or have called it
        before = {
            wait.rank
            for wait in context.waits
            if (wait.group, wait.why) == (key, "joined") and wait.sequence < sequence
        }
        if all(before.issuperset(wait.on) for wait in waiting):
            continue  # the root of a broadcast, for one, is through it before its receivers are
        usual = context.pasts[key].expected(sequence)
        for wait in waiting:
            mine = context.pasts[key].calls.get(sequence, {}).get(wait.rank)
            if mine is None:
                continue
            ahead = usual == mine
            text = (
                f"Rank {wait.rank} called "
                f"{wait.operation}{f' at {wait.site}' if wait.site else ''} of the "
                f"{context.title(key)}, which {ranks_text(recorded.intersection(wait.on))} did "
                f"not{': it is one ahead' if ahead else ', unlike in earlier rounds'}."
            )
            grounds: Grounds = "unlike-before" if novel(context, wait) else "either"
            yield Blame(wait.rank, grounds, "extra", text, key, sequence)


def _of_host(context: MatchContext, rank: int, behind: Sequence[Wait]) -> Blame:
    # Who has stopped before a collective has not come to the sends after it either.
    behind = [wait for wait in behind if wait.why != "p2p"] or behind
    # The wait that began first is nearest to where the rank stands: the others came of it.
    first = min(behind, key=lambda w: (w.since_ns or float("inf"), w.group, w.sequence))
    same = sorted({w.rank for w in behind if (w.group, w.why) == (first.group, first.why)})
    waiters = f"{ranks_text(same)} {'wait' if len(same) > 1 else 'waits'}"
    title, number = context.title(first.group), first.sequence
    if rank not in context.heard:
        text = f"There is no recording of rank {rank}, and {waiters} for it in {first.operation}."
        return Blame(rank, "unrecorded", "not-recorded", text, first.group, number)
    if first.why == "p2p":
        return not_met(context, rank, "awaited", first)
    text = (
        f"Rank {rank} has not reached {first.operation}, number {number} of the {title}, in which "
        f"{waiters} for it."
    )
    return Blame(rank, "awaited", "not-arrived", text, first.group, number)


def match(recordings: Recordings, world_size: int | None = None) -> Matching:
    """How far every rank is in every group, who waits for whom, and whom that points at.

    `world_size` None: as many as the recordings name.
    """
    ranked = [recording for recording in recordings.ranks if recording.rank is not None]
    world = groups.world(recordings, world_size)
    gathered = {merged.group.key: merged for merged in gather(recordings, world)}
    context = context_of(ranked, gathered)
    context.hung = tuple(hung(context))
    stuck = frozenset(blamed.rank for blamed in context.hung)
    context.waiting = Waiting(JointOps(gathered, context.queues), context.queues, stuck)
    context.shifts = tuple(
        shift
        for key in dict.fromkeys(unit.group for unit in context.waiting.heads)
        if key in gathered
        for shift in shifts(gathered[key], context.pasts[key], context.signatures)
    )
    heads: dict[str, set[int]] = defaultdict(set)
    for unit in context.waiting.heads:
        if not unit.transfer:
            heads[unit.group].add(unit.number)
    context.waits = waits(
        context.waiting, context.signatures, lambda joint_op: sides_of(context, joint_op)[0]
    )
    return Matching(
        statuses=tuple(_standing(context, key, frozenset(heads[key])) for key in gathered),
        shifts=context.shifts,
        waits=context.waits,
        cycles=cycles(context.waits, context.waiting.sinks),
        paces=tuple(
            pace(recording, recording.rank, context.signatures)
            for recording in recordings.ranks
            if recording.rank is not None
        ),
        blame=blame(context),
        heard=tuple(sorted(context.heard)),
        world_size=world,
        idle=frozenset(
            queue.rank for queue in context.queues.values() if queue.recorded and not queue.units
        ),
    )


def _standing(context: MatchContext, key: str, heads: frozenset[int]) -> GroupStatus:
    """Return the oldest collective of the group that a rank may be running and that is not done
    everywhere, and who is where with it; where none is, of those that are merely behind others.

    `heads` are the numbers of its collectives at the head of a stream.
    """
    tracks = context.gathered[key].tracks
    fronts = {track.front for track in tracks.values() if track.front is not None}
    statuses = [_at(context, key, front) for front in sorted(heads or fronts)]
    telling = [status for status in statuses if status.kind in {"missing", "mismatch"}]
    fine = GroupStatus(context.gathered[key].group, "fine")
    return next(iter(telling or statuses), fine)


def _at(context: MatchContext, key: str, front: int) -> GroupStatus:
    group, tracks = context.gathered[key].group, context.gathered[key].tracks
    joint_op = context.waiting.joint_ops.collective(key, front)
    absent = {*joint_op.missing, *joint_op.unseen}
    sides, _ = sides_of(context, joint_op)
    kind: Kind = "unknown" if joint_op.unseen else "all-joined-none-done"
    if len(sides) > 1:
        kind = "mismatch"
    elif joint_op.missing or joint_op.open_ended:
        kind = "missing"
    elif joint_op.through:
        kind = "partial"
    return GroupStatus(
        group=group,
        kind=kind,
        operation=sides[0].signature.text() if sides else "a collective",
        arrived=tuple(rank for rank in group.members if rank not in absent),
        missing=tuple(joint_op.missing),
        sides=sides,
        timed_out=any(track.timed_out for track in tracks.values()),
    )


def novel_sequence(
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
    called = {}  # after the last that all have called
    for rank, entries in rings.items():
        last = max((i for i, entry in enumerate(entries) if _key(entry) in shared), default=-1)
        called[rank] = tuple(entry.op for entry in entries[last + 1 :])

    def followers(usual: tuple[str, ...]) -> int:
        return sum(usual[: len(calls)] == calls for calls in called.values())

    usual = max(called.values(), key=lambda calls: (len(calls), followers(calls), calls))
    odd = tuple(sorted(rank for rank, calls in called.items() if usual[: len(calls)] != calls))
    return (odd, usual) if odd and 2 * len(odd) < len(called) else ((), ())


def _key(entry: Entry) -> tuple[str, int, str]:
    return entry.group, entry.sequence, entry.op
