"""The process that reads the GPUs for the sampler: a line with its time in, a line of JSON out."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from grpo_doctor_probes.samplers.gpu_reader import GpuReader
from grpo_doctor_probes.samplers.tracks import GpuRow, Reading, Track


def main(arguments: Sequence[str]) -> None:
    """Read whenever a time comes, until nobody asks.

    `arguments`: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of the job, `NAME=VALUE`, if set.
    """
    environ = dict(argument.split("=", 1) for argument in arguments)
    reader = GpuReader(environ)
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            sys.stdout.write(_answer(reader, int(line)) + "\n")
            sys.stdout.flush()
    reader.close()
    os._exit(0)  # what is left in a buffer has no reader


def _answer(reader: GpuReader, now_ns: int) -> str:
    try:
        return encoded(reader.read(now_ns))
    except Exception as error:  # noqa: BLE001 - what a driver hands out may surprise in any way
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def encoded(reading: Reading) -> str:
    """A reading as a line."""
    return json.dumps(
        {
            "values": [
                [track.name, track.unit, track.gpu, track.pid, value]
                for track, value in reading.values.items()
            ],
            "gpus": [asdict(row) for row in reading.gpus],
            "notes": reading.notes,
        }
    )


def decoded(line: str) -> Reading:
    """A reading out of its line. Raises ValueError with what the child could not do."""
    document = json.loads(line)
    if "error" in document:
        raise ValueError(document["error"])
    return Reading(
        {
            Track(name, unit, gpu=gpu, pid=pid): value
            for name, unit, gpu, pid, value in document["values"]
        },
        [GpuRow(**{**row, "missing": tuple(row["missing"])}) for row in document["gpus"]],
        document["notes"],
    )
