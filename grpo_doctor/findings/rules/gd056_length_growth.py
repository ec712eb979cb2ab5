"""Completions grow longer and not better."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve, shape
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import Severity, graded, percent
from grpo_doctor.findings.view import RunView, rule

POINTS = 20
RULE = rule("learning", learning.metric("length", POINTS), learning.metric("reward", POINTS))
# Batches of other prompts differ by a tenth or two in mean length; half as much again does not
# come from that. The rank correlation keeps a single long batch at the end from counting.
GRADES: dict[Severity, float] = {"medium": 2.0, "low": 1.5}
MIN_RISING = 0.60
# Of changes from one step to the next, so that two curves that merely both rise do not count: of 20
# unrelated pairs none gets near it (0.8 is over three standard errors of 1/sqrt(20)).
PAYS = 0.80
_LOSS = "train.loss_type"
# Losses that divide by a constant or by all tokens of the batch: length earns a token nothing.
CONSTANT_LOSSES = ("dr_grpo", "dapo")


def check(view: RunView) -> Answer:
    """Compare the ends of the length curve, and ask whether the reward rose."""
    length = learning.finite(view, "length")
    first, last = shape.ends(length)
    growth = last / first if first > 0 else 1.0
    together = _together(view)
    pays = together >= PAYS
    # Where length is paid for it may grow at once and then stay at the limit.
    lasting = pays or shape.rising(length.values) >= MIN_RISING
    severity = graded(growth, GRADES) if lasting else None
    if severity is None:
        return Passed(f"completions are {first:.4g} tokens long at first, {last:.4g} at last")
    if not pays and (learning.reward_rises(view) or _better(learning.finite(view, "reward"))):
        return Passed(f"completions grow {growth:.1f}-fold, and so does the reward")
    since = shape.onset(length, shape.smooth(length.values, 3) >= GRADES["low"] * first)
    added = max(0.0, 1 - first / float(length.values.mean()))
    cost = added * learning.share(view)
    evidence = [
        *learning.over_run("mean length", length, "tokens"),
    ]
    evidence += learning.step_evidence("50% longer from step", since, length)
    if cost:
        text = "their share of rollout, reward, log-prob and train spans, if it grows with length"
        evidence.append(
            Evidence("time for the added tokens, per step", cost * view.step_s, "s", text)
        )
    text = "correlation of the changes of length and reward"
    evidence.append(Evidence(text, together, "", learning.source(length)))
    return Finding(
        severity=severity,
        confidence=0.8,
        cost=cost,
        phases=("rollout", "train") if cost else (),
        evidence=tuple(evidence),
        cause=f"Completions grow {growth:.1f}-fold, to {last:.4g} tokens, and the reward "
        + (f"goes up and down with them (correlation {together:.2f})" if pays else "does not rise")
        + f": {percent(added)} of all tokens are growth.",
        fixes=_fixes(view),
        steps=learning.from_step(length, since),
    )


def _better(reward: Curve) -> bool:
    """Whether the end is better than the beginning by more than chance, whatever was between."""
    width = shape.end_points(len(reward))
    first, last = reward.values[:width], reward.values[-width:]
    error = float(np.hypot(shape.error_of_mean(first), shape.error_of_mean(last)))
    gain = float(last.mean() - first.mean())
    return gain > 0 and gain >= learning.ERRORS * error


def _fixes(view: RunView) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    if view.now(_LOSS) not in CONSTANT_LOSSES and view.spell(_LOSS, CONSTANT_LOSSES[0]):
        risk = "Losses and gradients change in scale: check the learning rate."
        fixes.append(learning.setting(view, _LOSS, CONSTANT_LOSSES[0], risk=risk))
    text = "let the reward decrease with length, or normalize the loss by a constant"
    risk = "A penalty that is too strong teaches the model to give up early."
    fixes.append(learning.advice(view, text, risk=risk))
    return tuple(fixes)


def _together(view: RunView) -> float:
    """The correlation of the changes of length and reward from step to step; 0 where unknown."""
    length, reward = learning.finite(view, "length"), learning.finite(view, "reward")
    shared = np.intersect1d(length.steps, reward.steps)
    longer = np.diff(length.values[np.isin(length.steps, shared)])
    better = np.diff(reward.values[np.isin(reward.steps, shared)])
    if len(longer) < POINTS - 1 or not np.ptp(longer) or not np.ptp(better):
        return 0.0
    return float(np.corrcoef(longer, better)[0, 1])
