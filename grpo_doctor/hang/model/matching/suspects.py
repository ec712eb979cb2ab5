"""Ranks that differ: in what they called, in what their GPU ends, in their order of calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from grpo_doctor.hang.model.matching.graph import MatchContext, Node, waits_of
from grpo_doctor.hang.model.matching.groups import Track, balanced, continuation, is_root
from grpo_doctor.hang.model.matching.model import Blame, Grounds, Reason, Side, Wait
from grpo_doctor.hang.model.matching.queues import JointOp, QueuedOp, on_device
from grpo_doctor.hang.wording import ranks_text, verb


def sides_of(context: MatchContext, joint_op: JointOp) -> tuple[tuple[Side, ...], bool]:
    """Who called what in an operation, the side taken as right first, and whether which side is
    right is open.
    """
    if joint_op.ends is not None:
        return (), False
    if joint_op not in context.sides:
        sides, even = _sides(context, joint_op.group, joint_op.number)
        context.sides[joint_op] = _by_step(context, joint_op, sides) if even else (sides, even)
    return context.sides[joint_op]


def _by_step(
    context: MatchContext, joint_op: JointOp, sides: tuple[Side, ...]
) -> tuple[tuple[Side, ...], bool]:
    """Return the camps, those in step as one, which is right; unchanged if steps show nothing."""
    ranks = {rank for side in sides for rank in side.ranks}
    right = {rank for rank in ranks if not context.is_off(rank, joint_op.group)}
    if not right or right == ranks:
        return sides, True
    wrong = [side for side in sides if right.isdisjoint(side.ranks)]
    first = next(side for side in sides if not right.isdisjoint(side.ranks))
    in_step = ranks.difference(*(side.ranks for side in wrong))
    return (Side(first.signature, tuple(sorted(in_step))), *wrong), not wrong


def _sides(context: MatchContext, group: str, front: int) -> tuple[tuple[Side, ...], bool]:
    """Those who came, by what they called: the one taken as right first, and whether that choice
    is arbitrary. More ranks are right; of equally many, those who do what groups of the same kind
    do there, or what earlier rounds did.
    """
    gathered, past, signatures = context.gathered[group], context.pasts[group], context.signatures
    tracks, sibling = gathered.tracks, context.families.usual(group, front)
    by_key: dict[int, list[int]] = defaultdict(list)
    for rank, call in past.calls.get(front, {}).items():
        by_key[signatures.key(call)].append(rank)
    before = past.expected(front)
    expected = before if before is None else signatures.key(before)
    if sibling in by_key:
        expected = sibling
    order = sorted(by_key, key=lambda k: (-len(by_key[k]), k != expected, min(by_key[k])))
    calls = {rank: tracks[rank].calls[front] for ranks in by_key.values() for rank in ranks}
    sides = [
        Side(signatures.signature(calls[min(by_key[key])]), tuple(sorted(by_key[key])))
        for key in order
    ]
    roots = [rank for rank, parts in sorted(calls.items()) if is_root(parts[0])]
    if len(sides) == 1 and len(roots) > 1:
        return _rivals(roots, front, tracks, sides[0])
    everyone = len(calls) == len(gathered.group.members)
    if len(sides) == 1 and everyone and not balanced(list(calls.values())):
        return tuple(Side(sides[0].signature, (rank,)) for rank in sorted(calls)), True
    tied = len(order) > 1 and len(by_key[order[0]]) == len(by_key[order[1]])
    return tuple(sides), tied and order[0] != expected


def _rivals(
    roots: Sequence[int], front: int, tracks: Mapping[int, Track], side: Side
) -> tuple[tuple[Side, ...], bool]:
    """Members that each take themselves for the one root. Who was it in earlier rounds is right."""
    before = {
        rank
        for rank in roots
        for number, parts in tracks[rank].calls.items()
        if number < front and parts[0].op == side.signature.op and is_root(parts[0])
    }
    order = sorted(roots, key=lambda rank: (rank not in before, rank))
    word = "to" if side.signature.op == "gather" else "from"
    return tuple(
        Side(
            msgspec.structs.replace(side.signature, op=f"{side.signature.op} {word} rank {rank}"),
            (rank,),
        )
        for rank in order
    ), len(before) != 1


# Of these no member is through before the GPUs of all have taken part.
OF_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier", "all_to_all"})


def hung(context: MatchContext) -> Iterator[Blame]:
    """Ranks with something unfinished that peers are through with. Where in the queue it stands
    does not matter: to be done for a peer, it must have run here.
    """
    finishers: dict[tuple[str, int], list[int]] = {}
    for rank in sorted(context.queues):
        for unit in context.queues[rank].units:
            if unit.transfer or not all(map(on_device, unit.parts)):
                continue
            key = unit.group, unit.number
            if key not in finishers:
                tracks = context.gathered[unit.group].tracks
                finishers[key] = sorted(r for r in tracks if tracks[r].done(unit.number))
            through = _through(context, unit, finishers[key])
            # One is always the first to be through.
            called = len(context.queues[rank].units) > 1 or any(
                context.queues[peer].units for peer in through
            )
            if through and called:
                yield _blame_device(
                    context, unit, f"{ranks_text(through)} {verb(through, 'has')} finished it"
                )
                break


def _through(context: MatchContext, unit: QueuedOp, finishers: list[int]) -> list[int]:
    """The peers that are through, if that shows anything of this rank."""
    peers = [rank for rank in finishers if _same(context, rank, unit)]
    # Without an element NCCL does nothing and does not wait.
    waits = (part.op in OF_ALL and all(map(all, part.input_sizes)) for part in unit.parts)
    if unit.parts and all(waits):
        return peers
    members = context.gathered[unit.group].group.members
    return peers if unit.behind is None and len(peers) == len(members) - 1 > 1 else []


def _same(context: MatchContext, rank: int, unit: QueuedOp) -> bool:
    """Whether a peer's call of this number, where it is still known, was the same operation."""
    calls = context.pasts[unit.group].calls.get(unit.number, {})
    if rank not in calls or unit.rank not in calls:
        return True
    return context.signatures.key(calls[rank]) == context.signatures.key(calls[unit.rank])


