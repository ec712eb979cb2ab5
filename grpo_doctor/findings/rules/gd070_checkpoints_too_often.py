"""Checkpoints are written too often."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.rows import CODES
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Edit, Replay, WhatIf

RULE = timed_rule("system")
# At the best interval for one failure a day, checkpoints of 10 s take 0.8% of the run, of a minute
# 1.9%, of five minutes 4.2%: below three hundredths there is little to save, and above
# it only an interval that is too short for the length of a checkpoint is a finding.
MIN_SHARE = 0.03
MEAN_TIME_BETWEEN_FAILURES_S = 86_400.0
# The last checkpoint of a run has to be written; two before it make an interval.
MIN_CHECKPOINTS = 2
# A step that only asks whether a checkpoint is due writes none.
_LEAST_S = 1e-3
_KNOB = "checkpoint.save_steps"
_ROUND = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, slots=True)
class Saving:
    """What checkpoints took: `share` of all closed steps, mean `seconds`, steps between two."""

    share: float
    seconds: float
    numbers: tuple[int, ...]
    every: int
    step_s: float  # without its checkpoint


def check(view: RunView) -> Answer:
    """Compare the time in checkpoints with that of all closed steps."""
    saving = find_saving(view)
    if saving is None:
        return NotApplicable("fewer than two checkpoints were written before the last step")
    if saving.share < MIN_SHARE:
        return Passed(f"checkpoints take {percent(saving.share, 1)} of the run")
    best = best_interval(saving)
    if best <= saving.every:
        return Passed(f"every {saving.every} steps is right for checkpoints of that length")
    source = "checkpoint spans of all closed steps"
    return Finding(
        severity=severity_of(saving.share),
        confidence=0.9,
        cost=view.share("checkpoint") * (1 - saving.every / best),
        phases=("checkpoint",),
        evidence=(
            Evidence("in checkpoints", 100 * saving.share, "%", source),
            Evidence("checkpoints before the last step", len(saving.numbers), "", source),
            Evidence("each takes", saving.seconds, "s", source),
            Evidence("steps between two", saving.every, "", source),
            Evidence("best interval at one failure per day", best, "steps", "Young's formula"),
        ),
        cause=f"A checkpoint of {saving.seconds:.3g} s {_each(saving.every)} takes "
        f"{percent(saving.share)} of the run.",
        fixes=(_fix(view, saving, best),),
        steps=saving.numbers,
    )


def find_saving(view: RunView) -> Saving | None:
    """Read the checkpoint phase of every closed step but the last; None without an interval."""
    steps, seconds = view.analysis.steps, view.analysis.seconds
    rows = np.flatnonzero(steps.closed[:, steps.stepping].any(axis=1))[:-1]
    if not len(rows):
        return None
    columns = np.flatnonzero(steps.stepping)
    of_ranks = seconds[:, :, CODES["checkpoint"]][np.ix_(rows, columns)]
    in_checkpoint = np.nan_to_num(of_ranks).max(axis=1)
    wrote = in_checkpoint > _LEAST_S
    numbers = steps.numbers[rows][wrote]
    lengths = np.nanmax(steps.seconds[np.ix_(rows, columns)], axis=1)
    if len(numbers) < MIN_CHECKPOINTS:
        return None
    total = float(lengths.sum())
    return Saving(
        share=float(in_checkpoint.sum()) / total,
        seconds=float(in_checkpoint[wrote].mean()),
        numbers=tuple(numbers.tolist()),
        every=max(1, int(np.median(np.diff(numbers)))),
        step_s=float((total - in_checkpoint.sum()) / len(rows)),
    )


def best_interval(saving: Saving) -> int:
    """Young's interval for one failure a day, in steps, down to a round number."""
    seconds = math.sqrt(2 * saving.seconds * MEAN_TIME_BETWEEN_FAILURES_S)
    steps = seconds / max(saving.step_s, 1e-9)
    return max((n for n in _ROUND if n <= steps), default=1)


def _each(every: int) -> str:
    return "every step" if every == 1 else f"every {every} steps"


def _fix(view: RunView, saving: Saving, best: int) -> Fix:
    change: WhatIf = "steps with a checkpoint are excluded; the cost is what can be saved"
    if view.share("checkpoint"):
        scenario = f"with a checkpoint every {best} steps instead of {_each(saving.every)}"
        change = Replay((Edit(("checkpoint",), min(1.0, saving.every / best)),), scenario)
    minutes = best * saving.step_s / 60
    risk = f"Up to {minutes:.3g} minutes of work are lost when the run dies."
    return view.setting(_KNOB, best, change, risk=risk)
