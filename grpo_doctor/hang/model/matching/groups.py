"""What each rank called in each process group, and what its members must agree on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import PurePath
from typing import TypeVar

from grpo_doctor.hang.dumps import Entry, GroupSeen, Recordings, Status
from grpo_doctor.hang.dumps.documents import GIVES_UP
from grpo_doctor.hang.dumps.model import Sizes
from grpo_doctor.hang.model.matching.model import Group, Signature
from grpo_doctor_probes.evidence import Frame

# Which shapes must be equal on every member. all_to_all has none: ranks may send different amounts.
_INPUTS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather"})
_OUTPUTS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "scatter"})
_UNTYPED = frozenset({"barrier", "coalesced", "other"})
MOST_SHAPES = 3

Key = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]  # operations, elements, types
_OF_TORCH = ("/torch/", "typing_extensions.py", "contextlib.py", "/functools.py")


class Signatures:
    """Small numbers for signatures, and for calls: a signature with the line that called it. Equal
    numbers, equal things. One for each matching, whose recordings must outlive it.
    """

    def __init__(self) -> None:
        self._calls: dict[object, int] = {}  # what an entry says of it: call
        self._number_of_call: dict[tuple[int, str], int] = {}
        self._of_call: list[tuple[int, str]] = []  # signature and site, by call
        self._number_of_key: dict[Key, int] = {}
        self._examples: list[tuple[Entry, ...]] = []  # by signature
        self._sites: dict[int, str] = {}  # by the identity of a stack: hashing one is slow

    def call(self, parts: tuple[Entry, ...]) -> int:
        """The number of a collective's call. A coalesced group is one collective."""
        content = _content(parts[0]) if len(parts) == 1 else tuple(map(_content, parts))
        number = self._calls.get(content)
        if number is None:
            pair = (self._signature_number(parts), self.site(parts[0]))
            number = self._number_of_call.setdefault(pair, len(self._of_call))
            if number == len(self._of_call):
                self._of_call.append(pair)
            self._calls[content] = number
        return number

    def key(self, call: int) -> int:
        """The number of a call's signature."""
        return self._of_call[call][0]

    def site_of(self, call: int) -> str:
        """The line of a call."""
        return self._of_call[call][1]

    def text(self, key: int) -> str:
        """A signature in words."""
        return self.signature(self._examples[key]).text()

    def site(self, entry: Entry) -> str:
        """The line of the job's own code that called it."""
        line = self._sites.get(id(entry.frames))
        if line is None:
            line = self._sites[id(entry.frames)] = site(entry.frames)
        return line

    def signature(self, parts: tuple[Entry, ...]) -> Signature:
        """In words."""
        first = parts[0]
        op = first.op if first.op != "other" else first.label
        if len(parts) > 1:
            op = f"group of {len(parts)} ({op}, ...)"
        shapes = first.output_sizes if first.op == "scatter" else first.input_sizes
        dtypes = first.output_dtypes if first.op == "scatter" else first.input_dtypes
        return Signature(op, _shapes(shapes), " ".join(sorted(set(dtypes))), self.site(first))

    def _signature_number(self, parts: tuple[Entry, ...]) -> int:
        key = _key(parts)
        number = self._number_of_key.setdefault(key, len(self._examples))
        if number == len(self._examples):
            self._examples.append(parts)
        return number


def _content(e: Entry) -> object:
    sizes_and_types = e.input_sizes, e.output_sizes, e.input_dtypes, e.output_dtypes
    return e.label, sizes_and_types, id(e.frames)


def site(frames: tuple[Frame, ...]) -> str:
    """`file:line in function` of the innermost frame that is not torch's."""
    for frame in frames:
        if not any(part in frame.file for part in _OF_TORCH):
            return f"{PurePath(frame.file).name}:{frame.line} in {frame.function}"
    return ""


def balanced(calls: list[tuple[Entry, ...]]) -> bool:
    """Return whether members of an all_to_all send as much, together, as they expect to receive.
    Other operations have nothing to balance.
    """
    entries = [parts[0] for parts in calls]
    if any(e.op != "all_to_all" or not e.input_sizes or not e.output_sizes for e in entries):
        return True
    sent = sum(prod(shape) for e in entries for shape in e.input_sizes)
    return sent == sum(prod(shape) for e in entries for shape in e.output_sizes)


