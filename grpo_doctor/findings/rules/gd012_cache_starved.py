"""The engine's KV cache is too small.

## What it means

vLLM's cache is full during rollouts: requests wait for room, and some that had begun are thrown out
and computed again.

## Why it costs

A decoding step reads all weights once, however many requests share it: what waits is decoded in
more steps. A preempted request computes its prompt and all its tokens again.

## Evidence shown

How full the cache is at its peak, how many requests run and wait, and preemptions per rollout.

## Fix

A larger `vllm.gpu_memory_utilization`, as far as memory was free during the whole run; else fewer
or shorter completions at once. A smaller `vllm.max_model_len` changes nothing: the cache is handed
out in pages. The cost is an upper bound for large models and long contexts.

## When it is wrong

A rollout whose batch already saturates the GPU gains little by more requests at once. In a server
that others use too, the waiting may be theirs.

## References

- https://docs.vllm.ai/en/latest/configuration/optimization/#preemption
- https://docs.vllm.ai/en/latest/configuration/conserving_memory/
"""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.memory_fixes import SHARE_RISK, VLLM_SHARE, larger_share
from grpo_doctor.findings.rollout_engine import (
    MEANS,
    engine_signal,
    mean_of,
    peak_of,
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


def check(view: RunView) -> Answer:
    """Compares waiting and preempted requests with running ones while the cache is full."""
    full = peak_of(view, "kv_cache_peak_pct")
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
        # Waiting alone may be the batch that the GPU can take: grave only with work thrown away.
        severity=severity_of(cost, proven=preempted >= MIN_PREEMPTED),
        confidence=0.9 if preempted >= MIN_PREEMPTED else 0.7,
        cost=cost,
        phases=("rollout",),
        evidence=(
            Evidence("peak cache usage", round(full, 1), "%", "counter engine/kv_cache_peak_pct"),
            *request_evidence(view, queued),
            Evidence("preemptions per rollout", _preemptions(view), "", MEANS),
            Evidence("requests preempted", round(100 * preempted, 1), "%", MEANS),
            *view.phase_evidence("rollout"),
        ),
        cause=f"With the cache {full:.0f}% full, {percent(queued)} of the engine's requests wait "
        f"for room and {_preemptions(view):.3g} per rollout are thrown out and computed again.",
        fixes=(_fix(view),),
    )


def _preemptions(view: RunView) -> float:
    return mean_of(view, "preemptions") or 0.0


def _preempted_share(view: RunView) -> float:
    """Preemptions per request that ran; the most that ran at once stands in for all of them."""
    peak = peak_of(view, "running_requests_peak") + peak_of(view, "waiting_requests_peak")
    return _preemptions(view) / max(1.0, peak)


def _fix(view: RunView) -> Fix:
    memory = view.gpu_memory
    outcome = Withheld("how much room the cache could have was not recorded")
    if memory and view.knob("vllm.mode") != "server":
        free = min(m.free_bytes / m.gpu.memory_total_bytes for m in memory)
        target = larger_share(view, free)
        if target is not None:
            return view.setting(VLLM_SHARE, target, safety="same-math", risk=SHARE_RISK)
        outcome = Withheld("no memory is free for a larger cache")
    spelled = view.spell(VLLM_SHARE, 0.9)
    flag = f" ({spelled.split()[0]})" if spelled else ""
    text = f"give the engine more memory{flag}, or roll out fewer completions at once"
    risk = "The trainer's own memory must fit as well."
    return view.advice(text, outcome, safety="same-math", risk=risk)
