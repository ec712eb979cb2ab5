"""Micro-batches are too small."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.analysis.gpu import busy_percent
from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import (
    DEVICE_MEMORY,
    MICRO_BATCH,
    PASSES,
    in_passes_of,
    model_size,
    most_used,
    on_cpu,
    peak_in,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import Severity, percent, severity_of
from grpo_doctor.findings.span_counts import (
    MICRO_BATCH_SPAN,
    micro_batches_per_step,
    phase_windows,
    stepping_columns,
)
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.trace.intervals import together
from grpo_doctor.whatif import Prediction, Settings, Withheld
from grpo_doctor.whatif.models.passes import measured_passes

RULE = timed_rule("training", signals.SETTINGS, DEVICE_MEMORY, uses=("train/token_places",))
# Training has to be a visible part of the step.
MIN_TRAIN_SHARE = 0.15
# Twice the completions need at most twice what a pass holds: what training held, and this free.
MIN_FREE = 0.40
# With a third of the chip busy, twice the batch still finds idle units. `gpu.util` counts a moment
# with any kernel as busy, so there a fifth of idle moments already means short kernels.
MAX_BUSY = {"gpu.sm_active": 35.0, "gpu.util": 80.0}
# A prediction below this is noise.
MIN_GAIN_PCT = 5.0
# Forward and backward take 6 operations per weight and place; a slow core of 2015 does so many a
# second in float32. What a pass takes beyond that is not its arithmetic.
FLOPS_PER_PLACE = 6
SLOW_CORE = 10e9
MOSTLY = 0.80
FEW = 4


@dataclass(frozen=True, slots=True)
class _Plan:
    micro: int
    passes: int
    factor: int  # how much larger

    @property
    def larger(self) -> tuple[int, int]:
        """Completions in each of fewer passes, and how many these are."""
        return self.micro * self.factor, self.passes // self.factor


def check(view: RunView) -> Answer:
    """Look at the passes of a step, the device during training, and the memory left."""
    plan, share = _plan(view), view.share("train")
    if plan is None:
        return NotApplicable(_why_no_plan(view))
    if share < MIN_TRAIN_SHARE:
        return Passed(f"training takes {percent(share, 1)} of the step, in {plan.passes} passes")
    gpu = most_used(view)
    if gpu is None:
        return _by_prediction(view, plan)
    free = 1 - peak_in(gpu, "train", "optimizer") / gpu.gpu.memory_total_bytes
    busy = _busy_in_training(view)
    if free < MIN_FREE:
        return Passed(f"{percent(free)} of GPU memory is free in training: no room for twice")
    if busy is None or busy[0] > MAX_BUSY[busy[1]]:
        busyness = "GPU utilization was not sampled" if busy is None else f"{busy[0]:.0f}% busy"
        return Passed(f"in training the GPUs have room, and {busyness}")
    idle = share * (1 - busy[0] / 100)
    sure = busy[1] == "gpu.sm_active"
    why = f"; the GPUs are {busy[0]:.0f}% busy in them and {percent(free)} of their memory is free."
    evidence = (
        Evidence("GPUs busy in training", busy[0], "%", busy[1]),
        Evidence("GPU memory free in training", 100 * free, "%", "gpu.memory_used"),
    )
    severity: Severity = "medium" if sure and idle >= MIN_TRAIN_SHARE else "low"
    confidence = 0.75 if sure else 0.5
    return _finding(view, plan, why, severity, confidence, idle if sure else 0.0, evidence)


def _by_prediction(view: RunView, plan: _Plan) -> Answer:
    """On a CPU nothing says how busy the chip is; the passes of this run may."""
    outcome = view.gain(Settings(tuple(zip((MICRO_BATCH, PASSES), plan.larger, strict=True))))
    if not isinstance(outcome, Prediction):
        return _by_arithmetic(view, plan, outcome)
    change = f"larger passes would change the step by {outcome.mid:.1f}%"
    # Arithmetic does not overrule what this run's own passes say, unless it agrees in part.
    if outcome.mid > -MIN_GAIN_PCT:
        return Passed(f"{plan.passes} passes of {plan.micro}: {change}")
    if outcome.high >= 0:
        cautious = f"{change}, at the cautious end by {outcome.high:.1f}%"
        return _by_arithmetic(view, plan, Withheld(cautious))
    gain = -outcome.mid / 100
    severity = severity_of(gain) if gain < MIN_TRAIN_SHARE else "medium"
    return _finding(
        view, plan, ", and much of a pass does not depend on its size.", severity, 0.6, gain
    )


def _by_arithmetic(view: RunView, plan: _Plan, withheld: Withheld) -> Answer:
    """Compare a pass with the time that a slow core needs for its arithmetic."""
    parameters = model_size(view).parameters
    places = view.counted_mean("train/token_places")
    steps, ranks = view.analysis.used_seconds.shape[:2]
    recorded = measured_passes(view.analysis).seconds / (steps * ranks)
    passes, seconds = len(recorded) / (steps * ranks), float(recorded.sum())
    if not (parameters and places and seconds and on_cpu(view.analysis)):
        return Passed(f"{plan.passes} passes of {plan.micro}: {withheld.reason}")
    needed = FLOPS_PER_PLACE * parameters * places / SLOW_CORE
    overhead = 1 - needed / seconds
    if plan.micro > FEW or overhead < MOSTLY:
        return Passed(f"the arithmetic of a pass takes at least {percent(1 - overhead)} of it")
    cost = view.share("train") * overhead * (1 - 1 / plan.factor)
    why = (
        f". A pass takes {1000 * seconds / passes:.3g} ms, and its arithmetic "
        f"{1000 * needed / passes:.2g} ms at most: the rest is the same for a larger one."
    )
    arithmetic = Evidence(
        "of which arithmetic, at most", needed / passes, "s", "6 x weights x padded tokens"
    )
    severity: Severity = "low" if cost < MIN_TRAIN_SHARE else "medium"
    return _finding(view, plan, why, severity, 0.6, cost, (arithmetic,))


def _plan(view: RunView) -> _Plan | None:
    micro, passes = view.knob(MICRO_BATCH), view.knob(PASSES)
    if not isinstance(micro, int) or not isinstance(passes, int) or passes < 2:
        return None
    if micro_batches_per_step(view) < 2:
        return None
    factor = next((f for f in (4, 2) if passes % f == 0 and micro * f <= 8), 2)
    return None if passes % factor else _Plan(micro, passes, factor)


def _why_no_plan(view: RunView) -> str:
    for knob, name in ((MICRO_BATCH, "the micro-batch"), (PASSES, "passes per optimizer step")):
        if not isinstance(view.knob(knob), int):
            return f"the setting of {name} is not known"
    passes = view.knob(PASSES)
    if passes < 2 or micro_batches_per_step(view) < 2:
        return "an optimizer step is one pass"
    return f"{passes} passes can't be joined in pairs"


def _busy_in_training(view: RunView) -> tuple[float, str] | None:
    columns = stepping_columns(view)
    training = together([phase_windows(view, column, "train") for column in columns])
    return busy_percent(view.trace, training) if len(training) else None


def _finding(  # noqa: PLR0913
    view: RunView,
    plan: _Plan,
    why: str,
    severity: Severity,
    confidence: float,
    cost: float,
    more: tuple[Evidence, ...] = (),
) -> Finding:
    spans = view.span_seconds(MICRO_BATCH_SPAN)
    seconds = (spans or view.seconds("train")) / max(1.0, micro_batches_per_step(view))
    steps = len(view.analysis.used_seconds)
    risk = (
        "Keeps the completions per optimizer step; longer ones than in this run need more memory."
    )
    return Finding(
        severity=severity,
        confidence=confidence,
        cost=cost,
        phases=("train",),
        evidence=(
            Evidence("passes per optimizer step", plan.passes, "", PASSES),
            Evidence("completions in each", plan.micro, "", MICRO_BATCH),
            Evidence("one pass", seconds, "s", f"train spans, mean of {steps} steps"),
            *more,
        ),
        cause=f"An optimizer step is {plan.passes} passes of {plan.micro} "
        f"completion{'s' * (plan.micro != 1)}{why}",
        fixes=(in_passes_of(view, *plan.larger, risk=risk),),
    )
