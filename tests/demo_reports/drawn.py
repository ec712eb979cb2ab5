"""What charts draw, made from simpler facts: stretches of ranks, steps and a heatmap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from statistics import fmean, median
from typing import Any

_MOST_BANDS = 15_000  # the page stays below 2.5 MB
_UNUSED = ("warmup", "open")  # steps that no mean is over


def with_drawn(views: Mapping[str, Any]) -> dict[str, Any]:
    """Return the views with what is missing: exact spans of `bands`, buckets of steps, means."""
    drawn = dict(views)
    timeline = dict(drawn.get("timeline", {}))
    if bands := timeline.pop("bands", []):
        timeline["exact"] = exact_of(bands, timeline.get("end_s", 0.0))
        drawn["timeline"] = timeline
    heatmap = drawn.get("heatmap", {})
    if "step_seconds" in heatmap and "means" not in heatmap:
        drawn["heatmap"] = {**heatmap, "means": _means_of(heatmap)}
    if drawn.get("steps") and "step_buckets" not in drawn:
        drawn["step_buckets"] = buckets_of(drawn["steps"], heatmap)
    return drawn


def exact_of(bands: Sequence[Mapping[str, Any]], end_s: float) -> dict[str, Any]:
    """Return stretches of ranks in phases as one window; of too many the longest."""
    longest_first = sorted(bands, key=lambda band: band["start_s"] - band["end_s"])
    left_out = longest_first[_MOST_BANDS:]
    names = sorted({band["phase"] for band in bands})
    lanes = []
    for rank in sorted({band["rank"] for band in bands}):
        mine = sorted(
            (band for band in longest_first[:_MOST_BANDS] if band["rank"] == rank),
            key=lambda band: (band["start_s"], band["phase"].count("/")),
        )
        lanes.append(
            {
                "rank": rank,
                "name": [names.index(band["phase"]) for band in mine],
                "depth": [band["phase"].count("/") for band in mine],
                "start_s": [band["start_s"] for band in mine],
                "end_s": [band["end_s"] for band in mine],
                "meeting": [-1] * len(mine),
                "open": [at for at, band in enumerate(mine) if band.get("open")],
            }
        )
    whole = {"why": "whole", "end_s": max([end_s, *(band["end_s"] for band in bands)])}
    longest_s = left_out[0]["end_s"] - left_out[0]["start_s"] if left_out else 0.0
    return {
        "windows": [whole],
        "names": names,
        "lanes": lanes,
        "spans_left_out": len(left_out),
        "longest_left_out_s": longest_s,
    }


def buckets_of(entries: Sequence[Mapping[str, Any]], heatmap: Mapping[str, Any]) -> dict[str, Any]:
    """Return each step as a bucket of its own, its phases from the heatmap."""
    steps = sorted(entries, key=lambda step: step["start_s"])
    numbers = [step["number"] for step in steps]
    kinds = [step.get("kind", "steady") for step in steps]
    lengths = [step.get("seconds", step["end_s"] - step["start_s"]) for step in steps]
    steady = [kind == "steady" or "steady" not in kinds for kind in kinds]

    def of_each(rows: list[list[float | None]]) -> list[float | None]:
        columns = map(_known_mean, zip(*rows, strict=True))
        means = dict(zip(heatmap["steps"], columns, strict=True))
        return [means.get(number) for number in numbers]

    def middle(values: Sequence[float | None]) -> float | None:
        among = [v for v, is_steady in zip(values, steady, strict=True) if is_steady]
        known = [value for value in among if value is not None]
        return median(known) if known else None

    phases = {name: of_each(rows) for name, rows in heatmap.get("phase_seconds", {}).items()}
    waits = heatmap.get("phase_wait_seconds", {})
    return {
        "first": numbers,
        "last": numbers,
        "steps": [1] * len(steps),
        "used": [kind not in _UNUSED for kind in kinds],
        "kind": kinds,
        "start_s": [step["start_s"] for step in steps],
        "end_s": [step["end_s"] for step in steps],
        "seconds": lengths,
        "worst_seconds": lengths,
        "worst_step": numbers,
        "worst_rank": [step.get("slowest_rank") for step in steps],
        "phase_seconds": phases,
        "wait_seconds": {name: of_each(rows) for name, rows in waits.items()},
        "median_seconds": middle(lengths),
        "median_phase_seconds": {
            name: value for name, row in phases.items() if (value := middle(row)) is not None
        },
    }


def _means_of(heatmap: Mapping[str, Any]) -> dict[str, Any]:
    steps, waits = heatmap["step_seconds"], heatmap.get("wait_seconds", [])
    own = [
        _known_mean([None if s is None else s - (w or 0.0) for s, w in zip_longest(*rows)])
        for rows in zip_longest(steps, waits, fillvalue=())
    ]
    means = [_known_mean(row) for row in waits]
    return {"ranks": heatmap["ranks"], "own_seconds": own, "wait_seconds": means}


def _known_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
