"""A log-prob pass is avoidable."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, number, timed_rule
from grpo_doctor.whatif import Replay, Settings, without

RULE = timed_rule("training", signals.SETTINGS)
# Below it the pass is cheaper than talking about it.
MIN_SHARE = 0.03
# The published default is 0.04; a fortieth of it moves no gradient that one would see.
NO_WEIGHT = 0.001
OLD, REFERENCE = "logprob/old", "logprob/reference"


def check(view: RunView) -> Answer:
    """Look for passes whose results barely affect the loss."""
    old, reference = _share(view, OLD), _share(view, REFERENCE)
    if not old and not reference:
        return NotApplicable("neither logprob/old nor logprob/reference takes any time")
    avoidable = {
        span: share
        for span, share, needless in (
            (OLD, old, _on_policy(view)),
            (REFERENCE, reference, 0 < (number(view.knob("train.beta")) or 0) <= NO_WEIGHT),
        )
        if needless and share >= MIN_SHARE
    }
    if not avoidable:
        return Passed(
            f"old log-probs take {percent(old, 1)} of the step and those of the reference "
            f"{percent(reference, 1)}; the loss needs them"
        )
    cost = sum(avoidable.values())
    owners = {OLD: "the weights that sampled", REFERENCE: "the reference"}
    return Finding(
        confidence=0.8,
        cost=cost,
        phases=("logprob",),
        evidence=_evidence(view, avoidable),
        cause=f"Each step computes log-probs of {' and of '.join(owners[s] for s in avoidable)}, "
        f"{percent(cost)} of it, for a loss in which they do "
        f"{'next to ' if REFERENCE in avoidable else ''}nothing.",
        fixes=tuple(_fix(view, span) for span in avoidable),
    )


def _share(view: RunView, span: str) -> float:
    return view.of_step(view.span_seconds(span))


def _on_policy(view: RunView) -> bool:
    """Whether each rollout feeds exactly one optimizer step, and nothing else asks for the pass."""
    iterations, passes = view.knob("train.num_iterations"), view.knob("train.grad_accumulation")
    fed = view.knob("rollout.steps_per_generation")
    corrected = view.now("rollout.importance_correction")
    mode = view.now("rollout.importance_mode")
    if corrected is True or mode not in (None, "none"):
        return False
    return iterations == 1 and bool(passes) and fed in (None, passes)


def _evidence(view: RunView, avoidable: dict[str, float]) -> tuple[Evidence, ...]:
    passes = []
    for span, share in avoidable.items():
        passes.append(Evidence(f"{span} per step", view.span_seconds(span), "s", "its spans"))
        passes.append(Evidence(f"{span} of the step", 100 * share, "%", "its spans"))
    if REFERENCE in avoidable:
        passes.append(Evidence("weight of the KL term", view.knob("train.beta"), "", "train.beta"))
    if OLD in avoidable:
        text = "optimizer steps per rollout"
        passes.append(Evidence(text, 1, "", "train.num_iterations, rollout.steps_per_generation"))
    return tuple(passes)


def _fix(view: RunView, span: str) -> Fix:
    if span == REFERENCE:
        risk = "The policy may move away from the reference slightly sooner."
        own = Replay((without(REFERENCE),), f"without {REFERENCE}")
        change = Settings((("train.beta", 0.0),), own)
        return view.setting("train.beta", 0.0, change, safety="changes-algorithm", risk=risk)
    text = "use a version or trainer that takes the ratio as 1 if a rollout feeds one step"
    risk = "Some frameworks always compute old log-probs; those need a code change."
    old = Replay((without(OLD),), f"without {OLD}")
    return view.advice(text, old, safety="needs-code", risk=risk)
