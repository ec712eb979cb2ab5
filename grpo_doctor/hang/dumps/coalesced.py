"""Operations that were launched as one. NCCL's recorder follows only the entry that ends such a
group: all before it stay "scheduled" forever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from grpo_doctor.hang.dumps.model import Entry, Status

Key = tuple[str, str, bool, int]


def settled(entries: Sequence[Entry], statuses: Mapping[str, Status]) -> tuple[Entry, ...]:
    """Apply what the end of each group shows of its parts; drop a group of which the ring
    has lost the first ones. `statuses` are the rank's counters by group id.
    """
    only_active = not any(entry.done for entry in entries)
    if only_active:
        entries = _without_ended(entries, statuses)
    ends = {_key(entry): entry for entry in entries if entry.op == "coalesced"}
    if not ends:
        return tuple(entries)
    first = entries[0]
    is_cut_off = not only_active and first.record > 1 and _key(first) in ends
    lost = _key(first) if is_cut_off else None
    return tuple(
        _as_its_end(entry, ends.get(key)) for entry in entries if (key := _key(entry)) != lost
    )


def _without_ended(entries: Sequence[Entry], statuses: Mapping[str, Status]) -> Sequence[Entry]:
    """Of a dump of active operations alone, without the parts of groups that have ended: these stay
    in it, and their ends do not. Where the last transfer that is over by the counter has left
    nothing, transfers are launched one by one, and those that are here are not over.
    """
    transfers: dict[str, set[int]] = defaultdict(set)
    for entry in entries:
        if entry.is_p2p:
            transfers[entry.group_id].add(entry.p2p_sequence)
    ended_keys = set()
    for entry, following in pairwise(
        [*entries, replace(entries[-1], record=-1)] if entries else []
    ):
        completed = statuses.get(entry.group_id, Status()).completed
        over = 0 < entry.p2p_sequence <= completed and completed > entry.sequence
        is_recorded = completed in transfers[entry.group_id]
        if entry.is_p2p and over and is_recorded and following.record != entry.record + 1:
            ended_keys.add(_key(entry))
    return [entry for entry in entries if not entry.is_p2p or _key(entry) not in ended_keys]


def _key(entry: Entry) -> Key:
    """Parts of a group share its number."""
    number = entry.p2p_sequence if entry.is_p2p else entry.sequence
    return entry.group, entry.backend, entry.is_p2p, number


def _as_its_end(entry: Entry, end: Entry | None) -> Entry:
    if end is None or entry is end or entry.done:
        return entry
    return replace(
        entry,
        started_ns=end.started_ns,
        completed_ns=end.completed_ns,
        started=end.started,
        done=end.done,
        timed_out=end.timed_out,
    )
