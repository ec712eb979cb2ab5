"""A training metric is NaN or never changes."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.shape import MAX_LOST, broken
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.view import RunView, rule

# What an update is made of; one that has no number for them has not taught anything.
_OF_UPDATES = {
    "loss": "The loss",
    "grad_norm": "The gradient norm",
    "kl": "The KL divergence",
    "entropy": "The entropy",
}
_OTHERS = ("clip", "gap", "length", "truncated", "zero_variance", "reward_std", "eval_loss")
RULE = rule("learning", learning.any_metric(*_OF_UPDATES, *_OTHERS), uses=learning.FLAT_REWARD)
# One lost gradient in a hundred may be a loss scale being found.
MAX_LOST_GRADIENTS = 0.01
# A gradient of 0 at one or two steps may be one easy batch.
SURE_POINTS = 3
_PRECISION = "use bfloat16 or float32 instead of float16"
_NO_GRADIENT = (
    "check that parameters require gradients (with LoRA and gradient checkpointing: "
    "enable_input_require_grads), that not every completion is masked out, and upgrade DeepSpeed"
)
_NO_ADVANTAGE = (
    "read the completions and rewards of one group; use finer rewards, or prompts that are "
    "sometimes solved"
)


def check(view: RunView) -> Answer:
    """No number first, then what never changes."""
    curves = {name: c for name in (*_OF_UPDATES, *_OTHERS) if (c := view.metric(name)) is not None}
    lost = sorted(
        ((name, c) for name, c in curves.items() if c.bad.any()),
        key=lambda item: (item[0] not in _OF_UPDATES, item[1].steps[item[1].bad][0]),
    )
    if lost:
        return _no_number(view, lost)
    norms, loss = curves.get("grad_norm"), curves.get("loss")
    if norms is not None and not norms.values.any():
        since = learning.flat_from(view)
        if since is not None and since == norms.steps[0]:
            return Passed("the gradient norm is 0, as all rewards are equal, see GD059")
        return _no_gradient(view, norms)
    if (
        loss is not None
        and len(loss) >= learning.FLAT_POINTS
        and loss.values[0]
        and not np.ptp(loss.values)
    ):
        headline = f"The loss is {loss.values[0]:.4g} at all {len(loss)} {learning.steps_of(loss)}"
        text = "check that the logged loss is the trained loss"
        return Finding(
            severity="medium",
            confidence=0.7,
            evidence=(Evidence("loss", float(loss.values[0]), "", learning.source(loss)),),
            cause=f"{headline}: a loss over different batches does not stay the same.",
            fixes=(learning.advice(view, text, safety="needs-code"),),
            headline=headline,
        )
    return Passed(f"a number at every step in {', '.join(c.key for c in curves.values())}")


def _no_number(view: RunView, lost: list[tuple[str, Curve]]) -> Finding:
    name, worst = lost[0]
    first = int(worst.steps[worst.bad][0])
    share = float(worst.bad.mean())
    most = MAX_LOST_GRADIENTS if name == "grad_norm" else MAX_LOST
    gone = share > most or broken(worst) or learning.lost_for_good(worst)
    ruined = name in _OF_UPDATES and gone
    also = [f"`{c.key}` is {learning.when_bad(c)}" for _, c in lost]
    of_update = name in ("loss", "grad_norm")
    text = f"check the batch of step {first}: rewards, log-probs, and masks without tokens"
    fixes = [learning.advice(view, text, safety="needs-code")]
    if of_update:
        fixes.append(learning.advice(view, _PRECISION, safety="changes-numerics"))
    return Finding(
        severity="high" if ruined else "medium" if of_update else "low",
        confidence=0.9,
        evidence=tuple(
            Evidence(
                f"{c.key} is NaN or infinite first at step",
                int(c.steps[c.bad][0]),
                "",
                learning.source(c),
            )
            for _, c in lost
        ),
        cause=f"{'; '.join(also)}.",
        fixes=tuple(fixes),
        headline=f"{_OF_UPDATES.get(name, f'`{worst.key}`')} is {learning.when_bad(worst)}",
        steps=learning.from_step(worst.where(worst.bad), first),
        ruins=ruined,
    )


def _no_gradient(view: RunView, norms: Curve) -> Answer:
    spread = learning.finite(view, "reward_std")
    deviation = float(spread.values.mean()) if len(spread) else None
    alike = bool(len(spread)) and float(spread.values.max()) <= learning.EQUAL
    count = len(norms)
    when = (
        f"at all {count} {learning.steps_of(norms)}"
        if count > 1
        else f"at the only step, {norms.steps[0]}"
    )
    why = ": all completions of a prompt have the same reward" if alike else ""
    fix = learning.advice(view, _NO_GRADIENT, safety="needs-code")
    if alike:
        fix = learning.advice(view, _NO_ADVANTAGE)
    return Finding(
        severity="high" if count >= SURE_POINTS else "medium",
        confidence=0.9 if count >= SURE_POINTS else 0.6,
        evidence=(
            Evidence("gradient norm", 0.0, "", learning.source(norms)),
            Evidence("deviation of rewards", deviation, "", learning.source(spread)),
        ),
        cause=f"The gradient norm is 0 {when}{why or ': no weight changes'}.",
        fixes=(fix,),
        headline=f"The gradient norm is 0 {when}{why}",
        ruins=count >= SURE_POINTS,
    )
