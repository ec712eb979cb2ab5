"""Prompts that a group shares are computed once per completion."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rollout_engine import engine_signal, lengths, mean_of, per_rollout
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed, scaled
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule(
    __name__,
    __doc__,
    "rollout",
    signals.SETTINGS,
    engine_signal("prompt_tokens"),
    uses=("engine/*",),
)
# The first pass takes a prompt's tokens all at once, 10 to 50 times cheaper each than decoding one:
# below half as many repeated prompt tokens as generated ones it is a percent or two of a rollout.
MIN_REPEATED = 0.5
# From four times as many on it is a tenth of the rollout or more.
MANY_REPEATED = 4.0
# vLLM caches whole blocks of 16 tokens; a prompt of less than two has next to nothing to share.
BLOCK_TOKENS, BLOCKS = 16, 2
# Half of what a group could share, found: the cache works.
MIN_FOUND = 0.5
MIN_ROLLOUT_SHARE = 0.10
_KNOB = "vllm.enable_prefix_caching"


def check(view: RunView) -> Answer:
    """Compare what was computed again with what was generated."""
    group = view.knob("rollout.num_generations")
    if not isinstance(group, int) or group < 2:
        return NotApplicable("no prompt is sampled more than once")
    if view.share("rollout") < MIN_ROLLOUT_SHARE:
        return Passed(f"the rollout takes {percent(view.share('rollout'))} of the step")
    prompts, generated = mean_of(view, "prompt_tokens"), mean_of(view, "generated_tokens")
    if not prompts or not generated:
        return Passed("prompt tokens were not counted")
    return _judged(view, group, prompts, generated)


def _judged(view: RunView, group: int, prompts: float, generated: float) -> Answer:
    # Tokens of a mean prompt: all of a rollout's over its completions; None if not counted.
    rollouts = len(per_rollout(view, "prompt_tokens"))
    completions = sum(lengths(view).values())
    each = prompts * rollouts / completions if completions else None
    if each is not None and each < BLOCKS * BLOCK_TOKENS:
        return Passed(f"prompts have {each:.0f} tokens, and the cache keeps whole blocks of 16")
    # The share of the looked-up prompt tokens that the cache had; None if it was never asked.
    queried = mean_of(view, "prefix_cache_queried_tokens")
    hit = mean_of(view, "prefix_cache_hit_tokens")
    cached = hit / queried if queried and hit is not None else None
    on = view.now(_KNOB) is not False
    shared = (group - 1) / group * prompts
    again = shared - (cached or 0.0) * prompts if on and cached is not None else shared
    if on and (cached is None or cached * prompts >= MIN_FOUND * shared):
        return Passed(
            "the prefix cache is on"
            + (f" and has {percent(cached)} of the prompt tokens" if cached is not None else "")
        )
    if again < MIN_REPEATED * generated:
        return Passed(f"{again:.0f} prompt tokens computed again, {generated:.0f} generated")
    return Finding(
        severity="medium" if again >= MANY_REPEATED * generated else "low",
        confidence=0.6 if on else 0.8,
        cost=0.0,  # the first passes were not timed apart from decoding
        phases=("rollout",),
        evidence=_evidence(view, prompts, generated, again, cached),
        cause=f"Each rollout computes {again:.0f} prompt tokens again for other completions of a "
        f"group, in addition to {generated:.0f} tokens that it generates.",
        fixes=(_fix(view, on=on),),
    )


def _fix(view: RunView, *, on: bool) -> Fix:
    if not on:
        risk = "Needs no additional memory: unused cache blocks are kept until needed."
        return view.setting(_KNOB, True, risk=risk)
    text = "send all completions of a prompt to one engine, and put differing parts last"
    return view.advice(text, "why the cache has few hits was not recorded", safety="needs-code")


def _evidence(
    view: RunView, prompts: float, generated: float, again: float, cached: float | None
) -> tuple[Evidence, ...]:
    source = "counters engine/..., mean over rollouts"
    return (
        Evidence("prompt tokens per rollout", round(prompts), "tokens", source),
        Evidence("of which computed again", round(again), "tokens", source),
        Evidence("generated per rollout", round(generated), "tokens", source),
        Evidence("completions per prompt", view.knob("rollout.num_generations"), "", "settings"),
        Evidence("found in the cache", scaled(cached, 100), "%", source),
        *view.phase_evidence("rollout"),
    )
