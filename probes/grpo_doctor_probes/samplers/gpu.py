"""Samples all GPUs of the host, through a child process that makes the calls into the driver."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from grpo_doctor_probes.gpu.device import GpuRow
from grpo_doctor_probes.gpu.process import CHILD, Child
from grpo_doctor_probes.samplers.tracks import Reading, Track

ANSWER_S = 0.2  # eight GPUs take a few ms, with PCIe counters up to 40% of a tick
SILENT_S = 3.0  # from then on a note says that NVML does not answer
STARTS_S = 10.0  # the same of a child that has never answered: on a busy host it starts slowly
_PASSED_ON = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


class GpuSampler:
    """What `gpu.child.Reader` reads, without ever waiting for the driver for long.

    A child that does not answer costs one tick `answer_s`; from then on it is only checked for an
    answer, and other sources are sampled as usual. One that has ended raises `EndedError`.
    """

    name = "gpu"

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        answer_s: float = ANSWER_S,
        timer_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._arguments = [f"{name}={environ[name]}" for name in _PASSED_ON if name in environ]
        self._answer_s, self._timer_s = answer_s, timer_s
        self._child: Child | None = None
        self._asked_s: float | None = None  # when what has not been answered yet was asked
        self._silence_noted, self._silent_s = False, STARTS_S
        self._tracks: set[Track] = set()

    def read(self, now_ns: int) -> Reading:
        """Ask for a sample, and take what has been answered."""
        if self._child is None:
            self._child = Child(CHILD, *self._arguments)
        wait_s = 0.0
        if self._asked_s is None:
            self._child.ask(f"sample {now_ns}")
            self._asked_s, wait_s = self._timer_s(), self._answer_s
        line = self._child.line(wait_s)
        waited_s = self._timer_s() - self._asked_s
        if line is None:
            return self._silent(self._child, waited_s)
        self._asked_s, self._silent_s = None, SILENT_S
        reading = _decoded(line)
        if self._silence_noted:
            self._silence_noted = False
            reading.notes.insert(0, f"NVML answers again, after {waited_s:.0f} s")
        self._tracks.update(reading.values)
        return reading

    def close(self) -> None:
        """Leave the child, which then ends."""
        if self._child is not None:
            self._child.leave()
        self._child = None

    def _silent(self, child: Child, waited_s: float) -> Reading:
        if waited_s < self._silent_s or self._silence_noted:
            return Reading()
        self._silence_noted = True
        in_driver = " (its process is in state D: inside the driver)" * (child.state() == "D")
        note = (
            f"NVML has not answered for {waited_s:.0f} s{in_driver}: no GPU samples until it "
            f"does; other samples continue"
        )
        return Reading(values=dict.fromkeys(self._tracks), notes=[note])


def _decoded(line: str) -> Reading:
    """Return a reading out of its line. Raises ValueError with what the child could not do."""
    document = json.loads(line)
    if "error" in document:
        raise ValueError(document["error"])
    values = {
        Track(name, unit, gpu=gpu, pid=pid): value
        for name, unit, gpu, pid, value in document["values"]
    }
    rows = [GpuRow(**{**row, "missing": tuple(row["missing"])}) for row in document["gpus"]]
    return Reading(values, rows, document["notes"])
