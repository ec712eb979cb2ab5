"""From raw dumps to recordings: which rank each is of, and one for each rank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import PurePath

import msgspec

from grpo_doctor.hang.dumps.consistency import of_one_moment, of_one_world
from grpo_doctor.hang.dumps.documents import NotADumpError, load
from grpo_doctor.hang.dumps.entries import GIVES_UP, SharedValues, clean
from grpo_doctor.hang.dumps.model import DumpProblem, Entry, Recording, Recordings
from grpo_doctor.hang.dumps.normalise import normalise
from grpo_doctor_probes.evidence import FlightDump

NAME_IT = "Put the rank at the end of the file's name, as torch does: trace_rank_3."
_IN_NAME = re.compile(r"rank[_\-. =]?(\d{1,7})", re.IGNORECASE)


def read(dumps: Iterable[FlightDump]) -> Recordings:
    """Parses and normalises. Never executes anything of a dump; never raises for its content.

    Several dumps of a rank become one recording: the newest of each recorder, which knows whether
    anything moved since the ones before. The order of `dumps` does not matter.
    """
    recorded: list[Recording] = []
    problems: list[DumpProblem] = []
    shared = SharedValues()
    for dump in dumps:
        source = clean(dump.source)
        if not dump.data:
            problems.append(DumpProblem(source, dump.rank, clean(dump.problem) or "it is empty"))
            continue
        try:
            recording, unusable = normalise(load(dump.data), dump, shared)
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
    checked = [_checked(_from_name(recording), problems) for recording in ordered]
    identified = _eliminate(checked)
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
    """The rank in a file name that also has a host name in it."""
    if recording.rank is not None:
        return recording
    numbers = _IN_NAME.findall(PurePath(recording.sources[0].partition(":")[2]).name)
    return msgspec.structs.replace(recording, rank=int(numbers[-1])) if numbers else recording


def _checked(recording: Recording, problems: list[DumpProblem]) -> Recording:
    """A rank that its own groups rule out is a local rank, or the file was renamed."""
    possible = _possible(recording)
    if recording.rank is None or not possible or recording.rank in possible:
        return recording
    only = next(iter(possible)) if len(possible) == 1 else None
    instead = f"it is from rank {only}" if only is not None else "its rank is unknown"
    text = (
        f"named rank {recording.rank}, but its process groups do not contain that rank: {instead}"
    )
    problems.append(DumpProblem(recording.sources[0], only, text, NAME_IT))
    return msgspec.structs.replace(recording, rank=only)


def _possible(recording: Recording) -> frozenset[int]:
    """Return the ranks that this can be of: those in all groups, whose sends and receives agree.
    Empty where nothing is recorded.
    """
    lists = [frozenset(group.ranks) for group in recording.groups if group.ranks]
    possible = frozenset.intersection(*lists) if lists else frozenset()
    sender = _sender(recording)
    return possible & {sender} if sender is not None and sender in possible else possible


def _sender(recording: Recording) -> int | None:
    """The rank that a send or receive of its own names."""
    members = {(group.name, group.backend): group.ranks for group in recording.groups}
    for entry in recording.entries:
        local = {"send": entry.source, "recv": entry.target}.get(entry.op)
        ranks = members.get((entry.group, entry.backend), ())
        if local is not None and local < len(ranks):
            return ranks[local]
    return None


def _eliminate(recordings: Sequence[Recording]) -> list[Recording]:
    """Unknown ranks, where one choice is left."""
    settled = list(recordings)
    while True:
        used = {recording.rank for recording in settled if recording.rank is not None}
        certain = None
        for at, recording in enumerate(settled):
            ranks = _possible(recording) - used if recording.rank is None else frozenset()
            if len(ranks) == 1:
                certain = at, next(iter(ranks))
                break
        if certain is None:
            return settled
        at, rank = certain
        settled[at] = msgspec.structs.replace(settled[at], rank=rank)


def _join(rank: int, recordings: Sequence[Recording], problems: list[DumpProblem]) -> Recording:
    """The newest of each recorder, and whether anything moved since the ones before."""
    by_recorder: dict[str, list[Recording]] = defaultdict(list)
    for recording in recordings:
        by_recorder[_recorder(recording)].append(recording)
    if len(by_recorder) > 1 and not any(p.entries or p.groups for p in by_recorder.get("", ())):
        by_recorder.pop("", None)
    newest: list[Recording] = []
    moved: list[bool] = []
    for same in by_recorder.values():
        last = max(same, key=lambda p: (p.at_unix_ns, p.sources))
        newest.append(last)
        for recording in same:
            if recording is last:
                continue
            if not _is_same_process(recording, last):
                text = f"two processes claim rank {rank}; {last.sources[0]} is used"
                problems.append(DumpProblem(recording.sources[0], rank, text, NAME_IT))
            elif recording.at_unix_ns < last.at_unix_ns:
                moved.append(_mark(recording) != _mark(last))
    return msgspec.structs.replace(
        newest[0],
        sources=tuple(source for recording in newest for source in recording.sources),
        library=next((recording.library for recording in newest if recording.library), ""),
        at_unix_ns=max(recording.at_unix_ns for recording in newest),
        groups=tuple(group for recording in newest for group in recording.groups),
        entries=_in_order([recording.entries for recording in newest]),
        moved=any(moved) if moved else None,
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


def _mark(recording: Recording) -> tuple[object, ...]:
    """What any progress changes."""
    last = recording.entries[-1].record if recording.entries else -1
    counters = sorted((g.group_id, g.status.enqueued, g.status.completed) for g in recording.groups)
    return last, sum(1 for e in recording.entries if e.done), counters


def _in_order(rings: Sequence[tuple[Entry, ...]]) -> tuple[Entry, ...]:
    """Two recorders' entries as the process enqueued them."""
    if len(rings) == 1:
        return rings[0]
    return tuple(sorted(chain.from_iterable(rings), key=lambda entry: entry.created_ns or 0))
