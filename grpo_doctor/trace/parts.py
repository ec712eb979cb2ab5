"""What is read of a run where its files are: by one process, or by each host what it has.

A part is as its files are: on their clocks, without roles. So it does not matter who reads which
files, and `merge` of the parts of all hosts is `merge` of one folder with all files.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.facts import RunFacts, of_all_hosts, read_facts
from grpo_doctor.trace.jsonfile import read_lines, read_object
from grpo_doctor.trace.model import Run
from grpo_doctor.trace.processes import Recorded, Recording, read_recording
from grpo_doctor.trace.samples import Samples, read_samples
from grpo_doctor.trace.spanfile import RECORD
from grpo_doctor_probes.record.rundir import (
    HOSTS,
    JOINED,
    METRICS_JSONL,
    NODES,
    RANKS,
    RUN_JSON,
    SAMPLES_SUFFIX,
    SPANS_SUFFIX,
)

MAIN = ""
NO_FACTS = RunFacts(Run(), "", 0, {}, None, None, ())
_FILES = ((RANKS, SPANS_SUFFIX), (HOSTS, SAMPLES_SUFFIX))
_PAYS_BYTES = 64 << 20  # of samples: some three seconds of one process
_FAST = 1  # of zlib: a third of the bytes; half as many again take four times as long


class Folder(msgspec.Struct, frozen=True):
    """A run directory within a run, by its place in it, and its files.

    `run` and `host` say which run it is of, and where that was started; empty without `run.json`,
    where something else started the processes, such as Ray. `itself` is the same for all hosts that
    share the disk that it is on.
    """

    place: str
    run: str
    host: str
    itself: str
    files: tuple[str, ...]


class Wanted(msgspec.Struct, frozen=True):
    """What a host is to read of a run directory: files, and what it says of the run if `facts`."""

    place: str
    files: tuple[str, ...]
    facts: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A run directory within a run, or some of its files: `facts` may be `NO_FACTS`."""

    place: str
    facts: RunFacts
    recorded: tuple[Recorded, ...]
    sampled: tuple[tuple[str, tuple[Samples, ...]], ...]
    metrics: tuple[dict[str, Any], ...] = ()
    metrics_problem: str | None = None

    @property
    def recordings(self) -> list[Recording]:
        """The processes, by the names of their files."""
        return [each.recording for each in self.recorded if each.recording is not None]

    @property
    def problems(self) -> list[str]:
        """What is wrong with their files."""
        return [problem for each in self.recorded for problem in each.problems]

    @property
    def sections(self) -> list[Samples]:
        """What was sampled, by host."""
        return [section for _, sections in self.sampled for section in sections]


def folders(run: Path) -> list[Folder]:
    """Return the run directories within a run that are on this host: its own comes first."""
    others = [path for kind in (NODES, JOINED) for path in sorted((run / kind).glob("*"))]
    return [_folder(run, path) for path in (run, *others)]


def _folder(run: Path, path: Path) -> Folder:
    facts, _ = read_object(path / RUN_JSON)
    identity = f"{facts.get('id')}, {facts.get('started_unix_ns')}" if facts else ""
    state = (path / RANKS if (path / RANKS).is_dir() else path).stat()
    files = [p.name for kind, end in _FILES for p in sorted((path / kind).glob(f"*{end}"))]
    place = MAIN if path == run else path.relative_to(run).as_posix()
    itself = f"{state.st_ino}, {state.st_mtime_ns}"
    return Folder(place, identity, str(facts.get("host") or ""), itself, tuple(files))


def shares(
    hosts: Sequence[str], here: Sequence[Sequence[Folder]]
) -> tuple[list[list[Wanted]], list[str]]:
    """Divide a run among the hosts that have its files; each file is read once.

    Args:
        hosts: their names.
        here: the run directories on each of them.

    Returns:
        What each of them is to read, and a sentence for each folder of another run.
    """
    wanted: list[list[Wanted]] = [[] for _ in hosts]
    notes: list[str] = []
    for place in dict.fromkeys(folder.place for each in here for folder in each):
        at = [(host, f) for host, each in enumerate(here) for f in each if f.place == place]
        runs = Counter(folder.run for _, folder in at if folder.run).most_common(1)
        same: dict[str, dict[int, Folder]] = {}
        for host, folder in at:
            if folder.run and folder.run != runs[0][0]:
                notes.append(f"{hosts[host]} has another run at this path; it is left out")
            else:
                same.setdefault(folder.run or folder.itself, {})[host] = folder
        for having in same.values():
            for host, share in _divided(hosts, having).items():
                wanted[host].append(share)
    return wanted, notes


def _divided(hosts: Sequence[str], having: dict[int, Folder]) -> dict[int, Wanted]:
    """One run directory, which some hosts have, or copies of: its own host reads what it says of
    the run, and of another host's all; the others help with the many files of the run's own."""
    place = next(iter(having.values())).place
    names = {host: set(folder.files) for host, folder in having.items()}
    own = next((host for host, f in having.items() if hosts[host] == f.host), next(iter(having)))
    reads: dict[int, list[str]] = {own: []}
    for number, name in enumerate(sorted(set().union(*names.values()))):
        able = [host for host, there in names.items() if name in there]
        host = own if place != MAIN and own in able else able[number % len(able)]
        reads.setdefault(host, []).append(name)
    return {host: Wanted(place, tuple(files), host == own) for host, files in reads.items()}


