"""The KV cache of a rollout engine is too small."""

from __future__ import annotations

from grpo_doctor.findings import rollout_servers, signals
from grpo_doctor.findings.device_memory import SHARE_RISK, VLLM_SHARE, larger_share
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import CACHE_FULL_PCT, percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule(
    "rollout",
    rollout_servers.engine_or_server(
        "engine/kv_cache_peak_pct",
        rollout_servers.CACHE,
        rollout_servers.RUNNING,
        rollout_servers.WAITING,
    ),
    uses=(signals.GPU_MEMORY, *rollout_servers.ENGINES),
)
# One request in twenty waiting lengthens a rollout by at most as much, which is within its spread.
MIN_QUEUED = 0.05
# A preempted request is computed twice; one in fifty is 2% of the tokens.
MIN_PREEMPTED = 0.02
# A rollout that is a tenth of the step has nothing to give.
MIN_ROLLOUT_SHARE = 0.10
# vLLM's own default of 0.9 to 0.92 leaves room for CUDA graphs and NCCL; a server that has the card
# to itself has been seen to start with 0.95. SGLang's share is without activations.
_USUAL, _MOST = 0.9, 0.95
# With these a server's cache has a size of its own, whatever its share of the memory.
_SIZES = (
    "num_gpu_blocks_override", "kv_cache_memory_bytes", "kv_cache_memory", "max_total_tokens",
)  # fmt: skip
_REASON = "the cache's share of the server's memory was not recorded"


def check(view: RunView) -> Answer:
    """Compare waiting and preempted requests of each engine with running ones."""
    every = rollout_servers.engines(view)
    if not every:
        return rollout_servers.unheard(view)
    share = view.share("rollout")
    if share < MIN_ROLLOUT_SHARE:
        return Passed(f"the rollout takes {percent(share)} of the step")
    known = [(load.cache_peak_pct, load) for load in every if load.cache_peak_pct is not None]
    if not known:
        return Passed("no engine reported its cache usage during the steps")
    full = [load for peak, load in known if peak >= CACHE_FULL_PCT]
    if not full:
        return Passed(f"the cache is at most {max(peak for peak, _ in known):.0f}% full")
    several = len(full) if len(known) > 1 else None
    worst = max(full, key=_held_back)
    queued, preempted = worst.queued_share, worst.preempted_share
    if queued < MIN_QUEUED and preempted < MIN_PREEMPTED:
        return Passed(f"{percent(queued)} of the requests wait, {percent(preempted)} are preempted")
    cost, thrown_out = share * _held_back(worst), ""
    if worst.preemptions:
        often = f"{worst.preemptions:.3g} per {worst.period}"
        thrown_out = f", and {often} are preempted and computed again"
    return Finding(
        # Waiting alone may be the batch that the GPU can take: high only with work thrown away.
        severity=severity_of(cost, proven=preempted >= MIN_PREEMPTED),
        confidence=0.9 if preempted >= MIN_PREEMPTED else 0.7,
        cost=cost,
        phases=("rollout",),
        evidence=(
            *worst.evidence("cache", "requests", "preemptions"),
            Evidence(
                "engines with a full cache", several, f"of {len(known)}", rollout_servers.CACHE
            ),
            *view.phase_evidence("rollout"),
        ),
        cause=f"With the cache of {worst.name} {worst.cache_peak_pct:.0f}% full, "
        f"{percent(queued)} of its requests wait for room{thrown_out}.",
        fixes=(_of_the_ranks(view) if worst.counted else _of_a_server(view, worst),),
    )


def _held_back(load: rollout_servers.Load) -> float:
    """The share of a rollout that waiting takes, and computing again, of what is left, at most."""
    return 1 - (1 - load.queued_share) / (1 + load.preempted_share)


def _of_the_ranks(view: RunView) -> Fix:
    memory = view.gpu_memory
    outcome = "the possible size of the cache was not recorded"
    if memory and view.now("vllm.mode") != "server":
        free = min(m.free_bytes / m.gpu.memory_total_bytes for m in memory)
        target = larger_share(view, free)
        if target is not None:
            return view.setting(VLLM_SHARE, target, risk=SHARE_RISK)
        outcome = "no memory is free for a larger cache"
    spelled = view.spell(VLLM_SHARE, _USUAL)
    flag = f" ({spelled.split()[0]})" if spelled else ""
    text = f"give the engine more memory{flag}, or generate fewer completions at once"
    return view.advice(text, outcome, risk="The trainer's own memory must also fit.")


def _of_a_server(view: RunView, load: rollout_servers.Load) -> Fix:
    program = load.program
    sized = [name for name in _SIZES if program is not None and name in program.options]
    if sized:
        words = " and ".join(f"`--{name.replace('_', '-')}`" for name in sized)
        text = f"start the server without {words}, or with more: it fixes the size of the cache"
        return view.advice(text, _REASON)
    now = program.value(VLLM_SHARE) if program else None
    ceiling = _USUAL if program and program.table == "sglang" else _MOST
    target = next((t for t in (_USUAL, ceiling) if isinstance(now, float | int) and now < t), None)
    fewer = "add a server, or generate fewer completions at once: memory is nearly full"
    if target is None and now is not None:
        return view.advice(fewer, _REASON)
    risk = "The server fails at startup if this share is not free; then lower it by 0.05."
    fix = load.setting(view, VLLM_SHARE, target, reason=_REASON, risk=risk) if target else None
    if fix is not None:
        return fix
    text = "give the rollout server more of its GPU's memory"
    spelled = load.spelled(view, VLLM_SHARE, _USUAL) or view.spell(VLLM_SHARE, _USUAL)
    text += f" ({spelled.rsplit(maxsplit=1)[0]})" if spelled else ""
    return view.advice(text, _REASON, risk=risk)
