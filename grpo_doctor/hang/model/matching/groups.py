"""Which recordings speak of the same process group, and who is in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from grpo_doctor.hang.dumps import Entry, GroupSeen, Recordings, Status
from grpo_doctor.hang.model.matching.model import Group
from grpo_doctor.hang.model.matching.signatures import group_size
from grpo_doctor.hang.model.matching.tracks import Track, track

DEFAULT = "default_pg"
MOST_RANKS = 200_000  # a dump that names a rank beyond that is damaged, or wants our memory


@dataclass(frozen=True, slots=True)
class Gathered:
    """A group with what its members recorded of it. `local_number` is the members' own number for
    it, where it is the same.
    """

    group: Group
    tracks: dict[int, Track]
    local_number: str = ""


@dataclass(frozen=True, slots=True)
class _Sight:
    rank: int
    group: GroupSeen
    entries: Sequence[Entry]
    counts: bool  # no entry says more than the counters


def gather(recordings: Recordings, world_size: int | None) -> tuple[Gathered, ...]:
    """The groups of the job, in a fixed order. Recordings of unknown rank do not count."""
    sights: dict[tuple[str, str], list[_Sight]] = defaultdict(list)
    unused: dict[str, list[_Sight]] = defaultdict(list)
    for recording in recordings.ranks:
        if recording.rank is None:
            continue
        parts: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        counts = _counts(recording.entries)
        for entry in recording.entries:
            parts[entry.group, entry.backend].append(entry)
        for group in recording.groups:
            if group.name:
                key = (group.name, group.backend)
                sight = _Sight(recording.rank, group, parts.get(key, ()), counts)
                (sights[key] if group.backend else unused[group.name]).append(sight)
    used = {name for name, _ in sights}
    for name in unused.keys() - used:  # counters are all that was dumped
        sights[name, ""] = unused[name]
    groups = []
    for (name, backend), same_name in sorted(sights.items(), key=lambda item: item[0]):
        counters = unused.get(name, ()) if backend else ()
        for ranks, same in _by_ranks([*same_name, *counters]).items():
            if any(sight.entries or sight.group.status != Status() for sight in same):
                groups.append(_gathered(name, backend, ranks, same, world_size))
    return _with_implied_members(tuple(groups), recordings)


def _by_ranks(sights: Sequence[_Sight]) -> dict[tuple[int, ...], list[_Sight]]:
    """Groups of one name with different members are different groups (`split_group`, a data
    parallel group per tensor rank). Who lists no members belongs to a list that has it.
    """
    listed = sorted({sight.group.ranks for sight in sights if sight.group.ranks})
    by_ranks: dict[tuple[int, ...], list[_Sight]] = defaultdict(list)
    for sight in sights:
        ranks = sight.group.ranks or next((r for r in listed if sight.rank in r), ())
        by_ranks[ranks].append(sight)
    return by_ranks


def _gathered(
    name: str,
    backend: str,
    ranks: tuple[int, ...],
    sights: Sequence[_Sight],
    world_size: int | None,
) -> Gathered:
    tracks: dict[int, Track] = {}
    for sight in sights:
        if sight.entries or sight.group.status != Status():
            status, counts = sight.group.status, sight.counts
            tracks[sight.rank] = track(sight.rank, sight.entries, status, counts=counts)
    if any(track.mixed for track in tracks.values()) or _contradict(tracks.values()):
        tracks = {rank: _uncounted(track) for rank, track in tracks.items()}
    descriptions = Counter(s.group.description for s in sights if s.group.description)
    description = min(descriptions, key=lambda d: (-descriptions[d], d), default="")
    everyone = description == DEFAULT or (name == "0" and not description)
    members = ranks or tuple(sorted({s.rank for s in sights}))
    if not ranks and everyone and world_size:
        members = tuple(range(world_size))
    sizes = Counter(n for s in sights for n in map(group_size, s.entries[-50:]) if n is not None)
    counted = len(ranks) or (len(members) if everyone and world_size else None)
    size = counted or max(sizes, key=lambda n: (sizes[n], n), default=None)
    group = Group(
        key=f"{backend}/{name}" + (f"/{_short(ranks)}" if ranks else ""),
        name=name,
        description=description,
        backend=backend,
        members=members,
        inferred=not ranks,
        size=size,
    )
    numbers = {s.group.group_id for s in sights}
    local_number = numbers.pop() if len(numbers) == 1 else f"of {group.key}"
    return Gathered(group, tracks, local_number)


def _counts(entries: Sequence[Entry]) -> bool:
    """Return whether a group without entries may still have unfinished operations: nothing but
    counters was dumped, or the ring is full of later ones.
    """
    lost = bool(entries) and min(entry.record for entry in entries) > 1
    return not entries or (lost and any(entry.done for entry in entries))


def _contradict(tracks: Iterable[Track]) -> bool:
    """Whether somebody is through with more than another one called, or called more than its ring,
    which keeps the newest, has of it: the counters count transfers too.
    """
    tracks = tuple(tracks)
    if any(track.ring_lacks_newest for track in tracks):
        return True
    statuses = [track.status for track in tracks if not track.calls and track.status != Status()]
    return bool(statuses) and max(s.completed for s in statuses) > min(s.enqueued for s in statuses)


def _uncounted(track: Track) -> Track:
    """Without its counters, but for whether anything is left to do."""
    busy = track.counts and not track.p2p and track.status.completed < track.status.enqueued
    return replace(track, status=Status(), counts=False, busy=busy)


def _short(ranks: Sequence[int]) -> str:
    shown = ",".join(map(str, ranks[:8]))
    return shown + (f",..{ranks[-1]}({len(ranks)})" if len(ranks) > 8 else "")


def _with_implied_members(
    groups: tuple[Gathered, ...], recordings: Recordings
) -> tuple[Gathered, ...]:
    """Members of gloo groups that have not used them yet. A rank numbers the groups it is in from
    0, and names count over the whole job, so a gap between two of its numbers that is as wide as
    the gap between their names means that it is in all groups between.
    """
    names = sorted(
        int(g.group.name) for g in groups if g.group.inferred and g.group.name.isdecimal()
    )
    implied: dict[int, set[int]] = defaultdict(set)
    for recording in recordings.ranks:
        numbered = sorted(
            (int(group.group_id), int(group.name))
            for group in recording.groups
            if group.name.isdecimal() and group.group_id.isdecimal()
        )
        for (number, name), (next_number, next_name) in pairwise(numbered):
            if recording.rank is not None and next_name - name == next_number - number:
                for between in (n for n in names if name < n < next_name):
                    implied[between].add(recording.rank)
    return tuple(_joined_by(gathered, implied) for gathered in groups)


def _joined_by(gathered: Gathered, implied: dict[int, set[int]]) -> Gathered:
    group = gathered.group
    more = implied.get(int(group.name), set()) if group.name.isdecimal() else set()
    if not group.inferred or more <= set(group.members):
        return gathered
    members = tuple(sorted({*group.members, *more}))
    return replace(gathered, group=msgspec.structs.replace(group, members=members))


def world(recordings: Recordings, declared: int | None) -> int | None:
    """Return how many ranks the job has: as declared, or as many as the recordings name."""
    ranks = (rank for rank in _mentioned(recordings) if rank < MOST_RANKS)
    largest = max(ranks, default=-1) + 1
    return max(declared or 0, largest) or None


def _mentioned(recordings: Recordings) -> Iterable[int]:
    for recording in recordings.ranks:
        if recording.rank is not None:
            yield recording.rank
    for ranks in {group.ranks for recording in recordings.ranks for group in recording.groups}:
        yield from ranks
