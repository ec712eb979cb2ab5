"""Made-up accounting, steps, critical paths, collectives and predicted sets of fixes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from tests.demo_reports.measurements import Shape, Spans

_FIRST_STEP_S: Final = 20.0
_FIRST_NUMBER: Final = 3


def steps_of(shape: Shape, spans: Spans, gap_s: float, limit: int = 1_000) -> list[dict[str, Any]]:
    """Return every step over all ranks, checkpoints each 25; of many the slowest of each bucket."""
    now = [_FIRST_STEP_S] * shape.ranks
    steps: list[dict[str, Any]] = []
    for step in range(shape.steps):
        times = [sum(work + wait for _, work, wait in spans[r, step]) for r in range(shape.ranks)]
        ends = [start + seconds for start, seconds in zip(now, times, strict=True)]
        number = step + _FIRST_NUMBER
        steps.append(
            {
                "number": number,
                "start_s": min(now),
                "end_s": max(ends),
                "seconds": max(times),
                "kind": "checkpoint" if number % 25 == 0 else "steady",
                "slowest_rank": _slowest(shape, spans, step),
            }
        )
        now = [end + gap_s for end in ends]
    return [steps[at] for at in slowest_of_each([s["seconds"] for s in steps], limit)]


def slowest_of_each(seconds: list[float], limit: int) -> list[int]:
    """Return the positions of the largest of each of at most `most` buckets."""
    if len(seconds) <= limit:
        return list(range(len(seconds)))
    edges = [round(at * len(seconds) / limit) for at in range(limit + 1)]
    return [max(range(edges[at], edges[at + 1]), key=seconds.__getitem__) for at in range(limit)]


def _slowest(shape: Shape, spans: Spans, step: int) -> int:
    return max(range(shape.ranks), key=lambda rank: sum(work for _, work, _ in spans[rank, step]))


def path_of(shape: Shape, spans: Spans, number: int) -> dict[str, Any]:
    """Return a critical path: the slowest rank up to train, then rank 0, weights over the wire."""
    step = number - _FIRST_NUMBER
    slow = _slowest(shape, spans, step)
    now, segments = 0.0, []
    for phase, work, wait in spans[slow, step]:
        lane: dict[str, Any] = {"lane": "rank", "rank": slow}
        if phase == "rollout":
            lane = {"lane": "engine", "rank": None}
        elif phase in {"optimizer", "offload"}:
            lane = {"lane": "rank", "rank": 0}
        kind = "transfer" if phase in {"sync", "offload"} else "work"
        end = now + work + (wait if phase == "train" else 0.0)
        name = f"{phase}/generate" if phase == "rollout" else phase
        segments.append(
            {**lane, "phase": phase, "name": name, "start_s": now, "end_s": end, "kind": kind}
        )
        now = end
    return {"step": number, "seconds": now, "segments": segments}


def added_summary() -> dict[str, Any]:
    """Return how the ranks' time splits, what is steady, what was set apart, how busy in truth."""
    return {
        "accounting": {"work": 0.71, "wait": 0.16, "transfer": 0.09, "idle": 0.04},
        "steady": {"first_step": 3, "reason": "two steps were 31% slower while kernels compiled"},
        "left_out": {"warm-up": [1, 2]},
        "set_apart": {"warmup": [1, 2], "checkpoint": [25, 50], "eval": []},
        "gpu_truly_busy_pct": 41.0,
        "gpu_busy_by": "power",
    }


CLOCK: Final = {"max_error_ms": 0.21, "methods": ["ping", "collectives"], "text": ""}
COLLECTIVES: Final = [
    {"group": "data parallel", "name": "all_reduce", "phase": "train", "count": 29.0,
     "seconds": 6.9, "skew_seconds": 6.1, "transfer_seconds": 0.8, "last_rank": 5},
    {"group": "data parallel", "name": "broadcast", "phase": "sync", "count": 339.0,
     "seconds": 1.1, "skew_seconds": 0.2, "transfer_seconds": 0.9, "last_rank": 0},
    {"group": "data parallel", "name": "all_gather", "phase": "reward", "count": 3.0,
     "seconds": 0.4, "skew_seconds": 0.36, "transfer_seconds": 0.04, "last_rank": 2},
]  # fmt: skip


def whatif_of(step_time_s: float, fixes: Mapping[str, tuple[str, str, float]]) -> dict[str, Any]:
    """Return every subset of `fixes` (finding: label, spelling, change), less than their sum."""
    listed = [
        {"index": at, "finding": finding, "fix": 0, "label": label, "spelling": spelling}
        | _interval([change])
        for at, (finding, (label, spelling, change)) in enumerate(fixes.items())
    ]
    changes = [change for _, _, change in fixes.values()]
    sets = [
        {"fixes": list(chosen), **_interval([changes[at] for at in chosen])}
        for count in range(1, len(listed) + 1)
        for chosen in combinations(range(len(listed)), count)
    ]
    return {
        "step_time_s": step_time_s,
        "steps": 48,
        "law_error_pct": 4.2,
        "fixes": listed,
        "sets": sets,
        "chosen": [0],
        "together": list(range(len(listed))),
        "unknown": [
            {
                "finding": "GD019",
                "fix": 0,
                "label": "More memory for the KV cache",
                "reason": "completion lengths were not recorded, so the number of waves is unknown",
            }
        ],
        "note": "",
    }


def _interval(changes: list[float]) -> dict[str, float]:
    remaining = 1.0
    for change in changes:
        remaining *= 1 + change / 100
    mid = 100 * (remaining - 1)
    return {"low": 1.15 * mid, "mid": mid, "high": 0.7 * mid}
