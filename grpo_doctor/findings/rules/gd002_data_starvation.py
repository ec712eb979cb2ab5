"""Data loading starves the step.

## What it means

The main thread stands still until the next prompts are read, decoded and tokenized.

## Why it costs

Loading needs no GPU and nothing of the step before, so loader processes can do it during the
rest of the step. What is left in `dataload` is the part that they did not get done in time, or all
of it when there are none.

## Evidence shown

The time in `dataload` per step, less any wait for other ranks; the number of loader processes; how
busy the host's CPUs were, where that was sampled.

## Fix

More loader processes. The prediction takes the loader's total effort per step from this run (with w
loader processes that never catch up, w times the step) and spreads it over the new number; its
cautious end assumes that doubling the processes does only half as much good. On a host whose CPUs
are busy anyway nothing is predicted.

## When it is wrong

Work that the trainer does itself within `dataload`, such as copying to the GPU or image processing
in the main process, does not move to loader processes. Files on a slow network share may have no
more to give.

## References

- https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.sampled import mean_over, series_named
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, Rule, severity_of
from grpo_doctor.findings.view import RunView
from grpo_doctor.findings.wording import percent
from grpo_doctor.whatif import Edit, Prediction, Withheld

RULE = Rule(
    id="GD002",
    slug="data-starvation",
    title="Data loading starves the step",
    family="data",
    needs=(signals.STEPS, signals.PHASES),
)
# Text prompts load in under a percent of a GRPO step; a twentieth is never a matter of course.
MIN_SHARE = 0.05
# The numbers of loader processes that are advised, in turn; beyond that the data is the problem.
TARGETS = (4, 8)
# Above it loader processes would take the CPU from each other and from the ranks.
MAX_HOST_CPU_PCT = 85.0
_KNOB = "dataload.num_workers"


def check(view: RunView) -> Answer:
    """Compares the ranks' own time in `dataload` with the step."""
    share = view.share("dataload")
    if share < MIN_SHARE:
        return Passed(f"data loading takes {percent(share, 1)} of the step")
    workers = view.knob(_KNOB)
    said = f"{workers} loader process{'es' * (workers != 1)}" if workers is not None else None
    evidence = list(view.phase_evidence("dataload"))
    if said is not None:
        source = "settings" if _KNOB in view.trace.run.knobs else "default of the framework"
        evidence.append(Evidence("loader processes per rank", workers, "", source))
    cpu = _host_cpu_pct(view)
    if cpu is not None:
        evidence.append(Evidence("host CPU busy", round(cpu, 1), "%", "host.cpu over the steps"))
    return Finding(
        severity=severity_of(share),
        confidence=0.9 if said is not None else 0.7,
        cost=share,
        phases=("dataload",),
        ranks=(),
        evidence=tuple(evidence),
        cause=f"Each step waits {view.seconds('dataload'):.3g} s of {view.step_s:.3g} s for its "
        f"prompts{f', with {said} per rank' if said else ''}.",
        fixes=(_fix(view, workers, cpu),),
    )


def counterfactual(view: RunView) -> tuple[Edit, ...]:
    """As many loader processes as advised, each as fast as those of this run."""
    workers, target = view.knob(_KNOB), _target(view.knob(_KNOB))
    if workers is None or target is None:
        return ()
    return (Edit(("dataload",), _left(view, workers, target)),)


def _fix(view: RunView, workers: int | None, cpu: float | None) -> Fix:
    target = _target(workers)
    outcome: Prediction | Withheld
    if target is None:
        return view.advice(
            "prepare the data beforehand: tokenize once, resize images, keep it on a local disk",
            Withheld("it depends on what the loader does"),
            safety="same-math",
            risk="",
        )
    if workers is None:
        outcome = Withheld("how many loader processes this run has was not recorded")
    elif cpu is not None and cpu > MAX_HOST_CPU_PCT:
        outcome = Withheld(f"the host's CPUs are {cpu:.0f} % busy already")
    else:
        half = max(workers, target // 2)
        outcome = view.predict(
            counterfactual(view),
            f"with its loading spread over {target} instead of {workers} loader processes "
            "(cautious end: half of that helps)",
            at_least=(Edit(("dataload",), _left(view, workers, half)),),
        )
    risk = f"Takes {target} processes per rank, their CPU time and their memory."
    return view.setting(_KNOB, target, outcome, safety="same-math", risk=risk)


def _target(workers: int | None) -> int | None:
    return next((n for n in TARGETS if n > (workers or 0)), None)


def _left(view: RunView, workers: int, target: int) -> float:
    """The share of the `dataload` time that would still be seen with `target` processes."""
    seen = view.seconds("dataload")
    rest = view.step_s - seen
    # Without loader processes all effort is seen; with some, they worked throughout the step.
    effort = seen if workers == 0 else workers * view.step_s
    if target == workers:
        return 1.0
    return min(1.0, max(0.0, effort / target - rest) / seen)


def _host_cpu_pct(view: RunView) -> float | None:
    inside = view.analysis.used_windows
    means = [mean_over(series, inside) for series in series_named(view.trace, "host.cpu")]
    known = [mean for mean in means if mean is not None]
    return float(np.max(known)) if known else None
