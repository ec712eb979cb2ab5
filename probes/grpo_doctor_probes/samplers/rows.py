"""Turns readings into the rows of a sample file. The format is described in `file`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpo_doctor_probes.samplers.tracks import GpuRow, Reading, Track

FORMAT = 1
HEARTBEAT_NS = 1_000_000_000
_DIGITS = {"%": 1, "W": 1, "1/s": 1, "load": 2}


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
        read the same monotonic clock (`grpo_doctor_probes.clock.identity`)."""
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
        """The rows of one tick: GPUs, notes, new tracks, changed values. May be empty."""
        lines: list[bytes] = []
        changed: dict[str, float | None] = {}
        for reading in readings:
            lines += [self._gpu(gpu) for gpu in reading.gpus]
            lines += [self.note(t_ns, note) for note in reading.notes]
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
        """A remark for the reader of the run, with the moment it was made."""
        return encode({"note": text, "t": t_ns, **facts})

    def end(self, t_ns: int, ticks: int, late_ticks: int) -> bytes:
        """The last row: its absence says that the supervisor was killed."""
        return encode({"end": True, "t": t_ns, "ticks": ticks, "late_ticks": late_ticks})

    def _declaration(self, number: int, track: Track) -> bytes:
        row: dict[str, Any] = {"track": number, "name": track.name, "unit": track.unit}
        for key in ("gpu", "pid", "rank"):
            if (value := getattr(track, key)) is not None:
                row[key] = value
        return encode(row)

    def _gpu(self, gpu: GpuRow) -> bytes:
        self.gpus[gpu.uuid] = gpu
        row: dict[str, Any] = {
            "gpu": gpu.uuid,
            "index": gpu.index,
            "name": gpu.name,
            "memory_total_bytes": gpu.memory_total_bytes,
            "mig": gpu.mig,
            "visible": gpu.visible,
            "missing": list(gpu.missing),
        }
        if gpu.parent is not None:
            row["parent"] = gpu.parent
        return encode(row)
