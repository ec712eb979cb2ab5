"""All GPUs of the host at one moment, and which processes compute on them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from grpo_doctor_probes.evidence import GpuLook, Job
from grpo_doctor_probes.look.gpu_holders import numbers_are_ours, processes, with_holders
from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.samplers.child import Child, EndedError

ANSWER_S = 3.0  # for one call; a driver that works answers in milliseconds
STARTS_S = 10.0  # until the child has begun to ask: a host with 64 busy ranks is slow
MOST_S = 6.0  # for all GPUs: without persistence mode an idle one takes a second to wake
ALL_GPUS = -1
_CHILD = "grpo_doctor_probes.look.gpu_child"
_LONGEST = 200
# nvml.h, nvmlClocksEventReasons. Idle (1) and application clocks (2) are no throttling.
_REASONS = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "temperature (software)"),
    (0x40, "temperature (hardware)"),
    (0x80, "power brake"),
)


def gpus(
    job: Job | None = None, *, answer_s: float = ANSWER_S, proc: Path = Path("/proc")
) -> tuple[GpuLook, ...]:
    """Look at every GPU. Empty without a driver; what a GPU does not tell is None.

    A call that has not returned after `answer_s` is left to its own process, and the last row says
    so (`silent_s`): it takes no longer than that, and MOST_S in all.
    """
    try:
        child = Child(_CHILD)
    except OSError:
        return ()
    try:
        found = _Answers(child, answer_s).read()
    finally:
        child.leave()
    if job is None:
        return found
    return with_holders(found, processes(job, proc), ours=numbers_are_ours(proc))


def gpu_count(answer_s: float = ANSWER_S) -> int:
    """GPUs of this host; 0 without a driver, and with one that does not say in time."""
    try:
        child = Child(_CHILD, "count")
    except OSError:
        return 0
    try:
        while (line := child.line(STARTS_S + answer_s)) is not None:
            said = json.loads(line)
            if "count" in said:
                return int(said["count"])
    except EndedError:
        return 0
    finally:
        child.leave()
    return 0


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """What slows the clocks down, in words."""
    return tuple(text for bit, text in _REASONS if bits & bit)


class _Answers:
    """What the child says, until it ends or falls silent."""

    def __init__(self, child: Child, answer_s: float) -> None:
        self._child = child
        self._answer_s = answer_s
        self._rows: dict[int, dict[str, Any]] = {}

    def read(self) -> tuple[GpuLook, ...]:
        """All that was said."""
        asking: dict[str, Any] = {}
        limit_s = STARTS_S
        deadline = time.monotonic() + STARTS_S + MOST_S
        while True:
            began = time.monotonic()
            try:
                line = self._child.line(max(0.0, min(limit_s, deadline - began)))
            except EndedError:
                break
            if line is None:
                self._note_silence(asking, time.monotonic() - began)
                break
            said = json.loads(line)
            if "end" in said or "none" in said:
                break
            if "count" in said:
                continue
            if "asks" in said:
                if not asking:
                    deadline = time.monotonic() + MOST_S
                asking, limit_s = said, self._answer_s
            else:
                self._take(said)
        return tuple(_look(row) for _, row in sorted(self._rows.items()))

    def _take(self, said: dict[str, Any]) -> None:
        if "gpu" in said:
            self._rows[said["gpu"]["index"]] = said["gpu"]
        elif "lost" in said:
            row = {"index": said["lost"], "problem": printable(said["why"].encode(), _LONGEST)}
            self._rows[said["lost"]] = row
        elif "more" in said:
            self._rows[said.pop("more")].update(said)

    def _note_silence(self, asking: dict[str, Any], waited_s: float) -> None:
        """A child that has not begun to ask was kept from it by this host, not by the driver."""
        if not asking:
            return
        index = asking.get("index", ALL_GPUS)
        silence = {
            "silent_s": waited_s,
            "silent_call": asking["asks"],
            "silent_state": self._child.state(),
        }
        self._rows.setdefault(index, {"index": index}).update(silence)


def _look(row: dict[str, Any]) -> GpuLook:
    bits = row.pop("throttle_bits", 0)
    row["pids"] = tuple(row.get("pids", ()))
    row.setdefault("at_ns", time.monotonic_ns())
    return GpuLook(throttled_by=throttle_reasons(bits), **row)
