"""The reward does not distinguish completions."""

from __future__ import annotations

from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, rule

RULE = rule("learning", learning.metric("reward", learning.FLAT_POINTS), uses=learning.FLAT_REWARD)
# A few flat steps at the end of a solved task are no matter; a fifth of the run is.
MIN_FLAT_SHARE = 0.20


def check(view: RunView) -> Answer:
    """Look for a flat end of the run, which may be all of it."""
    since = learning.flat_from(view)
    reward, spread = learning.finite(view, "reward"), learning.reward_spread(view)
    if since is None:
        if not len(spread):
            low, high = reward.values.min(), reward.values.max()
            return Passed(f"the mean reward varies from {low:.3g} to {high:.3g}")
        deviation = float(spread.values.mean())
        return Passed(f"rewards of one step differ by {deviation:.3g} on average")
    judged, is_flat = learning.flat_steps(view)
    flat = int((is_flat & (judged.steps >= since)).sum())
    share = flat / len(judged)
    always = since == reward.steps[0]
    if not always and share < MIN_FLAT_SHARE:
        return Passed(f"the reward is flat in {percent(share)} of the steps, towards the end")
    last = float(reward.values[-1])
    rose = not always and last > float(reward.values[0]) + learning.EQUAL
    fell = not always and last < float(reward.values[0]) - learning.EQUAL
    cost = share * learning.share(view)
    largest = float(spread.values.max()) if len(spread) else None
    of = int((judged.steps >= since).sum())
    when = "at every step" if always else f"from step {since} on"
    if flat < of:
        when = f"at {flat} of {of} {learning.steps_of(judged)}" + (
            "" if always else f" from step {since} on"
        )
    text = (
        "print what the reward function gets and returns for a few completions; if it is right, "
        "give partial credit or start with easier prompts"
    )
    if rose:
        text = f"take the checkpoint of about step {since}, or continue with harder prompts"
    elif fell:  # the reward was better before: it is not the reward function
        text = f"go back to a checkpoint before step {since}: the current policy can't recover"
    return Finding(
        severity="medium" if rose else "high",
        confidence=0.95,
        cost=cost,
        phases=learning.phases(view),
        evidence=(
            Evidence("final reward", last, "", learning.source(reward)),
            Evidence("its largest deviation", largest, "", learning.source(spread)),
            *learning.step_evidence("flat from step", since, reward),
            Evidence("flat steps", 100 * share, "%", learning.source(reward)),
        ),
        cause=f"Every completion has the reward {last:.4g} {when}: all advantages are zero."
        if len(spread)
        else f"The mean reward is {last:.4g} {when}, so hardly any advantage differs from zero.",
        fixes=(*(learning.slower(view) if fell else ()), learning.advice(view, text)),
        headline=_headline(last, since, when, rose=rose, fell=fell)
        if len(spread)
        else f"The mean reward is {last:.4g} {when}",
        steps=() if always else learning.from_step(reward, since),
        ruins=always,
    )


def _headline(last: float, since: int, when: str, *, rose: bool, fell: bool) -> str:
    if rose:
        return f"The task is solved at step {since}"
    clause = f"he reward is {last:.4g} for every completion {when}"
    return f"The policy is lost: t{clause}" if fell else f"T{clause}"
