"""Completions are truncated at the length limit."""

from __future__ import annotations

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.shape import ends
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import Severity, graded, percent
from grpo_doctor.findings.view import RunView, rule

POINTS = 3
_LONGEST = ("completions/max_length", "response_length/max")
RULE = rule("learning", learning.metric("truncated", POINTS), uses=("length", "reward", *_LONGEST))
# One in twenty is the tail of any length distribution. One in seven outweighs most groups' best
# answer at 8 completions per prompt; at a half the reward is about length and nothing else.
GRADES: dict[Severity, float] = {"high": 0.50, "medium": 0.15, "low": 0.05}
# Nearly all cut off, from begin to end: the model does not know how to end.
NEVER_ENDS = 0.98
REWARD_POINTS = 20
# Hardly a sentence: with such a limit it is no wonder that nothing ends.
SHORT = 16
# A model's first steps change its lengths fast; until then only most of all completions count.
SETTLED = 20
_LIMIT = "rollout.max_completion_length"
_MASK = "train.mask_truncated"
_LONGER = "the full length of the completions is unknown"


def check(view: RunView) -> Answer:
    """Judge the last steps: what the model does now."""
    truncated = learning.finite(view, "truncated")
    first, last = ends(truncated)
    mean = float(truncated.values.mean())
    ending = f"in the median of the last {learning.counted_steps(truncated)}"
    severity = _capped(view, graded(last, GRADES))
    if severity is None:
        now = f"{percent(last, 1)} of the completions are truncated {ending}"
        return Passed(f"{now}, {percent(first, 1)} in the first")
    never = min(mean, first, last) >= NEVER_ENDS
    if len(truncated) < SETTLED and not never and mean < GRADES["high"]:
        return Passed(
            f"{percent(mean, 1)} of the completions are cut off in {len(truncated)} steps; "
            f"truncation is judged from {SETTLED} on"
        )
    limit = _seen_limit(view)
    at = f" of {limit} tokens" if limit else ""
    reached = f"of the completions reach the limit{at} without an end token"
    cause = f"{percent(last)} {reached} {ending}, {percent(first)} in the first"
    if learning.falls(truncated):
        text = "wait, and raise the limit only if the truncated share stops falling"
        fixes: tuple[Fix, ...] = (learning.advice(view, text),)
        cause += f", {percent(float(truncated.values[-1]))} in the very last: it is falling"
        severity = "low"
    else:
        stopped = first < GRADES["high"] and last >= NEVER_ENDS
        fixes = _fixes(view, never, stopped=stopped)
    return Finding(
        severity=severity,
        confidence=0.95,
        phases=("rollout",),
        evidence=_evidence(view, truncated, mean),
        cause=cause + (", and almost none ends before the limit at any time." if never else "."),
        fixes=fixes,
        headline="No completion ends before the length limit" if never else "",
    )


def _capped(view: RunView, severity: Severity | None) -> Severity | None:
    """Return low where the reward rises anyway; high only where it had time to and did not."""
    if severity and learning.reward_rises(view):
        return "low"
    enough = len(learning.finite(view, "reward")) >= REWARD_POINTS
    return severity if enough or severity is None else "low"


def _evidence(view: RunView, truncated: Curve, mean: float) -> tuple[Evidence, ...]:
    length = learning.finite(view, "length")
    tokens = round(float(length.values.mean()), 1) if len(length) else None
    return (
        *learning.over_run("truncated", truncated, "%"),
        Evidence(
            "truncated, mean of the run", round(100 * mean, 1), "%", learning.source(truncated)
        ),
        Evidence("mean length", tokens, "tokens", learning.source(length)),
        Evidence("limit", _seen_limit(view), "tokens", "settings or the longest completion"),
    )


def _fixes(view: RunView, never: bool, *, stopped: bool) -> tuple[Fix, ...]:
    limit = _seen_limit(view) or view.stated(_LIMIT)
    fixes: list[Fix] = []
    if never:
        text = "check the chat template and the end token: print a few complete completions"
        fixes.append(learning.advice(view, text, safety="needs-code"))
        if not limit or limit >= SHORT:
            return tuple(fixes)
    if stopped and not never:
        text = (
            "go back to a checkpoint from before completions stopped ending: a higher limit does "
            "not help"
        )
        fixes.append(learning.advice(view, text))
    elif limit:
        risk = "Rollouts, the KV cache and the logits grow with it."
        fixes.append(
            view.setting(_LIMIT, 2 * limit, _LONGER, safety="changes-algorithm", risk=risk)
        )
    else:
        text = "raise the length limit, whose value is not in this file"
        fixes.append(learning.advice(view, text))
    if view.now(_MASK) is not True:
        risk = "Truncated completions are still generated but no longer contribute to the loss."
        fixes.append(learning.setting(view, _MASK, True, risk=risk))
    return tuple(fixes) or (
        learning.advice(view, "let the reward decrease smoothly towards the limit"),
    )


def _seen_limit(view: RunView) -> int | None:
    """The limit that was set, or the longest completion: what is truncated has that length."""
    if limit := view.fact(_LIMIT):
        return int(limit)
    longest = [found.finite for key in _LONGEST if (found := view.metric_called(key)) is not None]
    return round(float(longest[0].values.max())) if longest and len(longest[0]) else None
