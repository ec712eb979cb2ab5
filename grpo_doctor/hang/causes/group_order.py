"""Process groups that ranks use, or create, in different orders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.calls import CLASSES, all_in_calls, deadlock
from grpo_doctor.hang.causes.candidate import (
    RECORDER,
    Candidate,
    Case,
    Sink,
    at_frame,
    frame_text,
    place_text,
    still_item,
)
from grpo_doctor.hang.model.matching.model import Cycle, Wait, strongest
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import ranks_text

_MOST_ITEMS = 8
_MEMBERS = ("global_ranks_in_group", "ranks")


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
    """Waits over two process groups or more that come back to where they began."""
    rings = [ring for ring in view.matching.cycles if len(ring.groups) > 1]
    if not rings:
        return None
    ring = min(rings, key=lambda ring: (len(ring.ranks), ring.ranks))
    culprits = tuple(sorted(_blamed_in_rings(view, rings) or ring.ranks))
    explained = any(b.rank in culprits and b.reason in CLASSES for b in view.matching.blame)
    if explained and not view.by_rank:
        return None  # the ring follows from another mistake of a rank in it
    sites = [
        f"{wait.operation} in {_title(view, wait.group)} at {site}"
        for wait in ring.waits[:2]
        if (site := _site(view, wait))
    ]
    against = " against ".join(sites)
    ahead = _is_ahead(view, culprits)
    mistake = Candidate(
        cause="collective-skipped" if ahead else "group-order-cycle",
        culprits=culprits,
        reason=f"skipped a collective and is ahead of the others: {against}"
        if ahead
        else f"is in a cycle of waits over {len(ring.groups)} process groups: {against}",
        evidence=tuple(
            Item(
                RECORDER,
                wait.rank,
                f"is in {wait.operation} of {_title(view, wait.group)} and needs "
                f"{ranks_text(wait.on)}"
                f"{f' ({wait.site})' if wait.site else ''}",
            )
            for wait in ring.waits
        ),
        sink=Sink.RING,
    )
    return deadlock(view, mistake)


def _site(view: JobView, wait: Wait) -> str:
    proc = view.by_rank.get(wait.rank)
    return wait.site if proc is None else frame_text(proc.place.user)


def _title(view: JobView, key: str) -> str:
    status = view.matching.status(key)
    return f"group {key}" if status is None else status.group.title()


def _blamed_in_rings(view: JobView, rings: Sequence[Cycle]) -> list[int]:
    """Return the ranks that reversed the order; empty where nothing shows that. Any other blame of
    a rank in a ring is the reason of the ring.
    """
    inside = {rank for ring in rings for wait in ring.waits for rank in (wait.rank, *wait.on)}
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
    mistake = Candidate(
        cause="group-order-cycle",
        culprits=ranks,
        reason=f"waits alone in {first.place.operation} at {where}",
        whole=f"{ranks_text(ranks)} each wait alone in a different process group at {where}: "
        "they use their groups in different orders",
        evidence=tuple(
            Item(
                RECORDER,
                rank,
                f"waits alone in {alone[rank].operation} of {_title(view, alone[rank].group)}",
            )
            for rank in ranks[:_MOST_ITEMS]
        ),
        sink=Sink.ORDER,
    )
    yield deadlock(view, mistake)


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
    """Ranks of which one creates a group under the name that another has for other members."""
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
    mistake = Candidate(
        cause="group-order-cycle",
        culprits=wrong,
        reason=f"creates process groups in another order{at_frame(first.place.user)}: its "
        f"group {own.name} has ranks {own.members}, but another rank creates group "
        f"{other.name} with ranks {other.members}",
        evidence=(*created, still_item(first)),
        sink=Sink.RING,
    )
    yield replace(deadlock(view, mistake), fixes=advice("new_group"), confirm=())


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
