"""What trackers keep on disk: TensorBoard's event files, and W&B's `run-ID.wandb`, also offline.

Formats: records of TensorFlow's record_writer.h with tensorboard 2.21's event.proto; LevelDB's
log_format.md with wandb_internal.proto of wandb 0.16 to 0.31. The rows are those that a framework
prints, so verl's and OpenRLHF's have their timers; TRL's and ms-swift's have their profiled
functions in W&B alone.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.errors import TraceError
from grpo_doctor.importers import openrlhf_log, verl_log
from grpo_doctor.importers.reconstruct import MOST_STEPS, NO_GPUS, LoggedStep, StepLog, reconstruct
from grpo_doctor.importers.text import FatalLines, read_all
from grpo_doctor.importers.trainer_state import facts, framework_of, of_step_times, step_log
from grpo_doctor.trace.model import Exit, Trace
from grpo_doctor_reports import formatting

_EVENTS, _WANDB = "*tfevents*", "run-*.wandb"
_MAGIC = b":W&B"
_OF_GPU = re.compile(r"gpu\.(\d+)\.(gpu|memoryAllocatedBytes)")
_NOT_PLACED = "GPUs: W&B's samples are of the whole run; no step or phase has its own."
_NO_ROW = "The job ended before it logged one, or logs to another run or program"
_FIRST_EVENT = b"brain.Event:"
_LARGEST_RECORD_BYTES = 64 << 20
_BLOCK_BYTES = 32 << 10
_STEP = "train/global_step"
_WALL = (
    "The step time is the time from the last row before it to the step's own row in the tracker; "
    "it includes checkpoints between them."
)
# What transformers logs once, at the end, under the number of the last step.
_OF_WHOLE_RUN = {
    f"train/{name}"
    for name in ("train_runtime", "train_loss", "train_samples_per_second", "total_flos",
                 "train_steps_per_second")
}  # fmt: skip


@dataclass(slots=True)
class _Rows:
    """Metrics by step. `at_s`: when the step's training metrics were logged, `last_s`: when its
    last row was, an evaluation's also; Unix seconds."""

    metrics: dict[int, dict[str, float]] = field(default_factory=dict)
    at_s: dict[int, float] = field(default_factory=dict)
    last_s: dict[int, float] = field(default_factory=dict)
    gpus: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # by kind of sample
    config: dict[str, Any] = field(default_factory=dict)
    exit: Exit = field(default_factory=Exit)
    fatal: FatalLines = field(default_factory=FatalLines)
    printed: int = 0
    damaged: str = ""

    def add(self, step: int, values: Mapping[str, float], at_s: float) -> None:
        """One row of a step; a later row replaces what it repeats."""
        values = {key: value for key, value in values.items() if key not in _OF_WHOLE_RUN}
        if not values or not 0 <= step <= MOST_STEPS:
            return
        self.metrics.setdefault(step, {}).update(values)
        self.fatal.step()
        self.last_s[step] = at_s
        if not all(map(_of_evaluation, values)):
            self.at_s[step] = at_s

    def output(self, text: str) -> None:
        """Lines that the job printed."""
        for line in text.strip("\n").splitlines():
            self.printed += 1
            self.fatal.read(self.printed, line)

    def sample(self, values: Mapping[str, Any]) -> None:
        """One record of W&B's system metrics, of the host whose process logs."""
        for key, value in values.items():
            found = _OF_GPU.fullmatch(key)
            if found and isinstance(value, (int, float)) and math.isfinite(value):
                self.gpus.setdefault(found[2], {}).setdefault(int(found[1]), []).append(value)

    @property
    def notes(self) -> list[str]:
        """What W&B's samples say of the GPUs."""
        busy = {gpu: fmean(values) for gpu, values in self.gpus.get("gpu", {}).items()}
        if not busy:
            return []
        least = min(busy, key=busy.__getitem__)
        says = f"W&B sampled {formatting.count(len(busy), 'GPU')}: over the whole run "
        says += f"{fmean(busy.values()):.0f}% busy on average"
        if len(busy) > 1:
            says += f", GPU {least} the least with {busy[least]:.0f}%"
        peaks = {gpu: max(each) for gpu, each in self.gpus.get("memoryAllocatedBytes", {}).items()}
        if peaks:
            most = max(peaks, key=peaks.__getitem__)
            says += f"; at most {peaks[most] / 2**30:.1f} GiB in use, on GPU {most}"
        return [f"{says}."]

    def seconds(self) -> dict[int, float]:
        """Return the seconds of a step since the last row before it, of steps in order; none of the
        first."""
        return {
            b: (self.at_s[b] - self.last_s[a]) / (b - a)
            for a, b in itertools.pairwise(self.metrics)
            if b in self.at_s and self.at_s[b] > self.last_s[a]
        }


