"""Checkpoints are larger than needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import sampled
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor.whatif.room import GIB

_WEIGHTS, _OPTIMIZER = "checkpoint/weights_bytes", "checkpoint/optimizer_bytes"
_COUNT = "checkpoint/weights"
_LIMIT, _ONLY_MODEL = "checkpoint.save_total_limit", "checkpoint.save_only_model"
RULE = rule(
    "system",
    sampled(_WEIGHTS, "record it with grpo_doctor_probes.counter after each checkpoint"),
    sampled(_OPTIMIZER, "record it with grpo_doctor_probes.counter after each checkpoint"),
    uses=("checkpoint/*",),
)
# Less than half of a checkpoint is not bloat, and fewer than three with state are not a habit.
MIN_OPTIMIZER_PART = 0.50
MIN_CHECKPOINTS = 3
KEEP = 2
# Together, on a disk that is usually shared.
MEDIUM_GIB = 50.0
# Two bytes for a bfloat16 weight, a little more for the file's head; four for float32.
MAX_HALF_BYTES = 3.0
HALF_DTYPES = ("bfloat16", "float16", "bf16", "fp16", "half")
_UNKNOWN = "the disk's speed with smaller files is unknown"


@dataclass(frozen=True, slots=True)
class Written:
    """The checkpoints of a run, means over them: bytes, and bytes per weight (None: unknown)."""

    count: int
    weights: float
    optimizer: float
    per_weight: float | None

    @property
    def each(self) -> float:
        """Bytes of one."""
        return self.weights + self.optimizer


def check(view: RunView) -> Answer:
    """Look at the dtype on disk, and at the optimizer's part."""
    weights, optimizer = _values(view, _WEIGHTS), _values(view, _OPTIMIZER)
    numbers = _values(view, _COUNT)
    per_weight = None
    if numbers and np.mean(numbers) > 0:
        per_weight = float(np.mean(weights) / np.mean(numbers))
    written = Written(len(weights), float(np.mean(weights)), float(np.mean(optimizer)), per_weight)
    wide = _wide(view, written)
    limit, on_disk = view.knob(_LIMIT), written.count
    if isinstance(limit, int) and limit > 0:
        on_disk = min(on_disk, limit)
    heavy = (
        written.optimizer >= MIN_OPTIMIZER_PART * written.each
        and on_disk >= MIN_CHECKPOINTS
        and view.now(_ONLY_MODEL) is not True
    )
    if not wide and not heavy:
        part = percent(written.optimizer / written.each) if written.each else "0%"
        return Passed(f"{written.each / GIB:.3g} GiB each, {part} of it optimizer; {on_disk} kept")
    causes = []
    if heavy:
        part = percent(written.optimizer / written.each)
        causes.append(f"{part} of each checkpoint is optimizer state, and {on_disk} are kept")
    if wide:
        causes.append(
            f"weights take {written.per_weight:.2g} bytes on disk, "
            f"though the model is {view.knob('train.dtype')}"
        )
    large = on_disk * written.each >= MEDIUM_GIB * GIB
    return Finding(
        severity="medium" if wide or large else "low",
        confidence=0.9 if heavy else 0.8,
        phases=("checkpoint",),
        evidence=_evidence(written, on_disk),
        cause="; ".join(causes) + ".",
        fixes=(*(_lighter(view) if heavy else ()), *(_narrower(view) if wide else ())),
    )


def _values(view: RunView, name: str) -> list[float]:
    return [v for s in view.series(name) for v in s.values[np.isfinite(s.values)].tolist()]


def _wide(view: RunView, written: Written) -> bool:
    dtype = str(view.knob("train.dtype") or "").removeprefix("torch.")
    return (
        written.per_weight is not None
        and written.per_weight > MAX_HALF_BYTES
        and dtype in HALF_DTYPES
    )


def _evidence(written: Written, on_disk: int) -> tuple[Evidence, ...]:
    where = f"checkpoint/* counters, mean of {written.count}"
    return (
        Evidence("weights per checkpoint", written.weights / GIB, "GiB", where),
        Evidence("optimizer state per checkpoint", written.optimizer / GIB, "GiB", where),
        Evidence("checkpoints kept", on_disk, "", where),
        Evidence("together", on_disk * written.each / GIB, "GiB", where),
        Evidence("bytes per weight on disk", written.per_weight, "", where),
    )


def _lighter(view: RunView) -> tuple[Fix, ...]:
    settings = (
        (_LIMIT, KEEP, "Older checkpoints are deleted: copy those that you want to compare."),
        (_ONLY_MODEL, True, "The run can't be resumed with its optimizer state."),
    )
    return tuple(view.setting(name, value, _UNKNOWN, risk=risk) for name, value, risk in settings)


def _narrower(view: RunView) -> tuple[Fix, ...]:
    text = f"save the weights as {view.knob('train.dtype')}: cast the state dict before saving"
    risk = "A resumed run loses its float32 master weights."
    return (view.advice(text, _UNKNOWN, safety="needs-code", risk=risk),)
