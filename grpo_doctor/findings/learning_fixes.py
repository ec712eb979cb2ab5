"""Fixes of runs whose updates go too far, which several rules give."""

from __future__ import annotations

from typing import Any

from grpo_doctor.findings.learning import LEARNS_OTHERWISE
from grpo_doctor.findings.rule import Fix, Safety
from grpo_doctor.findings.view import RunView

# DAPO's upper bound, with 0.2 below.
CLIP_HIGH = 0.28
_RATE, _HIGH, _EPSILON = "train.learning_rate", "train.epsilon_high", "train.epsilon"
_BETA, _NORM, _ITERATIONS = "train.beta", "train.max_grad_norm", "train.num_iterations"
# The weight of the KL term in DeepSeekMath.
KL_BETA = 0.04


def learning_setting(view: RunView, knob: str, value: Any, *, risk: str) -> Fix:
    """Return a setting that changes what is learned."""
    return view.setting(knob, value, LEARNS_OTHERWISE, safety="changes-algorithm", risk=risk)


def learning_advice(
    view: RunView, text: str, *, safety: Safety = "changes-algorithm", risk: str = ""
) -> Fix:
    """Advice whose gain is in what is learned."""
    return view.advice(text, LEARNS_OTHERWISE, safety=safety, risk=risk)


def slower(view: RunView, divisor: int = 5) -> tuple[Fix, ...]:
    """Return a lower learning rate, as a value where the present one is known."""
    now = view.now(_RATE)
    risk = "Training needs more steps."
    if not isinstance(now, (int, float)) or now <= 0:
        text = f"a learning rate of a {'fifth' if divisor == 5 else f'1/{divisor}'}"
        return (learning_advice(view, text, risk=risk),)
    rate = float(f"{now / divisor:.1g}")
    return (learning_setting(view, _RATE, rate, risk=risk),)


def clip_higher(view: RunView) -> tuple[Fix, ...]:
    """Return a wider upper clipping bound, unless there is one already."""
    now = view.now(_HIGH) or view.now(_EPSILON) or 0.2
    if not isinstance(now, (int, float)) or now >= CLIP_HIGH:
        return ()
    risk = "Updates that raise rare tokens become larger."
    return (learning_setting(view, _HIGH, CLIP_HIGH, risk=risk),)


def stay_close(view: RunView, factor: float = 2.0) -> tuple[Fix, ...]:
    """Return a KL term, or a heavier one."""
    now = view.now(_BETA)
    if not isinstance(now, (int, float)):
        return ()
    beta = float(f"{now * factor:.2g}") if now else KL_BETA
    risk = "Keeps the policy near its reference"
    risk += "." if now else "; its log-probs then cost a forward pass per step."
    return (learning_setting(view, _BETA, beta, risk=risk),)


def clip_gradients(view: RunView) -> tuple[Fix, ...]:
    """Gradient clipping at 1, unless it is that low already."""
    now = view.now(_NORM)
    if isinstance(now, (int, float)) and 0 < now <= 1:
        return ()
    risk = "Large gradients are scaled down."
    return (learning_setting(view, _NORM, 1.0, risk=risk),)


def fewer_iterations(view: RunView) -> tuple[Fix, ...]:
    """Return each rollout trained on once."""
    now = view.now(_ITERATIONS)
    if not isinstance(now, int) or now <= 1:
        return ()
    risk = "The same number of optimizer steps then needs more rollouts."
    return (learning_setting(view, _ITERATIONS, 1, risk=risk),)