def _of_evaluation(key: str) -> bool:
    return key.startswith("eval/") or key == "train/epoch"  # that is in every row


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is such a file, or a folder with some."""
    if path.is_dir():
        return bool(_files_in(path))
    return head.startswith(_MAGIC) or _FIRST_EVENT in head[:64]


def load(path: Path) -> Trace:
    """Return the steps that the tracker has.

    Raises:
        TraceError: it can't be read, or has no row of a step.
    """
    rows, what = _Rows(), "TensorBoard's event files"
    for file in _files_in(path) if path.is_dir() else [path]:
        data = read_all(file)
        if data.startswith(_MAGIC):
            what = "a run of W&B"
            _read_wandb(file.name, data, rows)
        else:
            _read_events(file.name, data, rows)
    if not rows.metrics:
        output = (path if path.is_dir() else path.parent) / "files/output.log"
        advice = f" Its output may say why: grpo-doctor diagnose {output}" * output.is_file()
        why = rows.fatal.sentence or rows.damaged or _NO_ROW
        raise TraceError(f"{path} has no scalar of a step. {why}.{advice}")
    rows.metrics = dict(sorted(rows.metrics.items()))
    plain = {step: _plain(row) for step, row in rows.metrics.items()}
    sample = [LoggedStep(step, None, (), row) for step, row in itertools.islice(plain.items(), 10)]
    log, notes = _steps(framework_of(sample), plain, rows.seconds())
    of_job = facts(what, path, log.steps.values(), [*notes, *rows.notes])
    limits = {"verl": verl_log.LIMITS, "openrlhf": openrlhf_log.LIMITS}.get(of_job.framework)
    placed = {NO_GPUS: _NOT_PLACED} if rows.gpus else {}
    spans = {name for step in log.steps.values() for name, _ in step.phases}
    framework = of_job.framework
    if framework == "trl" and "rlhf_type" in rows.config:
        framework = "ms-swift"
    trace = reconstruct(
        path,
        replace(
            of_job,
            framework=framework,
            limits=tuple(placed.get(each, each) for each in limits or of_job.limits),
            spans={*of_job.spans, *spans},
            config=of_job.config or rows.config,
            knobs=of_job.knobs or _knobs(framework, rows.config),
            problems=(*of_job.problems, *((rows.damaged,) if rows.damaged else ())),
            truncated=bool(rows.damaged),
            fatal=rows.fatal if rows.exit.state != "finished" else of_job.fatal,
        ),
        log,
    )
    if rows.exit == Exit() or (rows.fatal.text and rows.fatal.state == "interrupted"):
        return trace
    return replace(trace, run=replace(trace.run, exit=rows.exit))


def _knobs(framework: str, config: dict[str, Any]) -> dict[str, Any]:
    return knobs.canonical(framework, None, config) if config and framework != "unknown" else {}


def _files_in(folder: Path) -> list[Path]:
    """Return W&B's file if there is one, else all event files, in the order of their names."""
    return sorted(folder.glob(_WANDB))[-1:] or sorted(folder.glob(_EVENTS))


def _plain(row: Mapping[str, float]) -> dict[str, float]:
    """Return a row as the framework prints it: transformers and OpenRLHF prefix `train/`."""
    return {
        key.removeprefix("train/") if not key.startswith("eval/") else f"eval_{key[5:]}": value
        for key, value in row.items()
    }


def _steps(
    framework: str, rows: Mapping[int, Mapping[str, float]], wall_s: Mapping[int, float]
) -> tuple[StepLog, list[str]]:
    """Return the steps, and what their times are."""
    log = StepLog()
    if framework in {"verl", "openrlhf"}:
        unknown: set[str] = set()
        for step, row in rows.items():
            log.add(
                verl_log.logged(step, row, unknown)
                if framework == "verl"
                else openrlhf_log.logged(step, row, beside=False)
            )
        return log, []
    log = step_log({step: [row] for step, row in rows.items()}, wall_s)
    return log, [_WALL if wall_s else of_step_times(log)]


def _read_events(name: str, data: bytes, rows: _Rows) -> None:
    """Adds the scalars of an event file, of which the last record may be cut off."""
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            rows.damaged = f"{name} is cut off"
            return
        size = int.from_bytes(data[at : at + 8], "little")
        record = data[at + 12 : at + 12 + size]
        if size > _LARGEST_RECORD_BYTES or len(record) < size:
            rows.damaged = f"{name} is cut off or damaged at byte {at}"
            return
        at += size + 16
        try:
            _add_event(record, rows)
        except _DAMAGE:
            rows.damaged = f"{name} has a damaged record before byte {at}"


