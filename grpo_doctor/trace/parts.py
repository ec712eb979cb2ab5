"""What is read of a run where its files are: by one process, or by each host what it has.

A part is as its files are: on their clocks, without roles. So it does not matter who reads which
files, and `merge` of the parts of all hosts is `merge` of one folder with all files.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

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
_FAST = 1  # of zlib: a third of the bytes; half as many again take four times as long


class Folder(msgspec.Struct, frozen=True):
    """A run directory within a run: its place, which run it is of, on which host it was started,
    and its files. Without `run.json` it has processes that something else started, such as Ray.
    """

    place: str
    run: str
    host: str
    files: tuple[str, ...]


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
    identity = f"{facts.get('id')} {facts.get('started_unix_ns')}" if facts else ""
    files = [p.name for kind, end in _FILES for p in sorted((path / kind).glob(f"*{end}"))]
    place = MAIN if path == run else path.relative_to(run).as_posix()
    return Folder(place, identity, str(facts.get("host") or ""), tuple(files))


def read_part(run: Path, place: str, files: Collection[str], *, facts: bool = True) -> Part:
    """Read some files of one run directory, and with `facts` what it says of the run."""
    path = run / place
    metrics, problem = read_lines(path / METRICS_JSONL) if facts and place == MAIN else ([], None)
    names = sorted(files)
    return Part(
        place,
        read_facts(path) if facts else NO_FACTS,
        tuple(read_recording(path / RANKS / n) for n in names if n.endswith(SPANS_SUFFIX)),
        tuple(
            (name, tuple(read_samples(path / HOSTS / name)))
            for name in names
            if name.endswith(SAMPLES_SUFFIX)
        ),
        tuple(metrics),
        problem,
    )


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
        recorded=tuple(sorted((r for p in parts for r in p.recorded), key=lambda r: r.name)),
        sampled=tuple(sorted((s for p in parts for s in p.sampled), key=lambda s: s[0])),
    )


def packed(parts: list[Part]) -> bytes:
    """Return parts as bytes, some 10 a span."""
    return zlib.compress(msgspec.msgpack.encode(parts, enc_hook=_plain), _FAST)


def unpacked(data: bytes) -> list[Part]:
    """Return the parts. Raises ValueError for other data than that of `packed`."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(data), type=list[Part], dec_hook=_typed)
    except (zlib.error, msgspec.DecodeError) as problem:
        raise ValueError(str(problem)) from problem


def _plain(value: Any) -> tuple[str, memoryview]:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(type(value))
    return "" if value.dtype == RECORD else value.dtype.str, np.ascontiguousarray(value).data.cast(
        "B"
    )


def _typed(_: type, value: Any) -> NDArray[Any]:
    kind, data = value
    return np.frombuffer(data, np.dtype(kind) if kind else RECORD)