def _blame_device(context: MatchContext, unit: QueuedOp, how: str) -> Blame:
    operation = context.signatures.signature(unit.parts).text() if unit.parts else "a collective"
    text = (
        f"The GPU of rank {unit.rank} does not finish {operation}, number {unit.number} of the "
        f"{context.title(unit.group)}: {how}."
    )
    return Blame(unit.rank, "shown", "device-hung", text, unit.group, unit.number)


RECENT = 400  # calls of a rank in a group, in which a round repeats if it ever does
LEAST_ROUNDS = 2  # to say what each round had


def is_minority(context: MatchContext, first: QueuedOp, later: JointOp) -> bool:
    """Whether more ranks took `later` before `first`, or what groups of their kind call so."""
    if first.transfer or later.ends is not None:
        return False
    alike = otherwise = 0
    for rank in context.heard:
        own, other = (context.families.of(rank, key) for key in (first.group, later.group))
        head = context.families.call_order(rank, own, first.number) if own else None
        then = context.families.call_order(rank, other, later.number) if other else None
        if head == then:  # neither was called, or both so long ago that nobody knows the order
            continue
        if then is None or (head is not None and head < then):
            alike += other is not None
        else:
            otherwise += own is not None
    return otherwise > alike


def novel(context: MatchContext, wait: Wait) -> bool:
    """Return whether no rank had made this call, from this line, in this group before."""
    past = context.pasts[wait.group]
    mine = past.calls.get(wait.sequence, {}).get(wait.rank)
    return mine is not None and wait.why != "p2p" and past.new(mine, wait.sequence)


def as_before(context: MatchContext, wait: Wait) -> bool | None:
    """Return whether the rank, over all its groups, came to this call as in earlier rounds. None
    where they do not show it, or where it is the usual call from another line.
    """
    made: list[tuple[int, str, int]] = []
    for key, past in context.pasts.items():
        track = context.gathered[key].tracks.get(wait.rank)
        for number, parts in list(track.calls.items())[-RECENT:] if track else ():
            made.append((parts[0].created_ns or 0, key, past.calls[number][wait.rank]))
    made.sort(reverse=True)
    mine = context.pasts[wait.group].calls.get(wait.sequence, {}).get(wait.rank)
    if wait.since_ns is None or mine is None:
        return None
    usual = continuation([(key, call) for at, key, call in made if at < wait.since_ns])
    if usual is None or usual[0] == wait.group:
        return True if usual == (wait.group, mine) else None
    return False


def of_ring(context: MatchContext, ring: frozenset[Node]) -> Iterator[Blame]:
    """Who left out a send or receive, if that closed the ring. Else those who took two groups in
    another order than most; where as many did the one as the other, those who did otherwise before;
    else all.
    """
    inside = waits_of(ring, context.waits)
    if unmet := list(_left_out(context, ring, inside)):
        yield from unmet
        return
    grounds, wrong = _wrong(context, ring, inside)
    awaited = _awaited(inside)
    for wait in wrong:
        yield _blame_in_ring(context, wait, grounds, awaited)


def _left_out(context: MatchContext, ring: frozenset[Node], inside: list[Wait]) -> Iterator[Blame]:
    """Yield ranks that continued past the transfer that a partner waits for: they gave fewer than
    those of their role. How many wait with them shows nothing: a send has one partner and a
    collective has many.
    """
    ranks = {node.rank for node in ring if isinstance(node, QueuedOp)}
    unmet = [(rank, wait) for wait in inside if wait.why == "p2p" for rank in wait.on]
    off = {rank for rank in ranks if unmet and context.is_off(rank, None)}
    if off and off != ranks:
        for rank in sorted(off):
            mine = next((wait for other, wait in unmet if other == rank), None)
            own = next((wait for wait in inside if wait.rank == rank), None)
            if mine is not None:
                yield not_met(context, rank, "outnumbered", mine, ", as others at its place did")
            elif own is not None:
                yield _blame_in_ring(context, own, "outnumbered", _awaited(inside))