def _add_event(record: bytes, rows: _Rows) -> None:
    """`Event`: 1 wall_time, 2 step, 5 summary of values: 1 tag, 2 simple_value."""
    event = dict(_fields(record))
    if not isinstance(summary := event.get(5), bytes):
        return
    values = {}
    for number, value in _fields(summary):
        scalar = dict(_fields(value)) if number == 1 and isinstance(value, bytes) else {}
        tag, simple = scalar.get(1), scalar.get(2)
        if isinstance(tag, bytes) and isinstance(simple, bytes):
            values[tag.decode("utf-8", "replace")] = struct.unpack("<f", simple)[0]
    (at_s,) = struct.unpack("<d", event[1])  # type: ignore[arg-type] # checked by unpack
    rows.add(_whole(event.get(2, 0)), values, at_s)


def _read_wandb(name: str, data: bytes, rows: _Rows) -> None:
    """Adds the rows of a run of W&B. TRL logs each profiled call as a row, under the number of the
    step before: they belong to the next row of metrics, and seconds of several calls are added."""
    waiting: dict[str, float] = {}
    for record in _log_records(name, data, rows):
        try:
            parts = list(_fields(record))
        except _DAMAGE:
            rows.damaged = f"{name} has a damaged record"
            continue
        for number, value in parts:
            try:
                if isinstance(value, bytes):
                    _add_part(number, value, rows, waiting)
            except _DAMAGE:
                rows.damaged = f"{name} has a damaged record"


def _add_part(number: int, value: bytes, rows: _Rows, waiting: dict[str, float]) -> None:
    match number:
        case 2:
            _add_history(_items(value, 1), rows, waiting)
        case 5:
            rows.config |= _items(value, 1)
        case 7:
            rows.sample(_items(value, 3))
        case 13:
            rows.output(dict(_fields(value)).get(3, b"").decode("utf-8", "replace"))  # type: ignore[union-attr] # else damage
        case 17:
            inner = dict(_fields(value)).get(4)
            rows.config |= _items(inner, 1) if isinstance(inner, bytes) else {}
        case 18:
            code = dict(_fields(value)).get(1, 0)
            rows.exit = Exit("failed" if code else "finished", _whole(code))


def _add_history(row: dict[str, Any], rows: _Rows, waiting: dict[str, float]) -> None:
    values = {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and key[:1] != "_"
    }
    number = values.pop(_STEP, row.get("_step"))
    if values and all(key.startswith("profiling/") for key in values):
        for key, value in values.items():
            waiting[key] = waiting.get(key, 0.0) + value
        return
    if not all(map(_of_evaluation, values)):
        if _STEP in row and not number:  # within the first step, by a callback of the user
            return
        values |= waiting
    waiting.clear()  # before an evaluation's row: of the evaluation, which logs its own time
    rows.add(_whole(number), values, float(row.get("_timestamp", 0.0)))


def _items(data: bytes, which: int) -> dict[str, Any]:
    """Return keys and values: 1 key or 2 nested keys; 16 JSON, or since 0.31 4 to 8 by type."""
    found: dict[str, Any] = {}
    for number, item in _fields(data):
        if number != which or not isinstance(item, bytes):
            continue
        parts = list(_fields(item))
        key = "/".join(v.decode("utf-8", "replace") for n, v in parts
                       if n in (1, 2) and isinstance(v, bytes))  # fmt: skip
        for n, value in parts:
            if n in (7, 8, 16) and isinstance(value, bytes):
                found[key] = _json(value)
            elif n == 6 and isinstance(value, bytes):
                found[key] = struct.unpack("<d", value)[0]
            elif n == 5 and isinstance(value, int):
                found[key] = (value >> 1) ^ -(value & 1)
    return found


def _json(text: bytes) -> Any:
    """Return the value; W&B writes `"NaN"` and `"Infinity"` as text."""
    value = json.loads(text)
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _log_records(name: str, data: bytes, rows: _Rows) -> Iterator[bytes]:
    """Yield the records: LevelDB's blocks of 32 KiB, parts of 7 bytes and their data."""
    at, parts = 7, bytearray()
    while at + 7 <= len(data):
        if _BLOCK_BYTES - at % _BLOCK_BYTES < 7:
            at += _BLOCK_BYTES - at % _BLOCK_BYTES
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part = data[at + 7 : at + 7 + size]
        at += 7 + size
        if not 1 <= kind <= 4 or len(part) < size:
            rows.damaged = f"{name} is cut off or damaged at byte {at}"
            return
        parts = bytearray(part) if kind in (1, 2) else parts + part
        if kind in (1, 4):
            yield bytes(parts)


_DAMAGE = (ValueError, IndexError, KeyError, TypeError, struct.error, OverflowError, RecursionError)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield fields of a protobuf message: number, and an integer or the bytes of any other kind.

    Raises:
        ValueError: it ends within a field, or has a kind of field that is none.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, at = _varint(data, at)
        elif not size:
            raise ValueError(f"kind {kind}")
        if at + size > len(data):
            raise ValueError("cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of over ten bytes")


def _whole(value: object) -> int:
    if isinstance(value, (int, float)) and math.isfinite(value) and value == int(value):
        return int(value)
    return -1