def is_root(entry: Entry) -> bool:
    """Return whether this member collects, or hands out, what all others give or get."""
    return entry.op in {"gather", "scatter"} and (group_size(entry) or 1) > 1


def group_size(entry: Entry) -> int | None:
    """How many members the group has, from what one of them gathers or scatters."""
    part, whole = entry.input_sizes, entry.output_sizes
    if entry.op in {"reduce_scatter", "scatter"}:
        part, whole = whole, part
    elif entry.op not in {"all_gather", "gather"}:
        return None
    own, total = sum(map(prod, part)), sum(map(prod, whole))
    return total // own if own and total and not total % own else None


def _key(parts: tuple[Entry, ...]) -> Key:
    ops: list[str] = []
    elements: list[int] = []
    types: list[str] = []
    for e in parts:
        ops.append(e.label if e.op == "other" else e.op)
        if e.op in _INPUTS:
            elements += [sum(map(prod, e.input_sizes))]
        if e.op in _OUTPUTS:
            elements += [sum(map(prod, e.output_sizes))]
        if e.op not in _UNTYPED:
            types += sorted(set(e.output_dtypes if e.op == "scatter" else e.input_dtypes))
            types += sorted(set(e.output_dtypes)) if e.op in _OUTPUTS & _INPUTS else []
    return tuple(ops), tuple(elements), tuple(types)


def _shapes(sizes: Sizes) -> str:
    shown = [str(list(shape)) for shape in sizes[:MOST_SHAPES]]
    return ", ".join(shown) + (f", and {len(sizes) - MOST_SHAPES} more" if len(sizes) > 3 else "")


LONGEST_CONTEXT = 24
T = TypeVar("T")


@dataclass(slots=True)
class Track:
    """The collectives of a rank in a group, by sequence number; several entries are one coalesced
    collective. `last` is the newest that the ring still has, `unfinished` those of them that are
    not done, oldest first. `counter`: what its counter had for the last that
    was called, collective or transfer. `counts`: its counters, which lag behind, are all
    is left of what was called. `busy`: something of it is unfinished, not known what.
    """

    rank: int
    status: Status
    calls: dict[int, tuple[Entry, ...]] = field(default_factory=dict)
    unfinished: list[int] = field(default_factory=list)
    p2p: list[Entry] = field(default_factory=list)
    counts: bool = True
    busy: bool = False
    last: int | None = None
    counter: int = -1

    @property
    def mixed(self) -> bool:
        """Return whether its group has transfers too: then counters count both and show little."""
        return bool(self.p2p) or any(parts[0].p2p_sequence for parts in self.calls.values())

    @property
    def ring_lacks_newest(self) -> bool:
        """Whether its counter is ahead of a ring that keeps what is done. gloo records no transfer
        and counts them. A device's counter may be ahead of its ring by what was just given.
        """
        newest = self.calls.get(self.last, ()) if self.last is not None else ()
        by_host = bool(newest) and all(part.backend not in GIVES_UP for part in newest)
        keeps_done = any(part.done for parts in self.calls.values() for part in parts)
        return by_host and keeps_done and self.status.completed > (self.last or 0)

    @property
    def enqueued(self) -> int | None:
        """The last sequence number that the rank called, None for none known."""
        counted = self.status.enqueued if self.status.enqueued >= 0 else None
        if self.last is None or counted is None:
            return counted if self.last is None else self.last
        return max(self.last, counted)

    @property
    def front(self) -> int | None:
        """The oldest that is called and not done; from the counters where the ring lost it."""
        if self.unfinished:
            return self.unfinished[0]
        if not self.counts:
            return None
        lost = not self.calls and -1 < self.status.completed < self.status.enqueued
        return self.status.completed + 1 if lost else None

    @property
    def timed_out(self) -> bool:
        """Return whether the watchdog gave up on its oldest unfinished collective."""
        parts = self.calls.get(self.front, ()) if self.front is not None else ()
        return any(entry.timed_out for entry in parts)

    def done(self, sequence: int) -> bool:
        """Return whether the rank called this one and is through."""
        reached = self.enqueued
        if reached is None or sequence > reached or sequence in self.unfinished:
            return False
        return sequence in self.calls or self.front is None or sequence < self.front


