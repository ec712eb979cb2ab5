"""The rollout runs without vLLM."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Prediction, Replay, without

TOKENS = "rollout/tokens"
RULE = timed_rule("rollout", signals.SETTINGS, uses=(TOKENS,))
# With vLLM, rollouts of published runs take 11-70% of a step; below three tenths another engine
# is not the first thing to change.
MIN_SHARE = 0.30
_RISK = "vLLM needs its own GPU memory and samples with slightly different probabilities."
_INSTALL = " It is not installed where the job runs: install it first."


def check(view: RunView) -> Answer:
    """Compare the rollout's own time with the step where vLLM is off."""
    use = view.knob("vllm.use")
    if use is None:
        return NotApplicable(f"{view.framework} has no choice between vLLM and transformers")
    share = view.share("rollout")
    if use:
        return NotApplicable("vLLM is in use")
    if share < MIN_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    reason = "vLLM's speed on this model was not measured"
    mode = ("vllm.mode", "colocate")
    with_mode = view.spell(*mode) and view.now("vllm.mode") is None
    settings = [("vllm.use", True), *([mode] if with_mode else [])]
    risk = _RISK + _INSTALL * view.lacks_vllm
    fix = view.settings(settings, reason, safety="changes-numerics", risk=risk)
    bound = view.gain(Replay((without("rollout"),), "without any rollout"))
    return Finding(
        # Without a GPU it is a fact to know, not a problem to fix.
        severity=severity_of(share) if view.has_gpu else "info",
        confidence=0.8 if view.has_gpu else 0.5,
        cost=share,
        phases=("rollout",),
        evidence=(
            *view.phase_evidence("rollout"),
            _tokens(view),
            Evidence(
                "step time without any rollout: the upper bound of the gain",
                round(bound.mid, 1) if isinstance(bound, Prediction) else None,
                "%",
                bound.grounds if isinstance(bound, Prediction) else "",
            ),
        ),
        cause="The training model generates the completions itself: "
        f"{percent(share)} of each step, {view.seconds('rollout'):.3g} s of {view.step_s:.3g} s."
        + ("" if view.has_gpu else " No GPU was sampled; on a CPU this is normal."),
        fixes=(fix,),
    )


def _tokens(view: RunView) -> Evidence:
    total = view.counter_sum(TOKENS)
    busy = view.seconds("rollout") * len(view.analysis.step_seconds)
    text = "tokens generated per second of rollout, all ranks"
    speed = round(total / busy, 1) if total and busy else None
    return Evidence(text, speed, "tokens/s", f"counter {TOKENS}")
