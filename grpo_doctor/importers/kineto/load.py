"""Traces of the PyTorch profiler as one trace: a file, or a folder with one or more per rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from grpo_doctor.errors import TraceError
from grpo_doctor.importers.kineto.assemble import Assembly
from grpo_doctor.importers.kineto.rank import MOST_RANKS, RankFile, read_rank
from grpo_doctor.importers.text import read_head
from grpo_doctor.trace.merge import metrics_from
from grpo_doctor.trace.model import Loss, Origin, Run, Trace

_WHAT = "a trace of the PyTorch profiler"
_MARKS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
_SUFFIXES = (".json", ".json.gz")
_MOST_FILES = 4096
_MOST_ENTRIES = 20_000
_DEPTH = 3
_LIMITS = (
    "Where the step time goes: a profile has only what the job marks with `record_function`.",
    "What was learned, and with which settings: a profile has neither metrics nor options.",
)
_WAITS = "Who waits for whom: NCCL kernels are shown, but not which rank each of them waited for."
_NO_STEPS = (
    "The trace marks no steps, so there is none to break down: call `profiler.step()` once in each "
    "training step."
)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is a Chrome trace of the profiler, or a folder that has some."""
    if path.is_dir():
        return any(recognises(file, read_head(file)) for file in files_in(path))
    text = head.lstrip()
    array = text[:1] == b"[" and b'"ph"' in text
    return array or (text[:1] == b"{" and any(mark in text for mark in _MARKS))


def load(path: Path) -> Trace:
    """Return the trace of one file or of a folder's.

    Raises:
        TraceError: no file of it holds anything of the profiler; the message says why.
    """
    files, problems = _read_each(files_in(path) if path.is_dir() else [path])
    notes = () if any(file.steps for file in files) else (_NO_STEPS,)
    limits = (*_LIMITS, _WAITS) if any(file.collectives for file in files) else _LIMITS
    files, assumed = _ranked(files)
    assembly = Assembly(files)
    ranks = len({file.rank for file in files})
    infos = [file.head.distributedInfo for file in files if file.head.distributedInfo]
    world_size = max((info.world_size for info in infos), default=0)
    world_size = world_size if 0 <= world_size <= MOST_RANKS else 0
    lacking = f"Other ranks: {ranks} of {world_size} have a file here."
    limits = (*limits, lacking) if ranks < world_size else limits
    nccl = next((info.nccl_version for info in infos if info.nccl_version), None)
    return Trace(
        source=str(path),
        run=Run(
            id=path.name,
            world_size=max(world_size, ranks),
            started_unix_ns=assembly.zero_ns,
            duration_ns=assembly.end_ns,
            versions={"nccl": nccl} if nccl else {},
            notes=(*notes, *assumed, *assembly.said[:8]),
            origin=Origin(_WHAT, limits, assembly.phases),
        ),
        processes=tuple(assembly.processes),
        gpus=tuple(assembly.gpus),
        names=assembly.names.names,
        args=tuple(assembly.args),
        spans=assembly.spans(),
        series=tuple(assembly.series),
        metrics=metrics_from({}),
        loss=Loss(
            dropped_events=sum(file.damaged for file in files),
            truncated=any(file.truncated for file in files),
            notes=tuple(problems),
        ),
    )


def files_in(folder: Path) -> list[Path]:
    """The JSON files of a folder and three levels below, 4096 at most. Of a folder that is
    something else altogether no more than 20,000 entries are looked at."""
    paths: list[Path] = []
    entries = 0
    for parent, folders, names in os.walk(folder):
        entries += len(folders) + len(names)
        paths += [Path(parent, name) for name in names if name.endswith(_SUFFIXES)]
        if len(Path(parent).relative_to(folder).parts) >= _DEPTH or entries > _MOST_ENTRIES:
            folders.clear()
    return sorted(paths)[:_MOST_FILES]


def _read_each(paths: Sequence[Path]) -> tuple[list[RankFile], list[str]]:
    """Return every file that has anything of the profiler's, and why others were left out.

    Raises:
        TraceError: there is none; the message is that of the first.
    """
    files, problems = [], []
    for path in paths:
        try:
            file = read_rank(path)
            if not (file.steps or file.ranges or file.devices):
                raise TraceError(
                    f"{path} holds {file.events} events and none of the PyTorch profiler's: "
                    "neither `ProfilerStep#N` nor a range nor a kernel. Record with "
                    "`grpo-doctor run -- ...`, or give what `export_chrome_trace` wrote."
                )
            files.append(file)
        except TraceError as problem:
            problems.append(str(problem))
    if not files:
        raise TraceError(next(iter(problems), "no file of the profiler is left."))
    return files, [f"{len(problems)} files are ignored: {problems[0]}"] if problems else []


def _ranked(files: Sequence[RankFile]) -> tuple[list[RankFile], list[str]]:
    """Return the files by rank; one that does not say its own gets the next that is free."""
    ranks = {file.rank for file in files if file.rank is not None}
    ranked, assumed = [file for file in files if file.rank is not None], []
    for file in files:
        if file.rank is None:
            free = next(rank for rank in range(len(files) + 1) if rank not in ranks)
            ranks.add(free)
            assumed.append(f"{file.path.name} does not say its rank; it is shown as rank {free}.")
            ranked.append(replace(file, rank=free))
    return sorted(ranked, key=lambda file: (file.rank or 0, file.path)), assumed
