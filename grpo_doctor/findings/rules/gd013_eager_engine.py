"""vLLM runs in eager mode."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rollout_engine import mean_of
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed, scaled
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule("rollout", signals.SETTINGS, uses=("engine/steps",))
# Of a smaller rollout even the largest published gain is 3% of the step.
MIN_SHARE = 0.20
# Launching takes 5 ms and more per decoding step; one of 50 ms is the GPU's time, not Python's.
MAX_STEP_S = 0.05
_KNOB = "vllm.enforce_eager"
_SOURCE = "rollout/generate spans and counter engine/steps"


def check(view: RunView) -> Answer:
    """Look at the setting, then at what there is to gain."""
    if view.knob("vllm.use") is not True or view.knob(_KNOB) is not True:
        return NotApplicable("vLLM does not run in eager mode")
    if not view.has_gpu:
        return NotApplicable("no GPU was sampled, and there are no CUDA graphs without one")
    share, step_s = view.share("rollout"), _decoding_step_s(view)
    if share < MIN_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    if step_s is not None and step_s > MAX_STEP_S:
        return Passed(f"a decoding step takes {1000 * step_s:.0f} ms, mostly not kernel launches")
    risk = "CUDA graphs take 0.2-2 GiB of GPU memory and make vLLM's startup slower."
    return Finding(
        severity="medium" if step_s is not None else "low",
        confidence=0.8 if step_s is not None else 0.5,
        cost=0.0,  # launching was not measured apart from computing
        phases=("rollout",),
        evidence=(
            *view.phase_evidence("rollout"),
            Evidence("one decoding step", scaled(step_s, 1000, 2), "ms", _SOURCE),
        ),
        cause=f"The rollout is {percent(share)} of the step, and each of its decoding steps is "
        "launched kernel by kernel"
        + (f"; one takes {1000 * step_s:.1f} ms." if step_s is not None else "."),
        fixes=(view.setting(_KNOB, False, risk=risk),),
    )


def _decoding_step_s(view: RunView) -> float | None:
    """Return seconds of one step of the engine: the time in `rollout/generate` over its number."""
    steps = mean_of(view, "steps")
    generating = view.span_seconds("rollout/generate")
    return generating / steps if steps and generating else None
