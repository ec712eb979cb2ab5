"""Sends without a receive, and receives without a send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from grpo_doctor.hang.dumps import Entry
from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.model import Pair


class Side(NamedTuple):
    """What one end of a directed pair recorded. `whole`: its ring still has the first one."""

    entries: tuple[Entry, ...]
    whole: bool

    @property
    def open(self) -> tuple[Entry, ...]:
        """Those not done."""
        return tuple(entry for entry in self.entries if not entry.done)


def unmatched(gathered: Gathered, heard: frozenset[int]) -> tuple[Pair, ...]:
    """Directed pairs of ranks with a tail that the other side has not met.

    Counted per direction: the k-th send of a to b belongs to b's k-th receive from a. Where the
    ring has lost the beginning of a side, only what is open on both is compared: what is done was
    met. Sides without a recording are not judged by counts. An end is recorded by its place in the
    group, so nothing can be told of a group of which not all members are known.
    """
    group = gathered.group
    if group.inferred and group.size != len(group.members):
        return ()
    sends = sides(gathered, "send")
    receives = sides(gathered, "recv")
    found = []
    nothing = Side((), whole=True)
    for source, target in sorted({*sends, *receives}):
        sent = sends.get((source, target), nothing)
        received = receives.get((source, target), nothing)
        whole = sent.whole and received.whole and {source, target} <= heard
        first, second = (sent.entries, received.entries) if whole else (sent.open, received.open)
        if len(first) == len(second):
            continue
        waiter, longer = (source, first) if len(first) > len(second) else (target, second)
        tail = longer[min(len(first), len(second)) :]
        blocked = next((entry for entry in tail if not entry.done), None)
        if blocked is not None:
            found.append(
                Pair(
                    group=group.key,
                    source=source,
                    target=target,
                    sent=len(sent.entries),
                    received=len(received.entries),
                    waiter=waiter,
                    nth=(sent if waiter == source else received).entries.index(blocked) + 1,
                    operation=f"send to rank {target}"
                    if waiter == source
                    else f"receive from rank {source}",
                    since_ns=blocked.created_ns,
                )
            )
    return tuple(found)


def sides(gathered: Gathered, op: str) -> dict[tuple[int, int], Side]:
    """What ranks recorded of their sends, or receives, by source and target."""
    found: dict[tuple[int, int], list[Entry]] = defaultdict(list)
    whole: dict[tuple[int, int], bool] = {}
    for rank, track in gathered.tracks.items():
        members = _order(gathered.group.members, rank, track.p2p)
        first = min((entry.p2p_sequence for entry in track.p2p), default=1)
        for entry in track.p2p:
            if entry.op != op or entry.source is None or entry.target is None:
                continue
            if max(entry.source, entry.target) >= len(members):
                continue
            pair = members[entry.source], members[entry.target]
            if rank == pair[0 if op == "send" else 1]:
                found[pair].append(entry)
                whole[pair] = first <= 1
    return {pair: Side(tuple(entries), whole[pair]) for pair, entries in found.items()}


def _order(members: Sequence[int], rank: int, own: Sequence[Entry]) -> Sequence[int]:
    """Which member each rank of the group is: as the group lists them, unless the rank's own
    operations fit the sorted list and not that one (torch sorts the ranks of some groups).
    """
    for candidate in (members, sorted(members)):
        if all(_is_own(entry, candidate, rank) for entry in own):
            return candidate
    return members


def _is_own(entry: Entry, members: Sequence[int], rank: int) -> bool:
    local = {"send": entry.source, "recv": entry.target}.get(entry.op)
    return local is None or (local < len(members) and members[local] == rank)
