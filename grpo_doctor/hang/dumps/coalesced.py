"""Operations that were launched as one. NCCL's recorder follows only the entry that ends such a
group: all before it stay "scheduled" for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from grpo_doctor.hang.dumps.model import Entry

Key = tuple[str, str, bool, int]


def settled(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """With what the end of each group tells of its parts, and without a group of which the ring
    has lost the first ones.
    """
    ends = {_key(one): one for one in entries if one.op == "coalesced"}
    if not ends:
        return tuple(entries)
    first = entries[0]
    lost = _key(first) if first.record > 1 and _key(first) in ends else None
    return tuple(_as_its_end(one, ends.get(key)) for one in entries if (key := _key(one)) != lost)


def _key(one: Entry) -> Key:
    """Parts of a group share its number."""
    number = one.p2p_sequence if one.is_p2p else one.sequence
    return one.group, one.backend, one.is_p2p, number


def _as_its_end(one: Entry, end: Entry | None) -> Entry:
    if end is None or one is end or one.done:
        return one
    return replace(
        one,
        started_ns=end.started_ns,
        completed_ns=end.completed_ns,
        started=end.started,
        done=end.done,
        timed_out=end.timed_out,
    )
