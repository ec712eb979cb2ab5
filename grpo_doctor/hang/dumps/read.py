"""From raw dumps to recordings: one per rank, of one job and one moment.

A folder also has dumps of earlier runs, of an engine's own world, and of ranks that had continued
when the others were written.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from grpo_doctor.hang.dumps.documents import GIVES_UP, NotADumpError, clean, load
from grpo_doctor.hang.dumps.model import DumpProblem, Entry, Recording, Recordings
from grpo_doctor.hang.dumps.normalise import normalise
from grpo_doctor.hang.wording import seconds_text
from grpo_doctor_probes.evidence import FlightDump

ALONE = "Give --dumps a folder with the dumps of one job and one hang."
_DEFAULT = "default_pg"
# No member can be through before all have come. An all_to_all skips who gets nothing from it.
_OF_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier"})
_NS = 1_000_000_000
_CLOCKS_NS = 60 * _NS  # clocks of hosts and file servers differ by less
_LONGEST_WAIT_NS = 3600 * _NS  # torch ends a job after 10 (NCCL) or 30 minutes, if not told more
_FOR_EVER = 1 << 63
_RULED_OUT = "it is from another run or time than most others: their collectives contradict it"


class _Span(NamedTuple):
    """Where a recording may be in common with others: times, or numbers of one group."""

    rank: int
    low: int
    high: int
    is_file: bool


def of_one_world(recordings: Sequence[Recording]) -> tuple[list[Recording], list[DumpProblem]]:
    """The parts whose default group has the members that most list, and those that list none."""
    worlds = [_world(recording) for recording in recordings]
    listed = Counter(world for world in worlds if world)
    if len(listed) < 2:
        return list(recordings), []
    usual = max(listed, key=lambda world: (listed[world], len(world), world))
    usable: list[Recording] = []
    problems: list[DumpProblem] = []
    for recording, world in zip(recordings, worlds):
        if world in ((), usual):
            usable.append(recording)
            continue
        reason = f"it is from a job of {len(world)} ranks, most others are from one of {len(usual)}"
        problems.append(_exclusion(recording, reason))
    return usable, problems


def _exclusion(recording: Recording, reason: str, *, at_once: bool = False) -> DumpProblem:
    remedy = ALONE if recording.from_file else ""
    return DumpProblem(recording.sources[0], recording.rank, f"{reason}; not used", remedy, at_once)


def _world(recording: Recording) -> tuple[int, ...]:
    """The members of the default group, in order; empty where they are not listed."""
    for group in recording.groups:
        first = (group.name, group.description) == ("0", "")
        if group.ranks and (group.description == _DEFAULT or first):
            return tuple(sorted(group.ranks))
    return ()


def of_one_moment(recordings: Sequence[Recording]) -> tuple[list[Recording], list[DumpProblem]]:
    """Without the files that contradict most of the others. Who is behind in a file of an earlier
    moment, or ahead in one of a later, is not to blame.
    """
    apart: dict[int, str] = {}
    written = [_written(recording) for recording in recordings if recording.rank is not None]
    for rank, later_ns in _strangers(written, apart):
        age = seconds_text(abs(later_ns) / _NS)
        apart[rank] = (
            f"its last call is {age} newer than those of the other files"
            if later_ns > 0
            else f"it was written {age} before the last calls of the other files"
        )
    active = [span for recording in recordings if (span := _active(recording)) is not None]
    for rank, later_ns in _strangers(active, apart):
        age = f"{seconds_text(abs(later_ns) / _NS)} {'newer' if later_ns > 0 else 'older'}"
        apart[rank] = f"its calls are {age} than those of most others: it is from another run"
    last_ns = {span.rank: span.low for span in written}
    at_once: set[int] = set()
    for reaches in _reaches(recordings):
        strangers = {rank for rank, _ in _strangers(reaches, apart)}
        used = [span.rank for span in reaches if span.rank not in strangers | apart.keys()]
        # Dumps of a running job are written one after the other: those of one minute are near.
        neighbours = {
            rank
            for rank in strangers
            if any(abs(last_ns[rank] - last_ns[peer]) <= _CLOCKS_NS for peer in used)
        }
        excluded = strangers if len(used) > len(strangers) else strangers - neighbours
        apart |= dict.fromkeys(excluded, _RULED_OUT)
        at_once |= neighbours
    problems = [
        _exclusion(recording, apart[recording.rank], at_once=recording.rank in at_once)
        for recording in recordings
        if recording.rank in apart
    ]
    return [recording for recording in recordings if recording.rank not in apart], problems


def _strangers(spans: Sequence[_Span], apart: Container[int]) -> Iterator[tuple[int, int]]:
    """The files that have nothing in common with most, and how much later than those they are, less
    than zero if earlier; where no moment has most, those of the earlier ones.
    """
    candidates = [span for span in spans if span.rank not in apart]
    if not candidates:
        return
    common = _common(candidates)
    inside = [span for span in candidates if span.low <= common <= span.high]
    begin, end = max(span.low for span in inside), min(span.high for span in inside)
    for span in candidates:
        if span.is_file and span.high < common:
            yield span.rank, span.high - begin
        elif span.is_file and span.low > common:
            yield span.rank, span.low - end


def _common(spans: Sequence[_Span]) -> int:
    """What the most spans have in common; of equally many, the later."""
    steps = Counter[int]()
    for span in spans:
        steps[span.low] += 1
        steps[span.high + 1] -= 1
    points = sorted(steps)
    together = dict(zip(points, accumulate(steps[point] for point in points)))
    return max(points, key=lambda point: (together[point], point))


def _written(recording: Recording) -> _Span:
    """Return the span from its last call to the write of its file: what it lacks was not called by
    then. A copy is younger than its original, so a file that seems older than its calls shows
    nothing.
    """
    low = max((entry.created_ns or 0 for entry in recording.entries[-1:]), default=0)
    high = recording.at_unix_ns + _CLOCKS_NS
    high = high if low <= high > _CLOCKS_NS else _FOR_EVER
    return _Span(recording.rank or 0, low, high, recording.from_file)


def _active(recording: Recording) -> _Span | None:
    """From its first call to when others of the same run must have called, too."""
    times = [entry.created_ns or 0 for entry in recording.entries[:1] + recording.entries[-1:]]
    if recording.rank is None or not times or not all(times):
        return None
    return _Span(recording.rank, min(times), max(times) + _LONGEST_WAIT_NS, recording.from_file)


def _reaches(recordings: Sequence[Recording]) -> Iterator[list[_Span]]:
    """Yield, of every group whose members are listed, largest first, the spans from what each
    member has finished to its last call. No rank has finished what a member has not called.
    """
    spans: dict[tuple[str, str, tuple[int, ...]], list[_Span]] = defaultdict(list)
    partial = _partial_groups(recordings)
    for recording in recordings:
        if recording.rank is None:
            continue
        completed: dict[tuple[str, str], int] = {}
        called: dict[tuple[str, str], int] = {}
        for entry in recording.entries:
            if entry.is_p2p or entry.backend not in GIVES_UP:
                continue
            key = entry.group, entry.backend
            called[key] = max(called.get(key, -1), entry.sequence)
            if entry.done and _waits_for_all(entry):
                completed[key] = max(completed.get(key, -1), entry.sequence)
        for group in recording.groups:
            key = group.name, group.backend
            if group.ranks and key in called:
                through = completed.get(key, -1)
                if key not in partial:
                    through = max(through, group.status.completed)
                last = max(called[key], group.status.enqueued, through)
                reach = _Span(recording.rank, through, last, recording.from_file)
                spans[(*key, group.ranks)].append(reach)
    for key_of_all in sorted(spans, key=lambda key: (-len(spans[key]), key)):
        yield spans[key_of_all]


def _partial_groups(recordings: Sequence[Recording]) -> set[tuple[str, str]]:
    """Groups of which a counter does not say that all members have come: some operation of theirs
    does not wait for all, or transfers are counted with the rest.
    """
    return {
        (entry.group, entry.backend)
        for recording in recordings
        for entry in recording.entries
        if entry.is_p2p or entry.p2p_sequence or not _waits_for_all(entry)
    }


def _waits_for_all(entry: Entry) -> bool:
    """Return whether it waits for all: without an element NCCL does nothing and does not wait."""
    return entry.op in _OF_ALL and not any(0 in shape for shape in entry.input_sizes)


NAME_IT = "Put the rank at the end of the file's name, as torch does: trace_rank_3."
_IN_NAME = re.compile(r"rank[_\-. =]?(\d{1,7})", re.IGNORECASE)


def read(dumps: Iterable[FlightDump]) -> Recordings:
    """Parses and normalises. Never executes anything of a dump; never raises for its content.

    Several dumps of a rank become one recording: the newest of each recorder. The order of `dumps`
    does not matter.
    """
    recorded: list[Recording] = []
    problems: list[DumpProblem] = []
    for dump in dumps:
        source = clean(dump.source)
        if not dump.data:
            problems.append(DumpProblem(source, dump.rank, clean(dump.problem) or "it is empty"))
            continue
        try:
            recording, unusable = normalise(load(dump.data), dump)
        except NotADumpError as error:
            problems.append(DumpProblem(source, dump.rank, str(error)))
            continue
        recorded.append(recording)
        problems += [DumpProblem(source, dump.rank, text) for text in unusable]
    recordings, unsettled = _settled(recorded)
    ordered = sorted((*problems, *unsettled), key=lambda p: (p.rank is None, p.rank or 0, p.source))
    return Recordings(recordings, tuple(ordered))


def _settled(
    recordings: Iterable[Recording],
) -> tuple[tuple[Recording, ...], tuple[DumpProblem, ...]]:
    """Gives each recording its rank, then joins those of one rank. What is of another job or moment
    than most is left out.
    """
    same, problems = of_one_world(list(recordings))
    ordered = sorted(same, key=lambda p: (p.rank is None, p.rank or 0, p.at_unix_ns, p.sources))
    identified = [_from_name(recording) for recording in ordered]
    by_rank: dict[int, list[Recording]] = defaultdict(list)
    unknown = [recording for recording in identified if recording.rank is None]
    untold = "nothing in it shows which rank it is from"
    problems += [DumpProblem(recording.sources[0], None, untold, NAME_IT) for recording in unknown]
    for recording in identified:
        if recording.rank is not None:
            by_rank[recording.rank].append(recording)
    joined = [_join(rank, by_rank[rank], problems) for rank in sorted(by_rank)]
    usable, apart = of_one_moment(joined)
    return (*usable, *unknown), (*problems, *apart)


def _from_name(recording: Recording) -> Recording:
    if recording.rank is not None:
        return recording
    numbers = _IN_NAME.findall(PurePath(recording.sources[0].partition(":")[2]).name)
    return msgspec.structs.replace(recording, rank=int(numbers[-1])) if numbers else recording


def _join(rank: int, recordings: Sequence[Recording], problems: list[DumpProblem]) -> Recording:
    by_recorder: dict[str, list[Recording]] = defaultdict(list)
    for recording in recordings:
        by_recorder[_recorder(recording)].append(recording)
    if len(by_recorder) > 1 and not any(p.entries or p.groups for p in by_recorder.get("", ())):
        by_recorder.pop("", None)
    newest: list[Recording] = []
    for same in by_recorder.values():
        last = max(same, key=lambda p: (p.at_unix_ns, p.sources))
        newest.append(last)
        text = f"two processes claim rank {rank}; {last.sources[0]} is used"
        problems += [
            DumpProblem(recording.sources[0], rank, text, NAME_IT)
            for recording in same
            if not _is_same_process(recording, last)
        ]
    rings = [recording.entries for recording in newest]
    merged = sorted(chain.from_iterable(rings), key=lambda entry: entry.created_ns or 0)
    return msgspec.structs.replace(
        newest[0],
        sources=tuple(source for recording in newest for source in recording.sources),
        library=next((recording.library for recording in newest if recording.library), ""),
        at_unix_ns=max(recording.at_unix_ns for recording in newest),
        groups=tuple(group for recording in newest for group in recording.groups),
        entries=tuple(merged) if len(rings) > 1 else rings[0],
    )


def _recorder(recording: Recording) -> str:
    """torch keeps NCCL's records apart from all others, so a rank can have two dumps."""
    if not recording.entries:
        return ""
    return "nccl" if recording.entries[-1].backend in GIVES_UP else "fr"


def _is_same_process(first: Recording, second: Recording) -> bool:
    """Records of one number in two dumps of a process were created at the same time."""
    created = {e.record: e.created_ns for e in first.entries}
    return all(created.get(e.record, e.created_ns) == e.created_ns for e in second.entries)
