"""Where one process group stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from grpo_doctor.hang.model.matching.model import Camp, Kind, Seat, Standing
from grpo_doctor.hang.model.matching.scene import Scene
from grpo_doctor.hang.model.matching.tracks import Track


def standing(scene: Scene, key: str, heads: frozenset[int]) -> Standing:
    """The oldest collective of the group that a rank may be running and that is not done
    everywhere, and who is where with it; of those that merely stand behind others where none is.

    `heads` are the numbers of its collectives at the head of a stream.
    """
    tracks = scene.gathered[key].tracks
    given = {track.front for track in tracks.values() if track.front is not None}
    found = [_at(scene, key, front) for front in sorted(heads or given)]
    telling = [one for one in found if one.kind in {"missing", "mismatch"}]
    return next(iter([*telling, *found]), None) or _fine(scene, key)


def _fine(scene: Scene, key: str) -> Standing:
    tracks = scene.gathered[key].tracks
    gap = _longest_gap_ns(tracks, None)
    group = scene.gathered[key].group
    return Standing(group, "fine", _seats(scene, key), longest_gap_ns=gap)


def _seats(scene: Scene, key: str) -> tuple[Seat, ...]:
    group, tracks = scene.gathered[key].group, scene.gathered[key].tracks
    return tuple(tracks[r].seat() if r in tracks else Seat(r) for r in group.members)


def _at(scene: Scene, key: str, front: int) -> Standing:
    group, tracks = scene.gathered[key].group, scene.gathered[key].tracks
    seats = _seats(scene, key)
    arrived = tuple(s.rank for s in seats if s.enqueued is not None and s.enqueued >= front)
    through = tuple(rank for rank in arrived if tracks[rank].done(front))
    unheard = tuple(seat.rank for seat in seats if seat.rank not in scene.heard)
    missing = tuple(s.rank for s in seats if s.rank in scene.heard and s.rank not in arrived)
    waiting = [seat for seat in seats if seat.rank in arrived and seat.rank not in through]
    camps, even = scene.sides(scene.waiting.meetings.collective(key, front))
    unknown = group.size is not None and group.size > len(group.members)
    alone = len(group.members) == 1 and group.inferred
    before = scene.pasts[key].expected(front)
    signatures = scene.signatures
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
        expected="" if before is None else signatures.text(signatures.key(before)),
        since_ns=min((at for seat in waiting if (at := seat.waiting_since_ns)), default=None),
        longest_gap_ns=_longest_gap_ns(tracks, front),
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