def not_met(
    context: MatchContext, rank: int, grounds: Grounds, awaited: Wait, how: str = ""
) -> Blame:
    """That a rank has not come to its end of a transfer in which another one waits."""
    reason = _unmet(awaited)
    did_not = "send to" if reason == "not-sent" else "receive from"
    text = (
        f"Rank {rank} did not {did_not} rank {awaited.rank}, which waits for it "
        f"({context.title(awaited.group)}){how}."
    )
    return Blame(rank, grounds, reason, text, awaited.group, awaited.sequence)


def _unmet(awaited: Wait) -> Reason:
    return "not-sent" if awaited.operation.startswith("receive") else "not-received"


def _wrong(
    context: MatchContext, ring: frozenset[Node], inside: list[Wait]
) -> tuple[Grounds, Sequence[Wait]]:
    verdicts: dict[tuple[str, int, JointOp], bool] = {}
    strayed = set()
    for rank, first, later in _turned(ring):
        key = first.group, first.number, later
        if key not in verdicts:
            verdicts[key] = is_minority(context, first, later)
        if verdicts[key]:
            strayed.add(rank)
    if strayed:
        return "outnumbered", [wait for wait in inside if wait.rank in strayed]
    # How many wait beside them says nothing of the ends of a transfer.
    ends = {rank for wait in inside if wait.why == "p2p" for rank in wait.on}
    alone = [wait for wait in inside if wait.rank in ends]
    if len(ends) == 1 and alone:
        return "awaited", alone
    by_group: dict[str, list[Wait]] = defaultdict(list)
    for wait in inside:
        by_group[wait.group].append(wait)
    largest = max(len(side) for side in by_group.values())
    smaller = [wait for side in by_group.values() if len(side) < largest for wait in side]
    if smaller and not ends and sum(len(side) == largest for side in by_group.values()) == 1:
        return "outnumbered", smaller
    unlike = [wait for wait in inside if as_before(context, wait) is False]
    for some in (unlike, [wait for wait in inside if novel(context, wait)]):
        if some and len(some) < len(inside):
            return "unlike-before", some
    return "either", inside


def _turned(ring: frozenset[Node]) -> Iterator[tuple[int, QueuedOp, JointOp]]:
    heads = [node for node in ring if isinstance(node, QueuedOp) and node.behind is None]
    for joint_op in (node for node in ring if isinstance(node, JointOp)):
        late = {*joint_op.missing, *joint_op.queued}
        yield from ((head.rank, head, joint_op) for head in heads if head.rank in late)


class _Awaited(NamedTuple):
    """Those who wait alike, one of their waits, and for whom."""

    ranks: list[int]
    wait: Wait
    on: frozenset[int]


def _awaited(inside: list[Wait]) -> list[_Awaited]:
    awaited: dict[tuple[str, tuple[int, ...]], _Awaited] = {}
    for wait in inside:
        key = wait.group, wait.on
        if key not in awaited:
            awaited[key] = _Awaited([], wait, frozenset(wait.on))
        awaited[key].ranks.append(wait.rank)
    return list(awaited.values())


def _blame_in_ring(
    context: MatchContext, wait: Wait, grounds: Grounds, awaited: list[_Awaited]
) -> Blame:
    groups = [other for other in awaited if wait.rank in other.on]
    apart = (w for w in (other.wait for other in groups) if w.group != wait.group or w.why == "p2p")
    waiting = next(apart, None)
    where = f" at {wait.site}" if wait.site else ""
    text = f"Rank {wait.rank} is in {wait.operation} of the {context.title(wait.group)}{where}"
    if waiting is not None:
        same = [other.ranks for other in groups if other.wait.group == waiting.group]
        waiters = sorted({rank for ranks in same for rank in ranks})
        text += (
            f", while {ranks_text(waiters)} {'wait' if len(waiters) > 1 else 'waits'} for it in "
            f"{waiting.operation} of the {context.title(waiting.group)}"
        )
    if waiting is not None and waiting.why == "p2p":
        reason = _unmet(waiting)
        return Blame(wait.rank, grounds, reason, text + ".", waiting.group, waiting.sequence)
    if novel(context, wait) and as_before(context, wait) is not False:
        text += ". It had not called that before: it left the loop before the others did"
        return Blame(wait.rank, grounds, "fewer-batches", text + ".", wait.group, wait.sequence)
    if waiting is not None and _passed(context, wait, waiting):
        text += ", which it skipped"
        return Blame(wait.rank, grounds, "skipped", text + ".", waiting.group, waiting.sequence)
    return Blame(wait.rank, grounds, "out-of-order", text + ".", wait.group, wait.sequence)


def _passed(context: MatchContext, wait: Wait, waiting: Wait) -> bool:
    """Whether it went past what the others wait in, and did not merely turn two calls around: it
    has called more since, or is where it always is in this round.
    """
    order = context.families.call_order(wait.rank, waiting.group, waiting.sequence)
    if waiting.why == "p2p" or order is not None:
        return False
    ran_ahead = len(context.queues[wait.rank].units) > 1
    usual_line = bool(wait.site) and not novel(context, wait)
    return ran_ahead or (usual_line and as_before(context, wait) is False)
