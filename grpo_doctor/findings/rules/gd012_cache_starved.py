"""The engine's KV cache is too small.

## What it means

vLLM's cache is full during rollouts: requests wait for room, and some that had begun are thrown out
and computed again.

## Why it costs

A decoding step reads all weights once, however many requests share it. What waits is decoded in
later steps of its own, so the rollout takes more waves than it needs. A preempted request computes
its prompt and all its tokens again.

## Evidence shown

How full the cache is at its peak, how many requests run and how many wait in the mean over the
engine's steps, and preemptions per rollout.

## Fix

A larger `vllm.gpu_memory_utilization`, as far as GPU memory was free during the whole run. Without
room, fewer or shorter completions at once; a smaller `vllm.max_model_len` changes nothing, as the
cache is handed out in pages. The cost shown counts a decoding step as equally long with and without
the waiting requests, which is an upper bound for large models and long contexts.

## When it is wrong

A rollout whose batch already saturates the GPU gains little by more requests at once. In a server
that others use too, the waiting may be theirs.

## References

- https://docs.vllm.ai/en/latest/configuration/optimization/#preemption
- https://docs.vllm.ai/en/latest/configuration/conserving_memory/
"""

from __future__ import annotations

import math

from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import USABLE
from grpo_doctor.findings.knob_access import edits_of
from grpo_doctor.findings.rollout_engine import engine_signal, mean_of, per_rollout, queued_share
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, Rule
from grpo_doctor.findings.severity import Severity, severity_of
from grpo_doctor.findings.view import RunView
from grpo_doctor.findings.wording import percent
from grpo_doctor.whatif import Change, Prediction, Withheld

RULE = Rule(
    id="GD012",
    slug="cache-starved",
    title="The engine's KV cache is too small",
    family="rollout",
    needs=(signals.STEPS, signals.PHASES, engine_signal("kv_cache_peak_pct")),
    uses=(signals.GPU_MEMORY, "engine/*"),
)
# vLLM hands its cache out in blocks and lets a request wait when the next block is not there:
# from nine tenths on the cache, and not the number of slots, is what holds requests back.
FULL_PCT = 90.0
# One request in twenty waiting lengthens a rollout by at most as much, which is within its spread.
MIN_QUEUED = 0.05
# A preempted request is computed twice; one in fifty is 2% of the tokens.
MIN_PREEMPTED = 0.02
# A rollout that is a tenth of the step has nothing to give.
MIN_ROLLOUT_SHARE = 0.10
_KNOB = "vllm.gpu_memory_utilization"


def check(view: RunView) -> Answer:
    """Compares waiting and preempted requests with running ones while the cache is full."""
    full = float(per_rollout(view, "kv_cache_peak_pct").max(initial=0.0))
    queued, preempted = queued_share(view), _preempted_share(view)
    share = view.share("rollout")
    if share < MIN_ROLLOUT_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    if full < FULL_PCT:
        return Passed(f"the cache is at most {full:.0f}% full")
    if queued < MIN_QUEUED and preempted < MIN_PREEMPTED:
        return Passed(f"{percent(queued)} of the requests wait, {percent(preempted)} are preempted")
    cost = share * min(1.0, queued + preempted)
    return Finding(
        severity=_severity(cost, preempted),
        confidence=0.9 if preempted >= MIN_PREEMPTED else 0.7,
        cost=cost,
        phases=("rollout",),
        evidence=_evidence(view, full, queued, preempted),
        cause=f"With the cache {full:.0f}% full, {percent(queued)} of the engine's requests wait "
        f"for room and {_preemptions(view):.3g} per rollout are thrown out and computed again.",
        fixes=(_fix(view),),
    )


def counterfactual(view: RunView) -> tuple[Change, ...]:
    """What the model for a larger cache changes, where there is one."""
    return edits_of(_outcome(view))


def _severity(cost: float, preempted: float) -> Severity:
    """Waiting alone may be the batch that the GPU can take: grave only with work thrown away."""
    return (
        severity_of(cost) if preempted >= MIN_PREEMPTED or severity_of(cost) == "low" else "medium"
    )


def _preemptions(view: RunView) -> float:
    return mean_of(view, "preemptions") or 0.0


def _preempted_share(view: RunView) -> float:
    """Preemptions per request that ran; the most that ran at once stands in for all of them."""
    peak = float(per_rollout(view, "running_requests_peak").max(initial=0.0))
    waiting = float(per_rollout(view, "waiting_requests_peak").max(initial=0.0))
    return _preemptions(view) / max(1.0, peak + waiting)


def _evidence(view: RunView, full: float, queued: float, preempted: float) -> tuple[Evidence, ...]:
    source = "counters engine/..., mean over rollouts"
    running, waiting = (
        mean_of(view, "running_requests_mean"),
        mean_of(view, "waiting_requests_mean"),
    )
    return (
        Evidence("cache at its fullest", round(full, 1), "%", "counter engine/kv_cache_peak_pct"),
        Evidence("requests running", round(running or 0.0, 1), "", source),
        Evidence("requests waiting", round(waiting or 0.0, 1), "", source),
        Evidence("requests that wait", round(100 * queued, 1), "%", source),
        Evidence("preemptions per rollout", _preemptions(view), "", source),
        Evidence("requests preempted", round(100 * preempted, 1), "%", source),
        *view.phase_evidence("rollout"),
    )


def _target(view: RunView) -> float | None:
    """The share that the engine may have: what it has and what no GPU ever used, less a tenth."""
    now, memory = view.knob(_KNOB), view.gpu_memory
    if now is None or not memory or view.knob("vllm.mode") == "server":
        return None
    free = min(m.free_bytes / m.gpu.memory_total_bytes for m in memory)
    target = math.floor(20 * min(USABLE, now + free - (1 - USABLE))) / 20
    return target if target > now else None


def _outcome(view: RunView) -> Prediction | Withheld:
    target = _target(view)
    if target is None:
        return Withheld("how much room the cache could have was not recorded, or there is none")
    return view.what_if(vllm__gpu_memory_utilization=target)


def _fix(view: RunView) -> Fix:
    target, outcome = _target(view), _outcome(view)
    if target is not None:
        risk = "vLLM fails at start if this share is not free then; step back by 0.05."
        return view.setting(_KNOB, target, outcome, safety="same-math", risk=risk)
    spelled = view.spell(_KNOB, 0.9)
    return view.advice(
        "give the engine more memory"
        + (f" ({spelled.split()[0]})" if spelled else "")
        + ", or roll out fewer completions at once",
        outcome,
        safety="same-math",
        risk="The trainer's own memory has to fit beside it.",
    )
