"""The engine decodes fewer requests at once than it could.

## What it means

Requests wait although the cache has room, because `vllm.max_num_seqs` lets no more of them run; or
a rollout has so few requests that the cache stays nearly empty.

## Why it costs

A decoding step reads all weights once, for one request or for hundreds: until the GPU computes all
the time, more requests at once come almost for free.

## Evidence shown

Requests running and waiting, the most that ran at once, and the peak of the cache.

## Fix

Where requests wait: `vllm.max_num_seqs` at the number that one rollout has. Else more completions
per rollout (`rollout.steps_per_generation`), or fewer GPUs per engine. The cost is a bound.

## When it is wrong

With long contexts the cache fills before the slots do; then the limit protects from preemption.
Where the limit is not known, requests that wait for `vllm.max_num_batched_tokens` look the same. On
a CPU decoding is bound by computing, and more requests at once may bring nothing.

## References

- https://docs.vllm.ai/en/latest/configuration/optimization/
- https://docs.vllm.ai/en/latest/configuration/engine_args/
"""

from __future__ import annotations

import math

from grpo_doctor.findings import signals
from grpo_doctor.findings.rollout_engine import (
    engine_signal,
    peak_of,
    per_rollout,
    queued_share,
    request_evidence,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, Rule
from grpo_doctor.findings.severity import percent, severity_of
from grpo_doctor.findings.view import RunView, identity
from grpo_doctor.whatif import Withheld

RULE = Rule(
    *identity(__name__, __doc__),
    family="rollout",
    needs=(signals.STEPS, signals.PHASES, engine_signal("running_requests_peak")),
    uses=("engine/*",),
)
# With a tenth of the requests waiting a rollout has at least a wave more than it needs.
MIN_QUEUED = 0.10
# At nine tenths the cache, not the number of slots, holds requests back: that is another finding.
CACHE_FULL_PCT = 90.0
# Decoding on current GPUs stays bound by reading weights up to 64 requests and more; with half of
# that and a cache that is a quarter full, doubling the requests fits and costs little time.
FEW_REQUESTS = 32
NEARLY_EMPTY_PCT = 25.0
MIN_ROLLOUT_SHARE = 0.20
_SLOTS, _PER_ROLLOUT = "vllm.max_num_seqs", "rollout.steps_per_generation"


def check(view: RunView) -> Answer:
    """Looks for waiting requests beside a cache with room, then for too few requests."""
    share, queued = view.share("rollout"), queued_share(view)
    full = per_rollout(view, "kv_cache_peak_pct")
    cache = float(full.max()) if len(full) else None
    peak = peak_of(view, "running_requests_peak")
    if share < MIN_ROLLOUT_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    if cache is not None and cache >= CACHE_FULL_PCT:
        return Passed(f"the cache is {cache:.0f}% full: there is no room for more requests")
    if queued >= MIN_QUEUED and not _slots_full(view, peak):
        return Passed(f"requests wait though only {peak:.0f} run: for their first pass, not a slot")
    if queued >= MIN_QUEUED:
        return _too_few_slots(view, queued, peak, cache)
    if not view.has_gpu or cache is None or cache > NEARLY_EMPTY_PCT or peak > FEW_REQUESTS:
        return Passed(
            f"{percent(queued)} of the requests wait; at most {peak:.0f} run at once"
            + ("" if cache is None else f" with the cache {cache:.0f}% full")
        )
    return Finding(
        severity="low",
        confidence=0.6,
        cost=0.0,  # what a larger batch would bring was not measured
        phases=("rollout",),
        evidence=_evidence(view, queued, peak, cache),
        cause=f"An engine decodes at most {peak:.0f} requests at once and fills {cache:.0f}% of "
        f"its cache, while the rollout takes {percent(view.share('rollout'))} of the step.",
        fixes=(_more_requests(view),),
    )


def _slots_full(view: RunView, peak: float) -> bool:
    """Whether as many ran as may; requests also wait for the tokens that one pass computes. The
    bundled trainer's default is all of a rollout, so there nothing waits for a slot."""
    slots = None if _is_server(view) else view.knob(_SLOTS)
    if not slots:
        return _is_server(view) or view.trace.run.framework != "bundled"
    return peak >= float(slots)


def _is_server(view: RunView) -> bool:
    return bool(view.knob("vllm.mode") == "server")


def _too_few_slots(view: RunView, queued: float, peak: float, cache: float | None) -> Finding:
    cost = view.share("rollout") * queued
    return Finding(
        # Without a GPU decoding is bound by computing, so the cost is only a bound.
        severity=severity_of(cost, proven=view.has_gpu),
        confidence=0.85 if view.has_gpu else 0.6,
        cost=cost,
        phases=("rollout",),
        evidence=_evidence(view, queued, peak, cache),
        cause=f"{percent(queued)} of the engine's requests wait for a slot: at most {peak:.0f} run "
        f"at once, and the cache is at most {cache or 0.0:.0f}% full.",
        fixes=(_more_slots(view),),
    )


def _more_slots(view: RunView) -> Fix:
    # For all requests of one rollout: the most that ran and waited at once.
    slots = math.ceil(sum(peak_of(view, f"{n}_requests_peak") for n in ("running", "waiting")))
    risk = "More requests at once need more of the cache: watch for preemptions."
    if _is_server(view):
        text, outcome = (
            f"for the vLLM server: --max-num-seqs {slots}",
            view.what_if(vllm__max_num_seqs=slots),
        )
        return view.edit(text, outcome, safety="same-math", risk=risk)
    return view.setting(_SLOTS, slots, safety="same-math", risk=risk)


def _more_requests(view: RunView) -> Fix:
    outcome = Withheld("this run does not say how its engine's speed grows with its batch")
    now = view.knob(_PER_ROLLOUT) or view.knob("train.grad_accumulation")
    risk = "The later steps of a rollout train on completions of slightly older weights."
    if now and view.spell(_PER_ROLLOUT, 2 * int(now)):
        return view.setting(
            _PER_ROLLOUT, 2 * int(now), outcome, safety="changes-algorithm", risk=risk
        )
    text = "roll out more prompts at once, or give each engine fewer GPUs"
    return view.advice(text, outcome, safety="changes-algorithm", risk=risk)


def _evidence(
    view: RunView, queued: float, peak: float, cache: float | None
) -> tuple[Evidence, ...]:
    cached = "counter engine/kv_cache_peak_pct"
    return (
        *request_evidence(view, queued),
        Evidence("most requests at once", peak, "", "counter engine/running_requests_peak"),
        *([Evidence("peak cache usage", round(cache, 1), "%", cached)] if cache else []),
        *view.phase_evidence("rollout"),
    )
