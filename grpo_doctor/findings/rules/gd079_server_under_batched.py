"""A rollout server lets too few requests run at once.

## What it means

Requests wait at a server although its cache has room: its limit of requests at once is reached.

## Why it costs

A decoding step reads all weights once, for one request or for hundreds: until the GPU computes all
the time, more requests at once come almost for free.

## Evidence shown

Of the server with most requests waiting: requests running and waiting, the most at once, the peak
of its cache, and the limit where its command says one.

## Fix

As many as ran and waited at once, in the server's own flag: `--max-num-seqs` of `vllm serve`,
`--vllm_max_num_seqs` of `swift rollout`, `--max-running-requests` of SGLang. The cost is a bound.

## When it is wrong

Where the limit is not in the command, requests that wait for `--max-num-batched-tokens` or for new
weights look the same. With long contexts the cache fills before the slots do; then the limit
protects from preemption. On a CPU decoding is bound by computing, and more requests at once may
bring nothing. A judge's server that joined the run looks like one of rollouts, unless the run says
that its engine is within its ranks.

## References

- https://docs.vllm.ai/en/latest/configuration/optimization/
- https://docs.sglang.io/advanced_features/hyperparameter_tuning.html
"""

from __future__ import annotations

import math

from grpo_doctor.findings import signals
from grpo_doctor.findings.rollout_servers import (
    CACHE,
    PREEMPTIONS,
    RUNNING,
    TOKENS,
    WAITING,
    WITHIN_RANKS,
    Load,
    engine_within_ranks,
    loads,
    server_signal,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, Rule
from grpo_doctor.findings.rules.gd015_rollout_under_batched import (
    CACHE_FULL_PCT,
    MIN_QUEUED,
    MIN_ROLLOUT_SHARE,
)
from grpo_doctor.findings.severity import percent, severity_of
from grpo_doctor.findings.view import RunView, identity
from grpo_doctor.whatif import Withheld

RULE = Rule(
    *identity(__name__, __doc__),
    family="rollout",
    needs=(signals.STEPS, signals.PHASES, server_signal(RUNNING), server_signal(WAITING)),
    uses=(CACHE, PREEMPTIONS, TOKENS),
)
_SLOTS = "vllm.max_num_seqs"
# Peaks are sampled once a second: so near to its limit a server has been at it.
_REACHED = 0.9
_REASON = "how the server's speed grows with its batch was not measured"


def check(view: RunView) -> Answer:
    """Looks for requests that wait at a server whose cache has room."""
    if engine_within_ranks(view):
        return WITHIN_RANKS
    share = view.share("rollout")
    if share < MIN_ROLLOUT_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    servers = loads(view)
    if not servers:
        return Passed("no server said during the steps how many requests it had")
    return _judged(view, servers, share)


def _judged(view: RunView, servers: tuple[Load, ...], share: float) -> Answer:
    # A full cache holds requests back whatever the limit: that is GD078's.
    roomy = [load for load in servers if (load.cache_peak_pct or 0.0) < CACHE_FULL_PCT]
    if not roomy:
        return Passed("the cache is full: there is no room for more requests")
    worst = max(roomy, key=lambda load: load.queued_share)
    queued, slots = worst.queued_share, _slots(worst)
    if queued < MIN_QUEUED:
        return Passed(f"{percent(queued)} of the requests wait")
    if slots is not None and worst.running_peak < _REACHED * slots:
        return Passed(
            f"requests wait though only {worst.running_peak:.0f} of {slots:.0f} run: "
            "for their first pass, not a slot"
        )
    cost = share * queued
    limit = [] if slots is None else [Evidence("limit of requests", slots, "", "its command")]
    room = "" if worst.cache_peak_pct is None else f", and its cache is {worst.cache_peak_pct:.0f}%"
    return Finding(
        # Without a GPU decoding is bound by computing, so the cost is only a bound.
        severity=severity_of(cost, proven=view.has_gpu),
        confidence=0.85 if slots is not None and view.has_gpu else 0.6,
        cost=cost,
        phases=("rollout",),
        evidence=(*worst.evidence("requests", "cache"), *limit, *view.phase_evidence("rollout")),
        cause=f"{percent(worst.queued_share)} of the requests at {worst.name} wait: at most "
        f"{worst.running_peak:.0f} run at once" + (f"{room} full at its peak." if room else "."),
        fixes=(_fix(view, worst),),
    )


def _slots(load: Load) -> float | None:
    slots = load.program.value(_SLOTS) if load.program else None
    return float(slots) if isinstance(slots, int) and slots > 0 else None


def _fix(view: RunView, load: Load) -> Fix:
    needed = math.ceil(load.running_peak + load.waiting_peak)
    risk = "More requests at once need more of the cache: watch for preemptions."
    fix = load.setting(view, _SLOTS, needed, reason=_REASON, risk=risk)
    if fix is not None:
        return fix
    text = f"let the rollout server run {needed} requests at once"
    return view.advice(text, Withheld(_REASON), safety="same-math", risk=risk)
