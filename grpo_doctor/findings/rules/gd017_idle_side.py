"""A rollout server and its trainer wait for each other."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.accounting import ROLLOUT_WAIT_SPAN
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.span_counts import gpu_means
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Settings, WhatIf
from grpo_doctor.whatif.models.rollout import GENERATING

RULE = timed_rule("rollout", signals.SETTINGS, uses=("gpu.util",))
# Published one-step-off runs gain 23-40% and one lost time; where less than a seventh of the step
# could overlap, the older weights are not worth it.
MIN_OVERLAP = 0.15
# However long the rollout: what more engines or colocation could give back is all of the wait.
MIN_WAIT = 0.30
# A GPU that does nothing but hold memory and keep an NCCL connection alive shows less than this.
IDLE_UTIL_PCT = 20.0


def check(view: RunView) -> Answer:
    """Compare the engine's share of the step with the trainer's."""
    if view.now("vllm.use") is False or view.knob("vllm.mode") != "server":
        return NotApplicable("the rollout engine is not a separate server")
    engine = view.share("rollout")
    # Weights are sent while neither side can work, so `sync` belongs to none.
    trainer = max(0.0, 1.0 - engine - view.share("sync"))
    if trainer >= engine:
        return _engine_waits(view, engine, trainer)
    if ROLLOUT_WAIT_SPAN in view.trace.names:
        return NotApplicable("rollout and training already run in parallel: see GD027")
    return _trainer_waits(view, engine, trainer)


def _engine_waits(view: RunView, engine: float, trainer: float) -> Answer:
    if engine < MIN_OVERLAP:
        return Passed(f"at most {percent(engine)} of the step could overlap")
    fix = _overlapped(view, "let vLLM share the trainer's GPUs instead of having its own")
    return Finding(
        severity=severity_of(engine, proven=False),  # what overlapping brings differs in sign
        confidence=0.8,
        cost=max(engine, view.gained(fix.change)),
        phases=_phases(view),
        evidence=_shares(view, engine, trainer),
        cause=f"The server works {percent(engine)} of each step and waits while the trainer "
        f"works {percent(trainer)} of it.",
        fixes=(fix,),
        headline="The rollout server is idle while the trainer works",
    )


def _trainer_waits(view: RunView, engine: float, trainer: float) -> Answer:
    if engine < MIN_WAIT:
        return Passed(f"the trainer waits {percent(engine)} of the step for completions")
    # Mean utilization of the ranks' own GPUs during rollouts; None where it was not sampled.
    means = [mean for mean, _ in gpu_means(view, "gpu.util", "rollout")]
    busy = round(float(np.mean(means)), 1) if means else None
    proven = busy is not None and busy < IDLE_UTIL_PCT
    fix = _overlapped(view, "move GPUs from the trainer to the server")
    return Finding(
        severity=severity_of(engine, proven=proven),
        confidence=0.9 if proven else 0.8,
        cost=max(engine, view.gained(fix.change)),
        phases=_phases(view),
        evidence=(
            *_shares(view, engine, trainer),
            Evidence("trainer's GPUs in rollout", busy, "%", "gpu.util"),
        ),
        cause=f"The ranks wait {percent(engine)} of each step for the server's completions "
        f"and work {percent(trainer)} of it.",
        fixes=(fix,),
        headline="The trainer is idle while the rollout server works",
    )


def _phases(view: RunView) -> tuple[str, ...]:
    return tuple(phase for phase in GENERATING if view.analysis.share(phase))


def _shares(view: RunView, engine: float, trainer: float) -> tuple[Evidence, ...]:
    source = f"phase spans, mean of {len(view.analysis.step_seconds)} steps"
    shares = {
        "the engine works": engine,
        "the trainer works": trainer,
        "could overlap at most": min(engine, trainer),
    }
    return tuple(
        Evidence(text, round(100 * share, 1), "% of the step", source)
        for text, share in shares.items()
    )


def _overlapped(view: RunView, or_else: str) -> Fix:
    """Return the advice to generate the next batch while this one is trained on."""
    risk = "Each step then trains on completions of the weights before the last update."
    change: WhatIf = Settings((("rollout.async", True),))
    if view.now("rollout.async") is True:
        change = "rollouts are asynchronous already"
    if view.spell("rollout.async", True) is not None:
        return view.setting("rollout.async", True, change, safety="changes-algorithm", risk=risk)
    text = "generate the next batch while this one is trained on (this framework has no flag "
    text += f"for it), or {or_else}"
    return view.advice(text, change, safety="changes-algorithm", risk=risk)
