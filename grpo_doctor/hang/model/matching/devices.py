"""Ranks whose GPU does not end what the GPUs of their peers have ended, or begun."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.dumps import Entry
from grpo_doctor.hang.model.matching.context import MatchContext
from grpo_doctor.hang.model.matching.joint_ops import JointOp
from grpo_doctor.hang.model.matching.model import Blame
from grpo_doctor.hang.model.matching.queues import QueuedOp, on_device
from grpo_doctor.hang.wording import ranks_text, verb

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
            if through and _went_on(context, rank, through):
                yield _blame(
                    context, unit, f"{ranks_text(through)} {verb(through, 'has')} finished it"
                )
                break


def _through(context: MatchContext, unit: QueuedOp, finishers: list[int]) -> list[int]:
    """The peers that are through, if that shows anything of this rank."""
    peers = [rank for rank in finishers if _same(context, rank, unit)]
    if unit.parts and all(part.op in OF_ALL and not _is_empty(part) for part in unit.parts):
        return peers
    members = context.gathered[unit.group].group.members
    return peers if unit.behind is None and len(peers) == len(members) - 1 > 1 else []


def _went_on(context: MatchContext, rank: int, peers: list[int]) -> bool:
    """Whether anything came after it: one is always the first to be through."""
    return len(context.queues[rank].units) > 1 or any(context.queues[peer].units for peer in peers)


def _same(context: MatchContext, rank: int, unit: QueuedOp) -> bool:
    """Whether a peer's call of this number, where it is still known, was the same operation."""
    calls = context.pasts[unit.group].calls.get(unit.number, {})
    if rank not in calls or unit.rank not in calls:
        return True
    return context.signatures.key(calls[rank]) == context.signatures.key(calls[unit.rank])


def _is_empty(entry: Entry) -> bool:
    """Return whether it has no element: then NCCL does nothing and does not wait."""
    return any(0 in shape for shape in entry.input_sizes)


def not_begun(context: MatchContext, joint_op: JointOp) -> Iterator[Blame]:
    """Members of a whole meeting that have not begun it, though their recorders see beginnings and
    others have: their GPU is in something before it.
    """
    if joint_op.ends is not None or not joint_op.all_joined:
        return
    units = [
        context.queues[rank].collectives[joint_op.group, joint_op.number]
        for rank in joint_op.joined
    ]
    ahead = [unit.rank for unit in units if unit.starts]
    late = [unit for unit in units if not unit.starts]
    if not ahead or not all(context.queues[unit.rank].times_starts for unit in late):
        return
    for unit in late:
        peers = f"{ranks_text(ahead)} {verb(ahead, 'has')}"
        yield _blame(context, unit, f"{peers} started it, and it has not")


def _blame(context: MatchContext, unit: QueuedOp, how: str) -> Blame:
    operation = context.signatures.signature(unit.parts).text() if unit.parts else "a collective"
    text = (
        f"The GPU of rank {unit.rank} does not finish {operation}, number {unit.number} of the "
        f"{context.title(unit.group)}: {how}."
    )
    return Blame(unit.rank, "shown", "device-hung", text, unit.group, unit.number)
