"""A rollout server's KV cache is too small.

## What it means

While the ranks roll out, the cache of a server is full: requests wait for room, and some that had
begun are thrown out (preempted, or retracted, as SGLang calls it) and computed again.

## Why it costs

A decoding step reads all weights once, however many requests share it: what waits is decoded in
more steps. A preempted request computes its prompt and all its tokens again.

## Evidence shown

Of the server that holds most requests back, with its host and process: how full the cache is at its
peak, how many requests run and how many wait in the mean over the steps, preemptions per step.

## Fix

A larger share of the GPU's memory for the server, in the flag that it was started with:
`--gpu-memory-utilization` of `vllm serve`, `--gpu_memory_utilization` of `trl vllm-serve`,
`--vllm_gpu_memory_utilization` of `swift rollout`, `--mem-fraction-static` of SGLang. Where the
command itself fixes how large the cache is, it is that to leave out or to raise. Where nearly all
of the memory is the server's already, only more servers or fewer and shorter completions at once
help. The cost is an upper bound.

## When it is wrong

A batch that saturates the GPU gains little by more requests at once. In a server that others use
too, the waiting may be theirs; and a judge's server that joined the run looks like one of rollouts,
unless the run says that its engine is within its ranks. `/metrics` is asked once a second: a
shorter peak is not seen.

## References

- https://docs.vllm.ai/en/latest/configuration/optimization/#preemption
- https://docs.vllm.ai/en/latest/usage/metrics/
- https://docs.sglang.io/references/production_metrics.html
"""

from __future__ import annotations

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
from grpo_doctor.findings.rules.gd012_cache_starved import (
    FULL_PCT,
    MIN_PREEMPTED,
    MIN_QUEUED,
    MIN_ROLLOUT_SHARE,
)
from grpo_doctor.findings.severity import percent, severity_of
from grpo_doctor.findings.view import RunView, identity
from grpo_doctor.whatif import Withheld

RULE = Rule(
    *identity(__name__, __doc__),
    family="rollout",
    needs=(
        signals.STEPS,
        signals.PHASES,
        *(server_signal(name) for name in (RUNNING, WAITING, CACHE)),
    ),
    uses=(PREEMPTIONS, TOKENS),
)
_KNOB = "vllm.gpu_memory_utilization"
# vLLM's own default of 0.9 to 0.92 leaves room for CUDA graphs and NCCL; a server that has the card
# to itself has been seen to start with 0.95. SGLang's share is without activations.
_USUAL, _MOST = 0.9, 0.95
# With these a server's cache has a size of its own, whatever its share of the memory.
_SIZES = (
    "num_gpu_blocks_override", "kv_cache_memory_bytes", "kv_cache_memory", "max_total_tokens",
)  # fmt: skip
_REASON = "how much of the server's memory is its cache was not recorded"


def check(view: RunView) -> Answer:
    """Compares waiting and preempted requests of each server with running ones."""
    if engine_within_ranks(view):
        return WITHIN_RANKS
    share = view.share("rollout")
    if share < MIN_ROLLOUT_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    servers = [load for load in loads(view) if load.cache_peak_pct is not None]
    if not servers:
        return Passed("no server said during the steps how full its cache is")
    full = [load for load in servers if (load.cache_peak_pct or 0.0) >= FULL_PCT]
    if not full:
        peak = max(load.cache_peak_pct or 0.0 for load in servers)
        return Passed(f"the cache is at most {peak:.0f}% full")
    worst = max(full, key=_held_back)
    queued, preempted = worst.queued_share, _preempted_share(worst)
    if queued < MIN_QUEUED and preempted < MIN_PREEMPTED:
        return Passed(f"{percent(queued)} of the requests wait, {percent(preempted)} are preempted")
    cost, thrown_out = share * _held_back(worst), ""
    if worst.preemptions:
        thrown_out = f", and {worst.preemptions:.3g} per step are thrown out and computed again"
    return Finding(
        # Waiting alone may be the batch that the GPU can take: grave only with work thrown away.
        severity=severity_of(cost, proven=preempted >= MIN_PREEMPTED),
        confidence=0.9 if preempted >= MIN_PREEMPTED else 0.7,
        cost=cost,
        phases=("rollout",),
        evidence=(
            *worst.evidence("cache", "requests", "preemptions"),
            Evidence("servers with a full cache", len(full), f"of {len(servers)}", CACHE),
            *view.phase_evidence("rollout"),
        ),
        cause=f"With the cache of {worst.name} {worst.cache_peak_pct:.0f}% full, "
        f"{percent(queued)} of its requests wait for room{thrown_out}.",
        fixes=(_fix(view, worst),),
    )


def _held_back(load: Load) -> float:
    """The share of a rollout that waiting takes, and computing again, of what is left, at most."""
    return 1 - (1 - load.queued_share) / (1 + _preempted_share(load))


def _preempted_share(load: Load) -> float:
    """Preemptions per request; the most that ran and waited at once stand in for all of a step."""
    return (load.preemptions or 0.0) / max(1.0, load.running_peak + load.waiting_peak)


def _fix(view: RunView, load: Load) -> Fix:
    program = load.program
    sized = [name for name in _SIZES if program is not None and name in program.options]
    if sized:
        words = " and ".join(f"`--{name.replace('_', '-')}`" for name in sized)
        text = f"start the server without {words}, or with more: that fixes how large its cache is"
        return view.advice(text, Withheld(_REASON), safety="same-math")
    now = program.value(_KNOB) if program else None
    ceiling = _USUAL if program and program.table == "sglang" else _MOST
    target = next((t for t in (_USUAL, ceiling) if isinstance(now, float | int) and now < t), None)
    fewer = "add a server, or roll out fewer completions at once: nearly all memory is the server's"
    if target is None and now is not None:
        return view.advice(fewer, Withheld(_REASON), safety="same-math")
    risk = "The server fails at its start if this share is not free then; step back by 0.05."
    fix = load.setting(view, _KNOB, target, reason=_REASON, risk=risk) if target else None
    if fix is not None:
        return fix
    text = _more_memory(view, load)
    return view.advice(text, Withheld(_REASON), safety="same-math", risk=risk)


def _more_memory(view: RunView, load: Load) -> str:
    """Advice where nobody knows what share the server has, or how it is set there."""
    words = "give the rollout server more of its GPU's memory"
    spelled = load.spelled(view, _KNOB, _USUAL) or view.spell(_KNOB, _USUAL)
    return words + (f" ({spelled.rsplit(maxsplit=1)[0]})" if spelled else "")
