"""Samples all GPUs of the host, through a child process that makes the calls into the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from grpo_doctor_probes.samplers.child import Child, EndedError
from grpo_doctor_probes.samplers.gpu_child import decoded
from grpo_doctor_probes.samplers.tracks import Reading, Track

ANSWER_S = 0.2  # eight GPUs take a few ms, with PCIe counters up to 40% of a tick
SILENT_S = 3.0  # from then on it is told that NVML does not answer
NEW_CHILD_S = 60.0  # after so long another child tries, then after twice that, and so on
_MOST_SECONDS = 1800.0
_PASSED_ON = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_CHILD = "grpo_doctor_probes.samplers.gpu_child"


class GpuSampler:
    """What `gpu_reader.GpuReader` reads, without ever waiting for the driver for long.

    A child that does not answer costs one tick `answer_s`; from then on it is only checked for an
    answer, and other sources are sampled as usual.
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
        self._silence_noted = False
        self._tries = 0
        self._start_s = -1.0  # when the next child may be started
        self._tracks: set[Track] = set()

    def read(self, now_ns: int) -> Reading:
        """Ask for a sample, and take what has been answered."""
        try:
            return self._read(now_ns)
        except EndedError as error:
            return self._child_ended(str(error))

    def close(self) -> None:
        """Leave the child, which then ends."""
        if self._child is not None:
            self._child.leave()
        self._child = None

    def _read(self, now_ns: int) -> Reading:
        if self._child is None:
            if self._timer_s() < self._start_s:
                return Reading()
            self._start()
        assert self._child is not None
        wait_s = 0.0
        if self._asked_s is None:
            self._child.ask(str(now_ns))
            self._asked_s, wait_s = self._timer_s(), self._answer_s
        line = self._child.line(wait_s)
        return self._silent() if line is None else self._answered(line)

    def _start(self) -> None:
        try:
            self._child = Child(_CHILD, *self._arguments)
        except OSError as error:
            raise EndedError(f"no process can be started: {error.strerror}") from error
        self._asked_s = None

    def _answered(self, line: str) -> Reading:
        reading = decoded(line)
        waited_s = self._timer_s() - (self._asked_s or 0.0)
        self._asked_s, self._tries = None, 0
        if self._silence_noted:
            self._silence_noted = False
            reading.notes.insert(0, f"NVML answers again, after {waited_s:.0f} s")
        self._tracks.update(reading.values)
        return reading

    def _silent(self) -> Reading:
        """Return what has not been answered is neither an error nor a value: until it is long."""
        waited_s = self._timer_s() - (self._asked_s or 0.0)
        if waited_s < SILENT_S:
            return Reading()
        assert self._child is not None
        reading = Reading()
        if not self._silence_noted:
            self._silence_noted = True
            state = self._child.state()
            in_driver = " (its process is in state D: inside the driver)" if state == "D" else ""
            reading.notes.append(
                f"NVML has not answered for {waited_s:.0f} s{in_driver}: no GPU samples until it "
                f"does; other samples continue"
            )
            reading.values.update(dict.fromkeys(self._tracks))
        if waited_s >= NEW_CHILD_S * 2**self._tries:
            self._replace(0.0)
        return reading

    def _child_ended(self, why: str) -> Reading:
        reading = Reading(values=dict.fromkeys(self._tracks))
        if not self._silence_noted:
            self._silence_noted = True
            reading.notes.append(f"GPU samples pause: {why}; other samples continue")
        self._replace(NEW_CHILD_S * 2**self._tries)
        return reading

    def _replace(self, after_s: float) -> None:
        """Another child, rarely: each that hangs in a driver stays there."""
        self.close()
        self._tries = min(self._tries + 1, 5)
        self._asked_s = None
        self._start_s = self._timer_s() + min(after_s, _MOST_SECONDS)
