"""How long completions are, and what an engine with so many places at once makes of them."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.whatif.laws.law import Case

Lengths = NDArray[np.float64]
_BIN = re.compile(r"^engine/completions_of_(\d+)_to_(\d+)_tokens$")
_MOST = 4096  # lengths of one rollout are thinned to so many


def rollout_lengths(case: Case) -> Lengths | None:
    """Lengths of one rank's completions in a usual rollout; None where nothing says them.

    From the engine's recorded histogram; else from the shortest, mean and longest length that the
    trainer logs, by the power of the rank that has that mean.
    """
    longest = case.metric("completions/max_length")
    names = sorted({series.name for series in case.analysis.trace.series})
    found = [_bin(case, name, longest) for name in names]
    counted = [lengths for lengths in found if lengths is not None]
    if counted:
        return np.sort(np.concatenate(counted))
    shortest, mean = case.metric("completions/min_length"), case.metric("completions/mean_length")
    count = _completions(case)
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


def _completions(case: Case) -> int:
    size, passes = case.knob("train.micro_batch"), case.knob("rollout.steps_per_generation")
    passes = passes or case.knob("train.grad_accumulation")
    return int(size * passes) if size and passes else 0


def spread(low: float, mean: float, high: float, count: int) -> Lengths:
    """`count` ascending lengths between `low` and `high` with this mean: low + (high - low) u^k."""
    if high <= low or mean <= low:
        return np.full(count, mean)
    power = (high - low) / (mean - low) - 1
    return low + (high - low) * ((np.arange(count) + 0.5) / count) ** max(power, 0.0)


def decode_steps(lengths: Lengths, places: int) -> float:
    """Passes of an engine that has so many completions in flight: the next begins where one ended.

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
