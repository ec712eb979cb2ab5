"""A rollout engine decodes fewer requests at once than it could."""

from __future__ import annotations

import math

from grpo_doctor.findings import rollout_servers
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import CACHE_FULL_PCT, percent, severity_of
from grpo_doctor.findings.sides import queue_evidence
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Settings

RULE = timed_rule(
    "rollout",
    rollout_servers.engine_or_server(
        "engine/running_requests_peak", rollout_servers.RUNNING, rollout_servers.WAITING
    ),
    uses=rollout_servers.ENGINES,
)
# With a tenth of the requests waiting a rollout has at least a wave more than it needs.
MIN_QUEUED = 0.10
# Decoding on current GPUs stays bound by reading weights up to 64 requests and more; with half of
# that and a cache that is a quarter full, doubling the requests fits and costs little time.
FEW_REQUESTS = 32
NEARLY_EMPTY_PCT = 25.0
MIN_ROLLOUT_SHARE = 0.20
# A server's peaks are sampled once a second: so near to its limit it has been at it.
_REACHED = 0.9
_SLOTS, _PER_ROLLOUT = "vllm.max_num_seqs", "rollout.steps_per_generation"
_REASON = "how the server's speed grows with its batch was not measured"


def check(view: RunView) -> Answer:
    """Look for waiting requests while the cache has room, then for too few requests."""
    every, share = rollout_servers.engines(view), view.share("rollout")
    if not every:
        return rollout_servers.unheard(view)
    if share < MIN_ROLLOUT_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    roomy = [load for load in every if (load.cache_peak_pct or 0.0) < CACHE_FULL_PCT]
    if not roomy:
        return Passed("the cache is full: there is no room for more requests")
    worst = max(roomy, key=lambda load: load.queued_share)
    slots, peak = _slots(view, worst), worst.running_peak
    if worst.queued_share < MIN_QUEUED:
        return _few_requests(view, worst)
    if _has_free_slots(view, worst, slots):
        of = "" if slots is None else f" of {slots:.0f}"
        return Passed(
            f"requests wait though only {peak:.0f}{of} run: for their first pass, not a slot"
        )
    cost = share * worst.queued_share
    said = slots is not None and (not worst.counted or view.fact(_SLOTS) is not None)
    limit = Evidence("limit of requests", slots if said else None, "", "its settings")
    full = worst.cache_peak_pct
    room = "" if full is None else f", and its cache is {full:.0f}% full at its peak"
    sure = view.has_gpu and (worst.counted or slots is not None)
    return Finding(
        # Without a GPU decoding is bound by computing, so the cost is only a bound.
        severity=severity_of(cost, proven=view.has_gpu),
        confidence=0.85 if sure else 0.6,
        cost=cost,
        phases=("rollout",),
        evidence=(
            *worst.evidence("requests", "cache"),
            limit,
            queue_evidence(view),
            *view.phase_evidence("rollout"),
        ),
        cause=f"{percent(worst.queued_share)} of the requests at {worst.name} wait: at most "
        f"{peak:.0f} run at once{room}.",
        fixes=(_more_slots(view, worst),),
    )


def _slots(view: RunView, load: rollout_servers.Load) -> float | None:
    """Return how many requests may run at once; None where that is not known."""
    if load.counted:
        slots = None if _is_server(view) else view.now(_SLOTS)
    else:
        slots = load.program.value(_SLOTS) if load.program else None
    return float(slots) if isinstance(slots, int) and slots > 0 else None


def _has_free_slots(view: RunView, load: rollout_servers.Load, slots: float | None) -> bool:
    """Whether fewer ran than may; requests also wait for the tokens that one pass computes. The
    bundled trainer's default is all of a rollout, so there nothing waits for a slot."""
    if slots is None:
        return load.counted and not _is_server(view) and view.trace.run.framework == "bundled"
    return load.running_peak < (1.0 if load.counted else _REACHED) * slots


def _is_server(view: RunView) -> bool:
    return bool(view.now("vllm.mode") == "server")


def _more_slots(view: RunView, load: rollout_servers.Load) -> Fix:
    needed = math.ceil(load.running_peak + load.waiting_peak)
    risk = "More concurrent requests need more of the cache: watch for preemptions."
    if load.counted and not _is_server(view):
        return view.setting(_SLOTS, needed, risk=risk)
    if load.counted:
        text = f"for the vLLM server: --max-num-seqs {needed}"
        return view.edit(text, Settings(((_SLOTS, needed),)), risk=risk)
    fix = load.setting(view, _SLOTS, needed, reason=_REASON, risk=risk)
    text = f"let the rollout server run {needed} requests at once"
    return fix or view.advice(text, _REASON, risk=risk)


def _few_requests(view: RunView, load: rollout_servers.Load) -> Answer:
    """Return whether an engine that the ranks counted for is nearly empty with all that it gets."""
    peak, cache, queued = load.running_peak, load.cache_peak_pct, percent(load.queued_share)
    few = load.counted and view.has_gpu and peak <= FEW_REQUESTS
    if not few or cache is None or cache > NEARLY_EMPTY_PCT:
        return Passed(
            f"{queued} of the requests wait; at most {peak:.0f} run at once"
            + ("" if cache is None else f" with the cache {cache:.0f}% full")
        )
    return Finding(
        severity="low",
        confidence=0.6,
        cost=0.0,  # what a larger batch would bring was not measured
        phases=("rollout",),
        evidence=(*load.evidence("requests", "cache"), *view.phase_evidence("rollout")),
        cause=f"An engine decodes at most {peak:.0f} requests at once and fills {cache:.0f}% of "
        f"its cache, while the rollout takes {percent(view.share('rollout'))} of the step.",
        fixes=(_more_requests(view),),
    )


def _more_requests(view: RunView) -> Fix:
    outcome = "how the engine's speed grows with its batch was not measured"
    now = view.now(_PER_ROLLOUT) or view.now("train.grad_accumulation")
    risk = "Later steps of a rollout train on completions of slightly older weights."
    if now and view.spell(_PER_ROLLOUT, 2 * int(now)):
        return view.setting(
            _PER_ROLLOUT, 2 * int(now), outcome, safety="changes-algorithm", risk=risk
        )
    text = "generate more prompts at once, or give each engine fewer GPUs"
    return view.advice(text, outcome, safety="changes-algorithm", risk=risk)
