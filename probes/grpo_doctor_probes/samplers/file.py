"""The sample file `<run>/hosts/<host>.samples.jsonl`: one JSON object per line, append only.

Each tick is one `write`, so a reader may follow the file while the run continues, and what is lost
with a killed supervisor is at most the last line. Lines, distinguished by their first key:

    {"format":1,"host":"a","clock":"monotonic","clock_id":"boot/time","t_ns":123,"unix_ns":456,
     "hz":10.0}
        The first line. `t_ns` is CLOCK_MONOTONIC of this host and `unix_ns` the calendar clock at
        the same moment; ranks with the same `clock_id` read the same monotonic clock. A later
        header starts a new recording in the same file: track numbers and values begin again.
    {"gpu":"GPU-…","index":0,"name":"NVIDIA H200","memory_total_bytes":150754820096,"mig":null,
     "visible":true,"missing":["gpm: not supported"]}
        A GPU, before its first track; a later row with the same `gpu` replaces it. `visible` is
        false where CUDA_VISIBLE_DEVICES keeps the job away from it. `mig` is "on" where it is
        partitioned. `missing` names each field that this device does not support, and why; no such
        track exists.
    {"track":0,"name":"gpu.util","unit":"%","gpu":"GPU-…"}
    {"track":9,"name":"gpu.process_memory","unit":"bytes","gpu":"GPU-…","pid":4242}
    {"track":12,"name":"rank.cpu","unit":"%","pid":4242,"rank":3}
        A track, before its first value. Tracks with neither `gpu` nor `pid` belong to the host.
    {"t":123456789,"v":{"0":45.0,"3":null}}
        One tick, `t` in CLOCK_MONOTONIC ns, taken before the values were read. Only values that
        changed since the previous row: carry the others forward. null: not available from here
        on, until a number comes. Without changes there is still a row each second, so a gap of
        more than that means that nothing was sampled.
    {"note":"no NVIDIA driver: …","t":123}
        A remark to show to the user. `"hz"` in a note is the sampling rate from here on.
    {"libraries":["torch"],"t":123}
        Known libraries that a job without ranks has loaded since the last such row.
    {"end":true,"t":123,"ticks":1234}
        The last line.

`server.*` are sums over the rollout servers that the job's command names; in the file of a server
that joined a run, its own.

Units: % bytes bytes/s W MHz bitmask 1/s count. `bitmask` is NVML's clocks event reasons.
`rank.cpu` is in percent of one core, `host.cpu` in percent of all cores.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo_doctor_probes.gpu.device import GpuRow
from grpo_doctor_probes.record.rundir import HOSTS, SAMPLES_SUFFIX
from grpo_doctor_probes.samplers.tracks import Reading, Track

FORMAT = 1
HEARTBEAT_NS = 1_000_000_000
_DIGITS = {"%": 1, "W": 1, "1/s": 1}


def sample_path(run_dir: Path, host: str) -> Path:
    """Return where the samples of `host` go; characters that a file name cannot hold become `_`."""
    return run_dir / HOSTS / f"{re.sub(r'[^A-Za-z0-9._-]', '_', host)}{SAMPLES_SUFFIX}"


class SampleFile:
    """Appends whole lines. An error ends the writing and is kept in `problem`, not raised."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self.size_bytes = 0
        self._descriptor: int | None = None

    def open(self) -> None:
        """Create the file, readable by the user only, or continue one that exists."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            self.size_bytes = os.fstat(self._descriptor).st_size
        except OSError as error:
            self._fail(error)

    def write(self, lines: bytes) -> None:
        """Append `lines`, which end in a newline, with one system call where the disk allows."""
        if self._descriptor is None or not lines:
            return
        unwritten = memoryview(lines)
        try:
            while unwritten:
                unwritten = unwritten[os.write(self._descriptor, unwritten) :]
        except OSError as error:
            self._fail(error)
        else:
            self.size_bytes += len(lines)

    def close(self) -> None:
        """Close the file; further writes do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _fail(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        self.problem = (
            f"samples stopped: cannot write {self.path}: {reason}; the run continues without them. "
            "Free space, or choose another run directory for the next run"
        )
        if self._descriptor is not None:
            # Half a line would cost the reader a warning, so the file ends with its last whole one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size_bytes)
        self.close()


def encode(row: dict[str, Any]) -> bytes:
    """One row as one line of JSON. Raises ValueError on NaN or infinity, which JSON lacks."""
    return json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def tidy(track: Track, value: float | None) -> float | None:
    """The value as it is written: whole numbers for bytes and counts, one decimal for %, W."""
    if value is None or not math.isfinite(value):
        return None
    digits = _DIGITS.get(track.unit)
    return round(value) if digits is None else round(value, digits)


class RowWriter:
    """Numbers the tracks and leaves out what has not changed since the previous row."""

    def __init__(self) -> None:
        self.values: dict[Track, float | None] = {}
        self.gpus: dict[str, GpuRow] = {}
        self._numbers: dict[Track, str] = {}
        self._row_t_ns = -HEARTBEAT_NS

    def header(self, host: str, hz: float, t_ns: int, unix_ns: int, clock_id: str) -> bytes:
        """The first row. Both clocks place the run in calendar time; `clock_id` says which ranks
        read the same monotonic clock (`grpo_doctor_probes.record.clock.identity`)."""
        return encode(
            {
                "format": FORMAT,
                "host": host,
                "clock": "monotonic",
                "clock_id": clock_id,
                "t_ns": t_ns,
                "unix_ns": unix_ns,
                "hz": hz,
            }
        )

    def tick(self, t_ns: int, readings: Iterable[Reading]) -> bytes:
        """The rows of one tick: GPUs, notes, libraries, new tracks, changed values, or none."""
        lines: list[bytes] = []
        changed: dict[str, float | None] = {}
        for reading in readings:
            for gpu in reading.gpus:
                self.gpus[gpu.uuid] = gpu
                row = asdict(gpu)
                lines.append(encode({"gpu": row.pop("uuid"), **row}))
            lines += [self.note(t_ns, note) for note in reading.notes]
            if reading.libraries:
                lines.append(encode({"libraries": reading.libraries, "t": t_ns}))
            for track, raw in reading.values.items():
                value = tidy(track, raw)
                number = self._numbers.get(track)
                if number is None and value is None:
                    continue
                if number is None:
                    number = self._numbers[track] = str(len(self._numbers))
                    lines.append(self._declaration(int(number), track))
                elif self.values[track] == value:
                    continue
                self.values[track] = changed[number] = value
        if changed or t_ns - self._row_t_ns >= HEARTBEAT_NS:
            lines.append(encode({"t": t_ns, "v": changed}))
            self._row_t_ns = t_ns
        return b"".join(lines)

    def note(self, t_ns: int, text: str, **facts: float) -> bytes:
        """Return a remark for the reader of the run, with the moment it was made."""
        return encode({"note": text, "t": t_ns, **facts})

    def end(self, t_ns: int, ticks: int) -> bytes:
        """Return the last row: its absence says that the supervisor was killed."""
        return encode({"end": True, "t": t_ns, "ticks": ticks})

    def _declaration(self, number: int, track: Track) -> bytes:
        row: dict[str, Any] = {"track": number, "name": track.name, "unit": track.unit}
        for key in ("gpu", "pid", "rank"):
            if (value := getattr(track, key)) is not None:
                row[key] = value
        return encode(row)
