"""Whether a rank called things in the order and number of those who run the same program, or of
its own earlier rounds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from grpo_doctor.hang.model.matching.context import MatchContext
from grpo_doctor.hang.model.matching.joint_ops import JointOp, sides_of
from grpo_doctor.hang.model.matching.model import Wait
from grpo_doctor.hang.model.matching.queues import QueuedOp
from grpo_doctor.hang.model.matching.tracks import continuation

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


def is_alone(context: MatchContext, unit: QueuedOp) -> bool:
    """Whether the ranks at the same place of groups of this kind mostly did another transfer as
    this number: then one was left out, or turned around, before it.
    """
    if not unit.transfer or not unit.parts:
        return False
    position = context.gathered[unit.group].group.members.index(unit.rank)
    mine = {(part.op, part.source, part.target) for part in unit.parts}
    alike = otherwise = 0
    for key in context.families.siblings(unit.group):
        track = context.gathered[key].tracks.get(context.gathered[key].group.members[position])
        if key == unit.group or track is None:
            continue
        same = [entry for entry in track.p2p if entry.p2p_sequence == unit.number]
        theirs = {(e.op, e.source, e.target) for e in same if e.op != "coalesced"}
        alike += theirs == mine
        otherwise += bool(theirs) and theirs != mine
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


def left_out(context: MatchContext, rank: int, key: str, sequence: int, awaited: Wait) -> bool:
    """Whether a rank came to a collective of its own without the send or receive that `awaited`
    is for, which it never did in earlier rounds.
    """
    past, track = context.pasts[key].calls, context.gathered[key].tracks[rank]
    mine = past.get(sequence, {}).get(rank)
    if mine is None:
        return False
    rounds = [
        parts[0].created_ns or 0
        for number, parts in sorted(track.calls.items())
        if number < sequence and past[number][rank] == mine
    ]
    if len(rounds) <= LEAST_ROUNDS:
        return False
    receives = awaited.operation.startswith("receive")
    ends = (rank, awaited.rank) if receives else (awaited.rank, rank)
    group = context.gathered[awaited.group]
    own = {rank: group.tracks[rank]} if rank in group.tracks else {}
    side = sides_of(replace(group, tracks=own), "send" if receives else "recv").get(ends)
    made = [entry.created_ns or 0 for entry in side.entries] if side is not None else []
    reached = track.calls[sequence][0].created_ns or 0
    now = sum(rounds[-1] < at < reached for at in made)
    return all(sum(a < at < b for at in made) > now for a, b in pairwise(rounds))
