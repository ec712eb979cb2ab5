"""Read the parts that become charts: waterfall, heatmap, timeline, learning curves."""

from __future__ import annotations

from grpo_doctor_reports.accounting import read_kinds
from grpo_doctor_reports.model import (
    Band,
    Curve,
    Heatmap,
    Numbers,
    Timeline,
    Track,
    WaterfallBar,
)
from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.reader import Node


def read_waterfall(nodes: list[Node]) -> list[WaterfallBar]:
    """Return the phases of the mean step, in the order of the document."""
    bars = []
    for node in nodes:
        kinds = read_kinds(node)
        bars.append(
            WaterfallBar(
                phase=node.text("phase"),
                start_s=max(0.0, node.number("start_s") or 0.0),
                seconds=kinds.seconds,
                p10_s=node.number("p10_s"),
                p90_s=node.number("p90_s"),
                work_s=kinds.work_s,
                wait_s=kinds.wait_s,
                transfer_s=kinds.transfer_s,
                idle_s=kinds.idle_s,
            )
        )
    return bars


def read_heatmap(node: Node) -> Heatmap:
    """Return the seconds by rank and step; rows and columns that are not there read as None."""
    ranks, steps = node.integers("ranks"), node.integers("steps")
    phases = node.node("phase_seconds")
    read = {
        name: _matrix(phases.number_rows(key), len(ranks), len(steps))
        for key, name in phases.named()
    }
    return Heatmap(
        ranks=ranks,
        steps=steps,
        step_s=_matrix(node.number_rows("step_seconds"), len(ranks), len(steps)),
        wait_s=_matrix(node.number_rows("wait_seconds"), len(ranks), len(steps)),
        phases_s={name: read[name] for name in sorted(read, key=order_of)},
    )


def read_timeline(node: Node) -> Timeline:
    """Return bands and tracks, in seconds since the start of the run."""
    end_s = max(0.0, node.number("end_s") or 0.0)
    bands = [_read_band(item, end_s) for item in node.nodes("bands")]
    tracks = [_read_track(item) for item in node.nodes("tracks")]
    latest = max([band.end_s for band in bands], default=0.0)
    sampled = max((t for track in tracks for t in track.times_s if t is not None), default=0.0)
    return Timeline(
        end_s=max(end_s, latest, sampled),
        bands=bands,
        tracks=tracks,
        thinned=node.flag("thinned"),
    )


def read_curves(node: Node) -> list[Curve]:
    """Return one curve per metric that has at least one number."""
    steps, series = node.integers("steps"), node.node("series")
    curves = [
        Curve(name, steps, _fitted(series.numbers(key), len(steps))) for key, name in series.named()
    ]
    return [curve for curve in curves if any(value is not None for value in curve.values)]


def _read_band(node: Node, end_s: float) -> Band:
    start = max(0.0, node.number("start_s") or 0.0)
    end = node.number("end_s")
    return Band(
        rank=node.integer("rank"),
        phase=node.text("phase"),
        start_s=start,
        end_s=max(start, end_s if end is None else end),
        open=node.flag("open"),
    )


def _read_track(node: Node) -> Track:
    times, values = node.numbers("t_s"), node.numbers("v")
    length = min(len(times), len(values))
    return Track(
        name=node.text("name"),
        label=node.text("label"),
        unit=node.text("unit"),
        group=node.text("group"),
        times_s=times[:length],
        values=values[:length],
    )


def _matrix(rows: list[Numbers], height: int, width: int) -> list[Numbers]:
    if not rows:
        return []
    fitted = [_fitted(row, width) for row in rows[:height]]
    return fitted + [[None] * width for _ in range(height - len(fitted))]


def _fitted(values: Numbers, length: int) -> Numbers:
    return values[:length] + [None] * (length - len(values))
