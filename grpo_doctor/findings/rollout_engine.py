"""What the rollout engine reports of itself: requests, cache, lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.sampled import held, values_in
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.findings.span_counts import phase_windows, stepping_columns
from grpo_doctor.findings.view import RunView
from grpo_doctor.trace.intervals import overlaps

RUNNING = "engine/running_requests"
MEANS = "counters engine/..., mean over rollouts"
COMPLETIONS = "engine/completions_of_*"
_BUCKET = re.compile(r"engine/completions_of_(\d+)_to_(\d+)_tokens")


def per_rollout(view: RunView, name: str) -> NDArray[np.float64]:
    """The samples of `engine/<name>` within the used steps, of all engines, shape (rollouts,)."""
    windows = view.analysis.used_windows
    samples = [values_in(series, windows) for series in view.series(f"engine/{name}")]
    return np.concatenate(samples) if samples else np.empty(0)


def mean_of(view: RunView, name: str) -> float | None:
    """The mean over rollouts of `engine/<name>`; None where nothing was recorded in the steps."""
    values = per_rollout(view, name)
    return float(values.mean()) if len(values) else None


def peak_of(view: RunView, name: str) -> float:
    """Return the largest `engine/<name>` of the used steps; 0 where nothing was recorded."""
    return float(per_rollout(view, name).max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Tail:
    """The part of the rollouts in which few requests were left. Means over engines.

    `share` is of the rollouts' time, `seconds` per step; `peak` the most requests at once.
    """

    share: float
    seconds: float
    peak: float


def tail(view: RunView, left: float) -> Tail | None:
    """The time with at most `left` (a share) of an engine's own peak running; None if unknown.

    The time before the first request and after the last sample is unknown, and left out.
    """
    tails = []
    ranks = {view.analysis.ranks[c]: c for c in stepping_columns(view)}
    steps = max(1, len(view.analysis.steps.used))
    for series in view.series(RUNNING):
        column = ranks.get(-1 if series.rank is None else series.rank)
        if column is None:
            continue
        stretches, values = held(series)
        rollouts = phase_windows(view, column, "rollout")
        pieces = overlaps(stretches, rollouts)
        running, length = values[pieces.left], pieces.length_ns.astype(np.float64)
        if not length.sum() or not running.max(initial=0) > 0:
            continue
        peak = float(running.max())
        few = float(length[(running > 0) & (running <= max(1.0, left * peak))].sum())
        tails.append((few / rollouts.total_ns, few / NS_PER_S / steps, peak))
    if not tails:
        return None
    share, seconds, peak = np.mean(np.array(tails), axis=0)
    return Tail(float(share), float(seconds), float(peak))


def lengths(view: RunView) -> dict[int, float]:
    """Return completions by length: the longest of each bucket in tokens, and how many it holds."""
    counts: dict[int, float] = {}
    for name in view.series_names(COMPLETIONS):
        match = _BUCKET.fullmatch(name)
        if match:
            count = float(per_rollout(view, name.removeprefix("engine/")).sum())
            if count:
                counts[int(match.group(2))] = count
    return dict(sorted(counts.items()))


def length_at(counts: dict[int, float], share: float) -> int | None:
    """The bucket's end that holds at least this share of all completions; None without any."""
    total, cumulative = sum(counts.values()), 0.0
    for end, count in counts.items():
        cumulative += count
        if cumulative >= share * total:
            return end
    return None
