"""Whom a send or receive names, by the arguments that were read off its stack. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_doctor.hang.model.scene import Actor, Scene

_OF_THE_JOB = ("src", "dst")
_OF_ITS_GROUP = ("group_src", "group_dst")
_MOST_DIGITS = 9  # of a rank; whatever else was on the stack may be of any length


def partner_of(scene: Scene, actor: Actor) -> int | None:
    """The rank of the job at the other end; None where it is not known.

    `send_object_list` passes on its partner's number within the group alone, so a number of the
    job counts first, whichever call of the stack has it.
    """
    for number in _numbers(scene, actor, _OF_THE_JOB):
        return number
    for number in _numbers(scene, actor, _OF_ITS_GROUP):
        return _of_the_job(scene, actor, number)
    return None


def _numbers(scene: Scene, actor: Actor, names: Sequence[str]) -> Iterator[int]:
    for call in scene.evidence.arguments:
        values = [call.values.get(name, "") for name in names if call.pid == actor.pid]
        yield from (int(one) for one in values if one.isdecimal() and len(one) <= _MOST_DIGITS)


def _of_the_job(scene: Scene, actor: Actor, number: int) -> int | None:
    """The stack does not tell which group it is: known where all of this rank's groups agree.

    Groups whose members no recorder lists do not count: there may be others beside them.
    """
    recording = scene.recordings.of(actor.rank) if actor.rank is not None else None
    groups = recording.groups if recording is not None else ()
    listed = [group.ranks for group in groups if actor.rank in group.ranks]
    # As torch was given the members, or sorted: it depends on who made the group.
    orders = [order for ranks in listed for order in (ranks, sorted(ranks))]
    found = {order[number] for order in orders if number < len(order)}
    return found.pop() if len(found) == 1 else None
