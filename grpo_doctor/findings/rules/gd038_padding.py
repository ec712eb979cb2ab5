"""Padding is trained on."""

from __future__ import annotations

from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.span_counts import LENGTHS, padding
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Prediction, Settings

RULE = timed_rule("training", LENGTHS, uses=("train/*",))
# A quarter of padding is what lengths that differ by a third give; that is nobody's fault.
MIN_PADDING = 0.25
# Padding's part of the step, if time goes with places.
MIN_SHARE = 0.05
# Two runs of the same settings differ by 2% in their steps: a smaller gain would not be seen.
MIN_GAIN = 0.02
_FREE, _SHARED = "train.padding_free", "train.share_prompts"
_PHASES = ("train", "logprob")


def check(view: RunView) -> Answer:
    """Compare tokens with places, and what is computed on them with the step."""
    if view.now(_FREE) is True:
        return NotApplicable("sequences are packed")
    padded = padding(view)
    if padded is None:
        return NotApplicable("no completion had a length")
    share, source = padded.share, padded.source
    phases = tuple(phase for phase in _PHASES if view.share(phase))
    cost = share * sum(view.share(phase) for phase in phases)
    if share < MIN_PADDING or cost < MIN_SHARE:
        return Passed(
            f"{percent(share)} of the trained tokens are padding: {percent(cost, 1)} of the step"
        )
    fix = _fix(view)
    outcome = view.gain(fix.change)
    if isinstance(outcome, Prediction):
        # What padding takes and what leaving it out gives back differ where passes are short.
        cost = min(cost, -outcome.mid / 100)
        if cost < MIN_GAIN:
            return Passed(
                f"{percent(share)} of the trained tokens are padding; removing it would change the "
                f"step by {outcome.mid:+.1f}%"
            )
    return Finding(
        severity=severity_of(cost) if padded.counted else "low",
        confidence=0.85 if padded.counted else 0.45,
        cost=cost,
        phases=phases,
        evidence=(
            Evidence("padding in the trained tokens", 100 * share, "%", source),
            *view.phase_evidence(*phases),
        ),
        cause=f"{percent(share)} of the tokens in a step's micro-batches are padding, and they "
        f"go through {' and '.join(phases)}, "
        f"{percent(sum(view.share(phase) for phase in phases))} of the step.",
        fixes=(fix,),
    )


def _fix(view: RunView) -> Fix:
    if view.spell(_FREE, True) is not None:
        risk = "Needs flash attention."
        return view.setting(_FREE, True, safety="changes-numerics", risk=risk)
    if view.spell(_SHARED, True) is not None:
        risk = "The same gradients up to rounding; needs attention with custom masks."
        change = Settings(((_FREE, True),))  # it leaves no padding either
        return view.setting(_SHARED, True, change, safety="changes-numerics", risk=risk)
    text = "use micro-batches of completions of similar length, or packed sequences"
    reason = "the padding of another grouping was not counted"
    return view.advice(text, reason, safety="changes-numerics")
