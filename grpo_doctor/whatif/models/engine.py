"""Higher rollout concurrency: fewer waves, bounded below by the longest completion.

While a decoding pass waits for weights to be read, it takes the same time for few and many
sequences; when it is compute-bound, its time is proportional to them. A run of one size does not
show which, so both are bounds. On a GPU the middle is nearer to the first: published decoding
speeds stay flat up to some hundred sequences.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.room import GIB, USABLE
from grpo_doctor.whatif.step_model import Edit

_SEQS, _MEMORY = "vllm.max_num_seqs", "vllm.gpu_memory_utilization"
GENERATE = "rollout/generate"
_FLAT = {True: 0.75, False: 0.5}  # how much of the first bound the middle has: with a GPU, without
_ERROR = 0.25
_FULL_CACHE_PCT = 90.0
# Peaks are sampled: so near to its limit an engine has been at it.
_REACHED = 0.9


def _more_sequences(case: Case) -> Effect:
    running = case.values("engine/running_requests_peak")
    if not len(running):
        if case.knob("vllm.use") is not True:
            raise UnsupportedError("the rollout does not run in vLLM")
        raise UnsupportedError("how many sequences ran at once was not recorded")
    places = float(running.max())
    waiting = case.values("engine/waiting_requests_peak")
    preempted = case.values("engine/preemptions")
    held_back = bool(len(waiting) and waiting.max() > 0) or bool(preempted.sum() > 0)
    target = places
    if case.changed(_SEQS):
        limit = case.before.get(_SEQS)
        if not case.after[_SEQS]:
            raise UnsupportedError("an engine needs room for at least one sequence")
        if limit is None:
            raise UnsupportedError("how many sequences the engine may run was not recorded")
        target = _with_limit(places, float(limit), float(case.after[_SEQS]), held_back)
    if case.changed(_MEMORY):
        target = _below_limit(case, places, target * _more_cache(case, held_back))
    if round(target) == round(places):
        return NOTHING
    lengths = rollout_lengths(case)
    if lengths is None:
        raise UnsupportedError("how long completions are was not recorded")
    now, then = decode_steps(lengths, round(places)), decode_steps(lengths, round(target))
    if not now:
        return NOTHING
    part = GENERATE if case.work_s(GENERATE) else "rollout"
    bound = then / now
    mid = 1 + _FLAT[case.has_gpu] * (bound - 1)
    best, worst = Edit((part,), min(bound, 1.0)), Edit((part,), max(bound, 1.0))
    return Effect(
        (Edit((part,), mid),),
        f"{round(target)} instead of {round(places)} sequences at once need {then:.0f} instead of "
        f"{now:.0f} passes, and a pass takes at most in proportion longer",
        _ERROR,
        at_least=(worst,),
        at_most=(best,),
    )


def _with_limit(places: float, before: float, after: float, held_back: bool) -> float:
    """How many run at once under another limit: it counts only where it is what holds them."""
    if after < before:
        return min(after, places)
    reached = places >= _REACHED * before
    return after if held_back and reached else places


def _below_limit(case: Case, places: float, target: float) -> float:
    """More cache lets no more run than the engine may."""
    limit = case.after.get(_SEQS, case.knob(_SEQS))
    return target if limit is None or target <= places else max(places, min(target, float(limit)))


def _more_cache(case: Case, held_back: bool) -> float:
    """By how much more fits into the cache; 1 where it was never full."""
    before, after = case.before.get(_MEMORY), case.after[_MEMORY]
    if not before:
        raise UnsupportedError("how much memory the engine has was not recorded")
    if not 0 < after <= 1:
        raise UnsupportedError(f"{_MEMORY} is a share of the memory, above 0 and at most 1")
    peak = case.values("engine/kv_cache_peak_pct")
    if not len(peak):
        raise UnsupportedError("how full the engine's cache was, was not recorded")
    if after >= before and not held_back and peak.max() < _FULL_CACHE_PCT:
        return 1.0
    if after < before:
        # Weights stay as they are, so the cache loses a larger share than all the memory does.
        raise UnsupportedError("how much of the engine's memory its weights take was not recorded")
    for memory in case.analysis.gpu_memory:
        total = memory.gpu.memory_total_bytes
        needed = memory.peak_bytes + (after - before) * total
        if needed > USABLE * total:
            raise UnsupportedError(
                f"GPU {memory.gpu.index} would hold {needed / GIB:.1f} of {total / GIB:.1f} GiB"
            )
    # Weights stay as they are, so the cache grows by at least this.
    return float(after / before)


MODELS = (CostModel("engine batch", (_SEQS, _MEMORY), _more_sequences),)


Lengths = NDArray[np.float64]
_BIN = re.compile(r"^engine/completions_of_(\d+)_to_(\d+)_tokens$")
_MOST = 4096  # lengths of one rollout are thinned to so many


def rollout_lengths(case: Case) -> Lengths | None:
    """Return lengths of one rank's completions in a usual rollout; None where nothing says them.

    From the engine's recorded histogram; else from the shortest, mean and longest length that the
    trainer logs, by the power of the rank that has that mean.
    """
    longest = case.metric("completions/max_length")
    names = sorted({series.name for series in case.analysis.trace.series})
    bins = [_bin(case, name, longest) for name in names]
    counted = [lengths for lengths in bins if lengths is not None]
    if counted:
        return np.sort(np.concatenate(counted))
    shortest, mean = case.metric("completions/min_length"), case.metric("completions/mean_length")
    size, passes = case.knob("train.micro_batch"), case.knob("rollout.steps_per_generation")
    passes = passes or case.knob("train.grad_accumulation")
    count = int(size * passes) if size and passes else 0
    if not len(longest) or not len(mean) or not count:
        return None
    low = float(shortest.mean()) if len(shortest) else 1.0
    return spread(low, float(mean.mean()), float(longest.mean()), min(count, _MOST))


def _bin(case: Case, name: str, longest: Lengths) -> Lengths | None:
    matched = _BIN.match(name)
    if matched is None:
        return None
    values = case.values(name)
    rollouts = max(1, len(case.values("engine/generated_tokens")))
    count = round(float(values.sum()) / rollouts)
    low, high = float(matched[1]), float(matched[2])
    top = min(high, float(longest.mean())) if len(longest) else high
    return np.linspace(low, max(low, top), min(count, _MOST))


def spread(low: float, mean: float, high: float, count: int) -> Lengths:
    """`count` ascending lengths between `low` and `high` with this mean: low + (high - low) u^k."""
    if high <= low or mean <= low:
        return np.full(count, mean)
    power = (high - low) / (mean - low) - 1
    return low + (high - low) * ((np.arange(count) + 0.5) / count) ** max(power, 0.0)


def decode_steps(lengths: Lengths, places: int) -> float:
    """Return the decoding passes of an engine with `places` completions in flight at once.

    Never fewer than the longest completion has tokens.
    """
    if not len(lengths):
        return 0.0
    free = np.zeros(max(1, min(places, len(lengths))))
    # The engine does not know which will be long: they come in an order of their own.
    for length in np.random.default_rng(0).permutation(lengths):
        first = int(free.argmin())
        free[first] += length
    return float(free.max())