def read_part(
    run: Path,
    place: str,
    files: Collection[str],
    *,
    facts: bool = True,
    sections: Callable[[Path], Sequence[Samples]] = read_samples,
) -> Part:
    """Read some files of one run directory, and with `facts` what it says of the run."""
    path = run / place
    metrics, problem = read_lines(path / METRICS_JSONL) if facts and place == MAIN else ([], None)
    names = sorted(files)
    return Part(
        place,
        read_facts(path) if facts else NO_FACTS,
        tuple(read_recording(path / RANKS / n) for n in names if n.endswith(SPANS_SUFFIX)),
        tuple(
            (name, tuple(sections(path / HOSTS / name)))
            for name in names
            if name.endswith(SAMPLES_SUFFIX)
        ),
        tuple(metrics),
        problem,
    )


def read_parts(run: Path, jobs: int | None = 1) -> list[Part]:
    """Read a run. So many processes read its samples, which take ten times as long as its spans;
    with None as many as this process has CPUs, if there are enough samples for that to pay.
    """
    every = folders(run)
    paths = [
        run / folder.place / HOSTS / name
        for folder in every
        for name in folder.files
        if name.endswith(SAMPLES_SUFFIX)
    ]
    if jobs is None:
        enough = sum(path.stat().st_size for path in paths) >= _PAYS_BYTES
        jobs = len(os.sched_getaffinity(0)) if enough else 1
    workers = min(jobs, len(paths))
    if workers > 1:
        with suppress(BrokenProcessPool), _workers(workers) as pool:
            sections = pool.map(read_samples, paths)  # in the order in which they are asked for
            return [
                read_part(run, folder.place, folder.files, sections=lambda _: next(sections))
                for folder in every
            ]
    return [read_part(run, folder.place, folder.files) for folder in every]


def _workers(count: int) -> ProcessPoolExecutor:
    # A fork may inherit locks of numpy's threads.
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def whole_parts(parts: Iterable[Part]) -> list[Part]:
    """Join what several hosts read of one run directory; the run's own comes first."""
    ordered = sorted(parts, key=lambda part: _order(part.place))
    return [_joined(list(same)) for _, same in groupby(ordered, key=lambda part: part.place)]


def _order(place: str) -> tuple[bool, bool, str]:
    return place != MAIN, place.startswith(JOINED), PurePosixPath(place).name


def _joined(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    facts = sorted((p.facts for p in parts), key=lambda f: (f.start_ns is None, f == NO_FACTS))
    said = next((part for part in parts if part.metrics), parts[0])
    return replace(
        said,
        facts=of_all_hosts(*facts),
        recorded=_once((r for p in parts for r in p.recorded), _identity),
        sampled=_once(
            (s for p in parts for s in p.sampled), lambda s: str([x.clock for x in s[1]])
        ),
    )


_File = TypeVar("_File", Recorded, tuple[str, tuple[Samples, ...]])


def _once(files: Iterable[_File], identity: Callable[[_File], str]) -> tuple[_File, ...]:
    """Files by name; of copies one. A restarted rank may have recorded on another host."""
    return tuple(
        dict(sorted((((f[0], identity(f)), f) for f in files), key=itemgetter(0))).values()
    )


def _identity(recorded: Recorded) -> str:
    if recorded.recording is None:
        return ""
    header = recorded.recording.content.header
    return f"{header.pid}, {header.start_monotonic_ns}, {header.start_unix_ns}"


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """Parts as JSON, whose integers may have any size, and the arrays that are in it as numbers."""

    text: bytes
    arrays: list[tuple[str, bytes]]


def packed(parts: list[Part]) -> bytes:
    """Return parts as bytes, some 10 a span."""
    arrays: list[tuple[str, bytes]] = []

    def number_of(array: object) -> int:
        if not isinstance(array, np.ndarray):
            raise NotImplementedError(type(array))
        arrays.append(("" if array.dtype == RECORD else array.dtype.str, array.tobytes()))
        return len(arrays) - 1

    text = msgspec.json.encode(parts, enc_hook=number_of)
    return zlib.compress(msgspec.msgpack.encode(_Packed(text, arrays)), _FAST)


def unpacked(data: bytes) -> list[Part]:
    """Return the parts. Raises ValueError for other data than that of `packed`."""
    try:
        whole = msgspec.msgpack.decode(zlib.decompress(data), type=_Packed)

        def array_at(_: type, number: Any) -> NDArray[Any]:
            kind, content = whole.arrays[number]
            return np.frombuffer(content, np.dtype(kind) if kind else RECORD)

        return msgspec.json.decode(whole.text, type=list[Part], dec_hook=array_at)
    except (zlib.error, msgspec.DecodeError) as problem:
        raise ValueError(str(problem)) from problem
