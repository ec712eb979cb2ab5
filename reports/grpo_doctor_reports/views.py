"""Read the parts that become charts: waterfall, heatmap, timeline, learning curves."""

from __future__ import annotations

from grpo_doctor_reports.accounting import read_kinds
from grpo_doctor_reports.model import Band, Curve, Heatmap, Timeline, Track, WaterfallBar
from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.schema import views as parts
from grpo_doctor_reports.schema.part import Numbers


def read_waterfall(entries: list[parts.WaterfallEntry]) -> list[WaterfallBar]:
    """Return the phases of the mean step, in the order of the document."""
    bars = []
    for entry in entries:
        kinds = read_kinds(entry)
        bars.append(
            WaterfallBar(
                phase=entry.phase,
                start_s=max(0.0, entry.start_s),
                seconds=kinds.seconds,
                p10_s=entry.p10_s,
                p90_s=entry.p90_s,
                work_s=kinds.work_s,
                wait_s=kinds.wait_s,
                transfer_s=kinds.transfer_s,
                idle_s=kinds.idle_s,
            )
        )
    return bars


def read_heatmap(part: parts.Heatmap) -> Heatmap:
    """Return the seconds by rank and step; rows and columns that are not there read as None."""
    height, width = len(part.ranks), len(part.steps)
    phases = {name: _matrix(rows, height, width) for name, rows in part.phase_seconds.items()}
    return Heatmap(
        ranks=part.ranks,
        steps=part.steps,
        step_s=_matrix(part.step_seconds, height, width),
        wait_s=_matrix(part.wait_seconds, height, width),
        phases_s={name: phases[name] for name in sorted(phases, key=order_of)},
    )


def read_timeline(part: parts.Timeline) -> Timeline:
    """Return bands and tracks, in seconds since the start of the run."""
    end_s = max(0.0, part.end_s)
    bands = [_read_band(band, end_s) for band in part.bands]
    tracks = [_read_track(track) for track in part.tracks]
    latest = max([band.end_s for band in bands], default=0.0)
    sampled = max((t for track in tracks for t in track.times_s if t is not None), default=0.0)
    return Timeline(
        end_s=max(end_s, latest, sampled), bands=bands, tracks=tracks, thinned=part.thinned
    )


def read_curves(part: parts.MetricsView) -> list[Curve]:
    """Return one curve per metric that has at least one number."""
    curves = [
        Curve(name, part.steps, _fitted(values, len(part.steps)))
        for name, values in part.series.items()
    ]
    return [curve for curve in curves if any(value is not None for value in curve.values)]


def _read_band(part: parts.Band, end_s: float) -> Band:
    start = max(0.0, part.start_s)
    return Band(
        rank=part.rank,
        phase=part.phase,
        start_s=start,
        end_s=max(start, end_s if part.end_s is None else part.end_s),
        open=part.open,
    )


def _read_track(part: parts.TrackEntry) -> Track:
    length = min(len(part.t_s), len(part.v))
    return Track(
        name=part.name,
        label=part.label,
        unit=part.unit,
        group=part.group,
        times_s=part.t_s[:length],
        values=part.v[:length],
    )


def _matrix(rows: list[Numbers], height: int, width: int) -> list[Numbers]:
    if not rows:
        return []
    fitted = [_fitted(row, width) for row in rows[:height]]
    return fitted + [[None] * width for _ in range(height - len(fitted))]


def _fitted(values: Numbers, length: int) -> Numbers:
    return values[:length] + [None] * (length - len(values))
