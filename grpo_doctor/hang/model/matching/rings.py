"""Who broke the order where ranks wait for each other in a ring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grpo_doctor.hang.model.matching.context import MatchContext
from grpo_doctor.hang.model.matching.graph import Node, waits_of
from grpo_doctor.hang.model.matching.joint_ops import JointOp
from grpo_doctor.hang.model.matching.model import Blame, Grounds, Reason, Wait
from grpo_doctor.hang.model.matching.queues import QueuedOp
from grpo_doctor.hang.model.matching.steps import as_before, is_alone, is_minority, left_out, novel
from grpo_doctor.hang.wording import ranks_text


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
        yield _blame(context, wait, grounds, awaited)


def _left_out(context: MatchContext, ring: frozenset[Node], inside: list[Wait]) -> Iterator[Blame]:
    """Yield ranks that continued past the transfer that a partner waits for: they gave fewer than
    those of their role, or had it there in earlier rounds. How many wait with them shows nothing:
    a send has one partner and a collective has many.
    """
    ranks = {node.rank for node in ring if isinstance(node, QueuedOp)}
    unmet = [(rank, wait) for wait in inside if wait.why == "p2p" for rank in wait.on]
    off = {rank for rank in ranks if unmet and context.is_off(rank, None)}
    if off and off != ranks:
        for rank in sorted(off):
            mine = next((wait for other, wait in unmet if other == rank), None)
            own = next((wait for wait in inside if wait.rank == rank), None)
            if mine is not None:
                yield _not_met(context, rank, "outnumbered", mine, ", as others at its place did")
            elif own is not None:
                yield _blame(context, own, "outnumbered", _awaited(inside))
        return
    for rank, awaited in unmet:
        for own in (w for w in context.waits if w.rank == rank and w.why != "p2p"):
            if left_out(context, own.rank, own.group, own.sequence, awaited):
                where = f" at {own.site}" if own.site else ""
                past = f", as it did in earlier rounds: it is in {own.operation}{where}"
                yield _not_met(context, rank, "unlike-before", awaited, past)


def _not_met(context: MatchContext, rank: int, grounds: Grounds, awaited: Wait, how: str) -> Blame:
    receives = awaited.operation.startswith("receive")
    reason: Reason = "not-sent" if receives else "not-received"
    text = (
        f"Rank {rank} did not {'send to' if receives else 'receive from'} rank {awaited.rank}, "
        f"which waits for it ({context.title(awaited.group)}){how}."
    )
    return Blame(rank, grounds, reason, text, awaited.group, awaited.sequence)


def _wrong(
    context: MatchContext, ring: frozenset[Node], inside: list[Wait]
) -> tuple[Grounds, Sequence[Wait]]:
    """Return the waits that should not be there yet, and the grounds for that."""
    verdicts: dict[tuple[str, int, JointOp], bool] = {}
    strayed = set()
    for rank, first, later in _turned(ring):
        key = first.group, first.number, later
        if key not in verdicts:
            verdicts[key] = is_minority(context, first, later)
        if verdicts[key]:
            strayed.add(rank)
    heads = [node for node in ring if isinstance(node, QueuedOp) and node.behind is None]
    strayed |= {unit.rank for unit in heads if is_alone(context, unit)}
    if strayed:
        return "outnumbered", [wait for wait in inside if wait.rank in strayed]
    # How many wait beside them says nothing of the ends of a transfer.
    ends = {rank for wait in inside if wait.why == "p2p" for rank in wait.on}
    alone = [wait for wait in inside if wait.rank in ends]
    if len(ends) == 1 and alone:
        return "awaited", alone
    sides_of: dict[str, list[Wait]] = defaultdict(list)
    for wait in inside:
        sides_of[wait.group].append(wait)
    largest = max(len(side) for side in sides_of.values())
    smaller = [wait for side in sides_of.values() if len(side) < largest for wait in side]
    if smaller and not ends and sum(len(side) == largest for side in sides_of.values()) == 1:
        return "outnumbered", smaller
    unlike = [wait for wait in inside if as_before(context, wait) is False]
    for some in (unlike, [wait for wait in inside if novel(context, wait)]):
        if some and len(some) < len(inside):
            return "unlike-before", some
    return "either", inside


def _turned(ring: frozenset[Node]) -> Iterator[tuple[int, QueuedOp, JointOp]]:
    """Every rank of the ring that has one operation at a head while another one waits for it."""
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


def _blame(context: MatchContext, wait: Wait, grounds: Grounds, awaited: list[_Awaited]) -> Blame:
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
        receives = waiting.operation.startswith("receive")
        reason: Reason = "not-sent" if receives else "not-received"
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