def track(rank: int, entries: Sequence[Entry], status: Status, *, counts: bool = True) -> Track:
    """Sorts a rank's entries of one group into collectives and point-to-point operations."""
    made = Track(rank, status, counts=counts, counter=status.enqueued)
    calls = made.calls
    for entry in entries:
        if entry.is_p2p:
            made.p2p.append(entry)
        else:
            calls[entry.sequence] = (*calls.get(entry.sequence, ()), entry)
    made.unfinished = sorted(
        number for number, parts in calls.items() if not all(part.done for part in parts)
    )
    made.last = max(calls, default=None)
    return made


@dataclass(frozen=True, slots=True)
class History:
    """The calls of each collective of a group: `calls` by sequence number and rank, `usual` the one
    that most ranks made, `first_made` where each call first was. Numbers of calls are those of
    `Signatures`.
    """

    calls: Mapping[int, Mapping[int, int]]
    usual: Mapping[int, int]
    first_made: Mapping[int, int]

    def expected(self, sequence: int, *before: int) -> int | None:
        """The call that earlier rounds had at this point: of all earlier places that were reached
        the same way, the one with the longest way in common, the latest of those.

        `before` are calls that come between the recorded ones and this one, the latest first.
        """
        past = list(before)
        number = sequence - 1 - len(before)
        while number in self.usual:
            past.append(self.usual[number])
            number -= 1
        return continuation(past)

    def new(self, call: int, sequence: int) -> bool:
        """Whether no rank made this call before this collective, of a group that made others."""
        earliest = min(self.calls, default=sequence)
        return earliest < sequence <= self.first_made.get(call, sequence)


def history(tracks: Mapping[int, Track], signatures: Signatures) -> History:
    """Reads all collectives of a group."""
    calls: dict[int, dict[int, int]] = {}
    for rank, track in tracks.items():
        for sequence, parts in track.calls.items():
            calls.setdefault(sequence, {})[rank] = signatures.call(parts)
    first_made: dict[int, int] = {}
    for sequence in sorted(calls):
        for call in calls[sequence].values():
            first_made.setdefault(call, sequence)
    usual = {sequence: most_frequent(by_rank.values()) for sequence, by_rank in calls.items()}
    return History(calls, usual, first_made)


def most_frequent(numbers: Iterable[int]) -> int:
    """The most frequent number, the smallest of equally frequent ones."""
    counted = Counter(numbers)
    return min(counted, key=lambda n: (-counted[n], n))


def continuation(past: Sequence[T]) -> T | None:
    """What followed when things went before as they went now. `past` has the latest first."""
    best: T | None = None
    length = 0
    for ago in range(1, len(past)):
        common = _common(past, ago)
        if common > length:
            best, length = past[ago - 1], common
        if length >= LONGEST_CONTEXT:
            break
    return best


def _common(past: Sequence[object], ago: int) -> int:
    longest = min(len(past) - ago, LONGEST_CONTEXT)
    return next((n for n in range(longest) if past[n] != past[ago + n]), longest)


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
    return tuple(groups)


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
        for rank, own in tracks.items():  # without its counters, but for whether anything is left
            busy = own.counts and not own.p2p and own.status.completed < own.status.enqueued
            tracks[rank] = replace(own, status=Status(), counts=False, busy=busy)
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
    """Return whether somebody is through with more than another one called, or called more than its
    ring, which keeps the newest, has of it: the counters count transfers too.
    """
    tracks = tuple(tracks)
    if any(track.ring_lacks_newest for track in tracks):
        return True
    statuses = [track.status for track in tracks if not track.calls and track.status != Status()]
    return bool(statuses) and max(s.completed for s in statuses) > min(s.enqueued for s in statuses)


def _short(ranks: Sequence[int]) -> str:
    shown = ",".join(map(str, ranks[:8]))
    return shown + (f",..{ranks[-1]}({len(ranks)})" if len(ranks) > 8 else "")


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
