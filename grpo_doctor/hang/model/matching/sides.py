"""Members of a collective by what they called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from grpo_doctor.hang.model.matching.context import MatchContext
from grpo_doctor.hang.model.matching.joint_ops import JointOp
from grpo_doctor.hang.model.matching.model import Side
from grpo_doctor.hang.model.matching.signatures import balanced, is_root
from grpo_doctor.hang.model.matching.tracks import Track


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
        Side(replace(side.signature, op=f"{side.signature.op} {word} rank {rank}"), (rank,))
        for rank in order
    ), len(before) != 1
