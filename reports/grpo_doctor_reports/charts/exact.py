"""Every span of the exact windows, lane by lane in a few long arrays."""

from __future__ import annotations

from itertools import accumulate
from statistics import median
from typing import Any

from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.timeline import Exact


def exact_data(exact: Exact, phases: list[str], pool: NumberPool) -> dict[str, Any]:
    """Return where in the pool the spans are; lanes follow each other in each array."""
    lanes, calls = exact.lanes, set(exact.collectives)
    lengths = [window.end_s - window.start_s for window in exact.windows]
    scale_s = median(lengths) if lengths else 1.0  # times are exact to 1/100,000 of a window
    starts = [start for lane in lanes for start in lane.start_s]
    ends = [end for lane in lanes for end in lane.end_s]
    waits = [edge for lane in lanes for edge in lane.wait_s]
    offsets = [0, *accumulate(len(lane.name) for lane in lanes)][: len(lanes)]
    return {
        "windows": [
            {"why": w.why, "step": w.step, "start": w.start_s, "end": w.end_s}
            for w in exact.windows
        ],
        "names": [
            {"name": name, "phase": _phase_of(name, phases), "call": name in calls}
            for name in exact.names
        ],
        "ranks": pool.add_integers([lane.rank for lane in lanes]),
        "counts": pool.add_integers([len(lane.name) for lane in lanes]),
        "name": pool.add_integers([name for lane in lanes for name in lane.name]),
        "depth": pool.add_integers([depth for lane in lanes for depth in lane.depth]),
        "start": pool.add_times(starts, scale_s),
        "length": pool.add_times([e - s for s, e in zip(starts, ends, strict=True)], scale_s),
        "meeting": pool.add_integers([number for lane in lanes for number in lane.meeting]),
        "open": pool.add_integers(
            [offset + at for offset, lane in zip(offsets, lanes, strict=True) for at in lane.open]
        ),
        "waitCounts": pool.add_integers([len(lane.wait_s) // 2 for lane in lanes]),
        "waitStart": pool.add_times(waits[::2], scale_s),
        "waitLength": pool.add_times(
            [e - s for s, e in zip(waits[::2], waits[1::2], strict=True)], scale_s
        ),
    }


def phases_of_spans(exact: Exact) -> set[str]:
    """Return the first parts of the names of spans that are no collectives."""
    return {name.partition("/")[0] for name in {*exact.names} - {*exact.collectives}}


def _phase_of(name: str, phases: list[str]) -> int:
    root = name.partition("/")[0]
    return phases.index(root) if root in phases else -1
