"""Where one process group stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from grpo_doctor.hang.matching.groups import Gathered
from grpo_doctor.hang.matching.history import History
from grpo_doctor.hang.matching.model import Camp, Kind, Seat, Standing
from grpo_doctor.hang.matching.signatures import Signatures, balanced, is_root
from grpo_doctor.hang.matching.tracks import Track


def standing(
    gathered: Gathered,
    past: History,
    signatures: Signatures,
    heard: frozenset[int],
    heads: frozenset[int],
    siblings: Callable[[int], int | None],
) -> Standing:
    """The oldest collective of the group that a rank may be running and that is not done
    everywhere, and who is where with it; of those that merely stand behind others where none is.

    `heard` are the ranks with a recording at all. `heads` are numbers of collectives at the head of
    a stream. `siblings` is what groups of the same kind mostly called as this number.
    """
    given = {t.front for t in gathered.tracks.values() if t.front is not None}
    fronts = sorted(heads or given)
    found = [_at(front, gathered, past, signatures, heard, siblings(front)) for front in fronts]
    telling = [one for one in found if one.kind in {"missing", "mismatch"}]
    if telling:
        return telling[0]
    return found[0] if found else _at(None, gathered, past, signatures, heard, None)


def _at(
    front: int | None,
    gathered: Gathered,
    past: History,
    signatures: Signatures,
    heard: frozenset[int],
    sibling: int | None,
) -> Standing:
    group, tracks = gathered.group, gathered.tracks
    seats = tuple(tracks[r].seat() if r in tracks else Seat(r) for r in group.members)
    gap = _longest_gap_ns(tracks, front)
    if front is None:
        return Standing(group, "fine", seats, longest_gap_ns=gap)
    arrived = tuple(s.rank for s in seats if s.enqueued is not None and s.enqueued >= front)
    through = tuple(rank for rank in arrived if tracks[rank].done(front))
    unheard = tuple(seat.rank for seat in seats if seat.rank not in heard)
    missing = tuple(s.rank for s in seats if s.rank in heard and s.rank not in arrived)
    waiting = [rank for rank in arrived if rank not in through]
    before = past.expected(front)
    expected = None if before is None else signatures.key(before)
    camps, even = camps_of(front, gathered, past, signatures, sibling)
    unknown = group.size is not None and group.size > len(group.members)
    alone = len(group.members) == 1 and group.inferred
    return Standing(
        group=group,
        kind=_kind(camps, missing or (unknown or alone), through, unheard),
        seats=seats,
        front=front,
        operation=camps[0].signature.text() if camps else "a collective",
        arrived=arrived,
        missing=missing,
        through=through,
        unheard=unheard,
        camps=camps,
        even=even,
        expected=signatures.text(expected) if expected is not None else "",
        since_ns=min(
            (at for r in waiting if (at := tracks[r].seat().waiting_since_ns)), default=None
        ),
        longest_gap_ns=gap,
    )


def _kind(
    camps: Sequence[Camp], missing: object, through: Sequence[int], unheard: Sequence[int]
) -> Kind:
    if len(camps) > 1:
        return "mismatch"
    if missing:
        return "missing"
    if through:
        return "partial"
    return "unknown" if unheard else "all-joined-none-done"


def camps_of(
    front: int, gathered: Gathered, past: History, signatures: Signatures, sibling: int | None
) -> tuple[tuple[Camp, ...], bool]:
    """Those who came, by what they called: the one taken as right first, and whether that choice
    is arbitrary. More ranks are right; of equally many, those who do what groups of the same kind
    do there, or what earlier rounds did.
    """
    tracks = gathered.tracks
    before = past.expected(front)
    expected = before if before is None else signatures.key(before)
    here = {signatures.key(call) for call in past.calls.get(front, {}).values()}
    if sibling in here:
        expected = sibling
    by_key: dict[int, list[int]] = defaultdict(list)
    for rank, call in past.calls.get(front, {}).items():
        by_key[signatures.key(call)].append(rank)
    order = sorted(by_key, key=lambda k: (-len(by_key[k]), k != expected, min(by_key[k])))
    calls = {rank: tracks[rank].calls[front] for ranks in by_key.values() for rank in ranks}
    camps = [
        Camp(signatures.signature(calls[min(by_key[key])]), tuple(sorted(by_key[key])))
        for key in order
    ]
    roots = [rank for rank, parts in sorted(calls.items()) if is_root(parts[0])]
    if len(camps) == 1 and len(roots) > 1:
        return _rivals(roots, front, tracks, camps[0])
    everyone = len(calls) == len(gathered.group.members)
    uneven = len(camps) == 1 and everyone and not balanced(list(calls.values()))
    if uneven:
        return tuple(Camp(camps[0].signature, (rank,)) for rank in sorted(calls)), True
    tied = len(order) > 1 and len(by_key[order[0]]) == len(by_key[order[1]])
    return tuple(camps), tied and order[0] != expected


def _rivals(
    roots: Sequence[int], front: int, tracks: Mapping[int, Track], camp: Camp
) -> tuple[tuple[Camp, ...], bool]:
    """Members that each take themselves for the one root. Who was it in earlier rounds is right."""
    before = {
        rank
        for rank in roots
        for number, parts in tracks[rank].calls.items()
        if number < front and parts[0].op == camp.signature.op and is_root(parts[0])
    }
    order = sorted(roots, key=lambda rank: (rank not in before, rank))
    word = "to" if camp.signature.op == "gather" else "from"
    return tuple(
        Camp(replace(camp.signature, op=f"{camp.signature.op} {word} rank {rank}"), (rank,))
        for rank in order
    ), len(before) != 1


def _longest_gap_ns(tracks: Mapping[int, Track], front: int | None) -> int | None:
    """The longest time between two collectives of this group on one rank, up to the front."""
    longest = None
    for track in tracks.values():
        created = [
            at
            for number, parts in track.calls.items()
            if (front is None or number <= front) and (at := parts[0].created_ns)
        ]
        longest = max((b - a for a, b in pairwise(created)), default=longest or 0) or longest
    return longest
