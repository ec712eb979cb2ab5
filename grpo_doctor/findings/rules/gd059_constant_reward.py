"""The reward does not distinguish completions."""

from __future__ import annotations

from grpo_doctor.findings.learning import (
    EQUAL,
    FLAT_POINTS,
    FLAT_REWARD,
    finite,
    flat_from,
    flat_steps,
    from_step,
    learning_advice,
    learning_phases,
    learning_share,
    metric,
    reward_spread,
    slower,
    source,
    step_evidence,
    steps_of,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, rule

RULE = rule("learning", metric("reward", FLAT_POINTS), uses=FLAT_REWARD)
# A few flat steps at the end of a solved task are no matter; a fifth of the run is.
MIN_FLAT_SHARE = 0.20


def check(view: RunView) -> Answer:
    """Look for a flat end of the run, which may be all of it."""
    since = flat_from(view)
    reward, spread = finite(view, "reward"), reward_spread(view)
    if since is None:
        if not len(spread):
            low, high = reward.values.min(), reward.values.max()
            return Passed(f"the mean reward varies from {low:.3g} to {high:.3g}")
        deviation = float(spread.values.mean())
        return Passed(f"rewards of one step differ by {deviation:.3g} on average")
    judged, is_flat = flat_steps(view)
    flat = int((is_flat & (judged.steps >= since)).sum())
    share = flat / len(judged)
    always = since == reward.steps[0]
    if not always and share < MIN_FLAT_SHARE:
        return Passed(f"the reward is flat in {percent(share)} of the steps, towards the end")
    last = float(reward.values[-1])
    rose = not always and last > float(reward.values[0]) + EQUAL
    fell = not always and last < float(reward.values[0]) - EQUAL
    cost = share * learning_share(view)
    of = int((judged.steps >= since).sum())
    when = "at every step" if always else f"from step {since} on"
    if flat < of:
        when = f"at {flat} of {of} {steps_of(judged)}" + (
            "" if always else f" from step {since} on"
        )
    return Finding(
        severity="medium" if rose else "high",
        confidence=0.95,
        cost=cost,
        phases=learning_phases(view),
        evidence=(
            Evidence("final reward", last, "", source(reward)),
            *(
                (Evidence("its largest deviation", float(spread.values.max()), "", source(spread)),)
                if len(spread)
                else ()
            ),
            *step_evidence("flat from step", since, reward),
            Evidence("flat steps", 100 * share, "%", source(reward)),
        ),
        cause=f"Every completion has the reward {last:.4g} {when}: all advantages are zero."
        if len(spread)
        else f"The mean reward is {last:.4g} {when}, so hardly any advantage differs from zero.",
        fixes=_lost(view, since) if fell else (_fix(view, rose, since),),
        headline=_headline(last, since, when, rose=rose, fell=fell)
        if len(spread)
        else f"The mean reward is {last:.4g} {when}",
        steps=() if always else from_step(reward, since),
        ruins=always,
    )


def _headline(last: float, since: int, when: str, *, rose: bool, fell: bool) -> str:
    if rose:
        return f"The task is solved at step {since}"
    clause = f"he reward is {last:.4g} for every completion {when}"
    return f"The policy is lost: t{clause}" if fell else f"T{clause}"


def _lost(view: RunView, since: int) -> tuple[Fix, ...]:
    """Return the reward was better before: it is not the reward function."""
    back = f"go back to a checkpoint before step {since}: the current policy can't recover"
    return (*slower(view), learning_advice(view, back))


def _fix(view: RunView, rose: bool, since: int) -> Fix:
    text = (
        f"take the checkpoint of about step {since}, or continue with harder prompts"
        if rose
        else "print what the reward function gets and returns for a few completions; if it is "
        "right, give partial credit or start with easier prompts"
    )
    return learning_advice(view, text)
