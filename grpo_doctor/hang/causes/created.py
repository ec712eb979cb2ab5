"""Process groups that ranks create in different orders.

Every rank must call `new_group` for every group in one order, members or not: the calls are
counted, and the count is the group's name in the store through which its members find each other.
Source: torch/distributed/distributed_c10d.py, `_process_group_name` (torch 2.1 to 2.13). No
recorder knows of a group that does not exist yet, so it is read off the stacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.groups import Mistake, deadlock
from grpo_doctor.hang.causes.wording import at, still_item
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item

_MEMBERS = ("global_ranks_in_group", "ranks")
_FIX = Fix(
    "Call new_group for every group on every rank, members or not, in one order; build the lists "
    "from the world size alone, not from a rank's own data or from a set or dict."
)


@dataclass(frozen=True, slots=True)
class _Call:
    """The group that a rank creates: its name in the store and its members, as text."""

    name: str
    members: str

    def contradicts(self, other: _Call) -> bool:
        """Of two ranks that create the same groups in the same order none does."""
        return (self.name == other.name) != (self.members == other.members)

    def is_past(self, other: _Call) -> bool:
        """Whether this one is created after the other; names are numbers, or hashes of members."""
        return self.name.isdecimal() and other.name.isdecimal() and int(self.name) > int(other.name)

    def has(self, rank: int) -> bool:
        """Whether a rank is one of the members that are shown; a long list is cut off."""
        return str(rank) in re.findall(r"\d+", self.members)


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks of which one creates a group under the name that another has for other members."""
    calls = {
        rank: call
        for rank, actor in case.scene.by_rank.items()
        if not actor.held and (call := _call(case.scene, actor)) is not None
    }
    if any(one.contradicts(other) for one in calls.values() for other in calls.values()):
        yield _differ(case.scene, calls, _wrong(calls))


def _wrong(calls: Mapping[int, _Call]) -> tuple[int, ...]:
    """Whom most others contradict, or have left behind in a group of which it thinks they are."""
    against = {
        rank: sum(call.contradicts(other) for other in calls.values())
        + sum(call.has(one) and other.is_past(call) for one, other in calls.items())
        for rank, call in calls.items()
    }
    most = max(against.values())
    return tuple(sorted(rank for rank, count in against.items() if count == most))


def _call(scene: Scene, actor: Actor) -> _Call | None:
    for one in scene.evidence.arguments:
        if one.pid == actor.pid and one.values.get("group_name"):
            members = next((one.values[name] for name in _MEMBERS if one.values.get(name)), "")
            if members:
                return _Call(one.values["group_name"], members)
    return None


def _differ(scene: Scene, calls: Mapping[int, _Call], wrong: tuple[int, ...]) -> Candidate:
    first = scene.by_rank[wrong[0]]
    own = calls[wrong[0]]
    others = [call for call in calls.values() if call.contradicts(own)]
    other = next((call for call in others if call.name == own.name), others[0])
    items = [
        Item("stack", rank, f"creates group {call.name} of ranks {call.members}")
        for rank, call in calls.items()
    ]
    where = at(first.place.user)
    reason = (
        f"creates process groups in another order{f' at {where}' if where else ''}: its group "
        f"{own.name} is of ranks {own.members}, where another rank creates group {other.name} of "
        f"ranks {other.members}"
    )
    found = deadlock(
        scene, Mistake("group-order-cycle", wrong, reason), [*items, still_item(first)],
        Sink.RING,
    )  # fmt: skip
    return replace(found, fixes=(_FIX,), confirm=())
