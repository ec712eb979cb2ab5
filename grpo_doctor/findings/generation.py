"""What the rollout engine said of itself: requests, cache, lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import overlaps
from grpo_doctor.analysis.sampled import held, series_named, values_in
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.findings.signals import Signal, sampled
from grpo_doctor.findings.spans_in import phase_windows, stepping_columns
from grpo_doctor.findings.view import RunView

RUNNING = "engine/running_requests"
_HOW = "the bundled trainer records it with --use_vllm true; elsewhere feed it to `counter`"
_BUCKET = re.compile(r"engine/completions_of_(\d+)_to_(\d+)_tokens")


def engine_signal(name: str) -> Signal:
    """A counter `engine/<name>`, and how to get it."""
    return sampled(f"engine/{name}", _HOW)


def per_rollout(view: RunView, name: str) -> NDArray[np.float64]:
    """The samples of `engine/<name>` within the used steps, of all engines, shape (rollouts,)."""
    windows = view.analysis.used_windows
    found = [values_in(series, windows) for series in series_named(view.trace, f"engine/{name}")]
    return np.concatenate(found) if found else np.empty(0)


def mean_of(view: RunView, name: str) -> float | None:
    """The mean over rollouts of `engine/<name>`; None where nothing was recorded in the steps."""
    values = per_rollout(view, name)
    return float(values.mean()) if len(values) else None


def queued_share(view: RunView) -> float:
    """The share of the engine's requests that were waiting, in the mean over its steps."""
    running, waiting = (
        mean_of(view, "running_requests_mean"),
        mean_of(view, "waiting_requests_mean"),
    )
    if running is None or waiting is None or running + waiting <= 0:
        return 0.0
    return waiting / (running + waiting)


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

    Before the first request runs and after the last sample nobody knows, so that is left out.
    """
    found = []
    ranks = {view.analysis.ranks[c]: c for c in stepping_columns(view)}
    steps = max(1, len(view.analysis.steps.used))
    for series in series_named(view.trace, RUNNING):
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
        found.append((few / rollouts.total_ns, few / NS_PER_S / steps, peak))
    if not found:
        return None
    share, seconds, peak = np.mean(np.array(found), axis=0)
    return Tail(float(share), float(seconds), float(peak))


def lengths(view: RunView) -> dict[int, float]:
    """Completions by length: the longest of each bucket in tokens, and how many it holds."""
    found: dict[int, float] = {}
    for name in {s.name for s in view.trace.series}:
        match = _BUCKET.fullmatch(name)
        if match:
            count = float(per_rollout(view, name.removeprefix("engine/")).sum())
            if count:
                found[int(match.group(2))] = count
    return dict(sorted(found.items()))


def length_at(counts: dict[int, float], share: float) -> int | None:
    """The bucket's end that holds at least this share of all completions; None without any."""
    total, seen = sum(counts.values()), 0.0
    for end, count in counts.items():
        seen += count
        if seen >= share * total:
            return end
    return None
