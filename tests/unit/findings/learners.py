"""Runs that learn: metrics with noise, healthy or changed in one way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run

Numbers = NDArray[np.float64]
# From time (0 at the first step, 1 at the last), healthy values and a generator of noise.
Change = Callable[[Numbers, Numbers, np.random.Generator], Any]


def alike(count: int, deviation: float, rng: np.random.Generator, memory: float = 0.4) -> Numbers:
    """Noise whose neighbours resemble each other, as batches of one epoch's order do."""
    drawn = rng.normal(0, deviation * math.sqrt(1 - memory**2), count)
    for i in range(1, count):
        drawn[i] += memory * drawn[i - 1]
    return drawn


def healthy_metrics(count: int, rng: np.random.Generator) -> dict[str, Numbers]:
    """A binary accuracy and a small format reward over `count` steps; TRL's names."""
    t = np.linspace(0, 1, count)
    rate = np.clip(0.25 + 0.3 * t + alike(count, 0.06, rng), 0.02, 0.98)
    shape = np.clip(0.6 + 0.35 * (1 - np.exp(-5 * t)) + alike(count, 0.03, rng), 0, 1)
    return {
        "reward": rate + shape, "reward_std": np.clip(0.55 + rng.normal(0, 0.05, count), 0.1, None),
        "rewards/accuracy/mean": rate, "rewards/accuracy/std": np.sqrt(rate * (1 - rate)),
        "rewards/format/mean": shape, "rewards/format/std": np.sqrt(shape * (1 - shape)),
        "frac_reward_zero_std": np.clip(rng.binomial(32, 0.15, count) / 32, 0, 1),
        "completions/clipped_ratio": rng.binomial(256, 0.015, count) / 256,
        "completions/mean_length": 300 + 20 * t + alike(count, 15, rng),
        "entropy": 0.3 + 0.3 * np.exp(-4 * t) + alike(count, 0.02, rng),
        "clip_ratio/low_mean": rng.gamma(2, 0.002, count),
        "clip_ratio/high_mean": rng.gamma(2, 0.003, count),
        "clip_ratio/region_mean": rng.gamma(4, 0.0025, count),
        "kl": 0.03 * t + rng.gamma(2, 0.002, count),
        "grad_norm": np.exp(rng.normal(-1, 0.4, count)), "loss": rng.normal(0, 0.02, count),
        "sampling/sampling_logp_difference/mean": rng.gamma(20, 0.0004, count),
    }  # fmt: skip


def learner(
    changes: Mapping[str, Any] | None = None,
    *,
    steps: int = 80,
    seed: int = 0,
    knobs: Mapping[str, Any] | None = None,
    **facts: Any,
) -> TraceBuilder:
    """A run of six recorded steps that says metrics of `steps`.

    Args:
        changes: metric to a `Change`, an array, a number for all steps, or None to leave it out.
        knobs: settings beside the usual ones.
    """
    rng = np.random.default_rng(seed)
    curves = healthy_metrics(steps, rng)
    t = np.linspace(0, 1, steps)
    for name, change in (changes or {}).items():
        usual = curves.get(name, np.zeros(steps))
        new = change(t, usual, rng) if callable(change) else change
        if new is None:
            curves.pop(name, None)
        else:
            curves[name] = np.broadcast_to(np.asarray(new, dtype=np.float64), (steps,))
    build = run(knobs={**SETTINGS, "rollout.num_generations": 8, **(knobs or {})}, **facts)
    for i in range(steps):
        build.metrics(i + 1, **{name: float(values[i]) for name, values in curves.items()})
    return build
