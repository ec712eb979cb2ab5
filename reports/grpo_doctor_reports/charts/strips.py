"""Samples over time, one strip per quantity, under the axis that all charts over time share."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart, line_values
from grpo_doctor_reports.model import Timeline, Track
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.thinning import thin_line

_POINTS = 18_000  # over all tracks; merged points are three numbers each
_POINTS_PER_TRACK = (40, 600)
_TRACKS = 400
_STRIPS = 30  # in one group; more named quantities than this are not ours
_GROUPS = (("gpu", "GPUs"), ("host", "Hosts"), ("rank", "Processes"))
_TITLES = {
    "gpu.util": "GPU utilisation",
    "gpu.sm_active": "SM active",
    "gpu.tensor_active": "tensor cores active",
    "gpu.power": "GPU power",
    "gpu.memory_used": "GPU memory used",
    "gpu.process_memory": "GPU memory by process",
    "gpu.sm_clock": "SM clock",
    "gpu.throttle": "throttle reasons (bits)",
    "gpu.pcie_rx": "PCIe received",
    "gpu.pcie_tx": "PCIe sent",
    "host.cpu": "CPU, of all cores",
    "host.load1": "load, 1 min",
    "host.psi_cpu": "CPU pressure",
    "host.psi_memory": "memory pressure",
    "host.psi_io": "I/O pressure",
    "host.memory_available": "memory available",
    "host.swap_used": "swap used",
    "host.disk_read": "disk read",
    "host.disk_write": "disk written",
    "host.net_rx": "network received",
    "host.net_tx": "network sent",
    "host.shm_used": "shared memory used",
    "host.shm_size": "shared memory size",
    "host.major_faults": "major page faults",
    "rank.cpu": "CPU, 100% = one core",
    "rank.rss": "resident memory",
    "rank.major_faults": "major page faults",
    "rank.threads": "threads",
    "rank.cpu_wait": "ready, without a processor",
    "rank.processors": "processors it may use",
    "gc/seconds": "Python's garbage collector",
    "gc/longest_s": "longest garbage collection",
}
_ORDER = {name: at for at, name in enumerate(_TITLES)}


def strips_chart(timeline: Timeline, pool: NumberPool) -> Chart | None:
    """Return all strips, None where nothing was sampled."""
    if not timeline.tracks:
        return None
    tracks = timeline.tracks[:_TRACKS]
    limit = _points_per_track(len(tracks))
    groups = [
        {"key": key, "title": title, "strips": strips}
        for key, title in _group_titles(tracks)
        if (strips := _strips([t for t in tracks if _group(t) == key], limit, timeline, pool))
    ]
    return Chart(
        data={"end": timeline.end_s, "groups": groups},
        summary=_summary(timeline, tracks),
        note=_note(timeline, limit),
    )


def _points_per_track(tracks: int) -> int:
    least, most = _POINTS_PER_TRACK
    return min(most, max(least, _POINTS // max(1, tracks)))


def _group(track: Track) -> str:
    return track.group if track.group in dict(_GROUPS) else "other"


def _group_titles(tracks: list[Track]) -> list[tuple[str, str]]:
    present = {_group(track) for track in tracks}
    return [pair for pair in (*_GROUPS, ("other", "Other")) if pair[0] in present]


def _strips(
    tracks: list[Track], limit: int, timeline: Timeline, pool: NumberPool
) -> list[dict[str, Any]]:
    by_name: dict[str, list[Track]] = defaultdict(list)
    for track in tracks:
        if any(value is not None for value in track.values):
            by_name[track.name].append(track)
    ordered = sorted(by_name, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return [_strip(name, by_name[name], limit, timeline, pool) for name in ordered[:_STRIPS]]


def _strip(
    name: str, tracks: list[Track], limit: int, timeline: Timeline, pool: NumberPool
) -> dict[str, Any]:
    divisor, unit = _display_unit(tracks)
    lines = []
    for track in tracks:
        line = thin_line(track.times_s, _scaled(track.values, divisor), limit)
        lines.append(
            {
                "label": track.label or track.name,
                "t": pool.add_times(line.times, timeline.end_s),
                **line_values(line, pool),
            }
        )
    return {"title": _TITLES.get(name, name), "unit": unit, "lines": lines}


def _scaled(values: Numbers, divisor: float) -> Numbers:
    return [None if value is None else value / divisor for value in values]


def _display_unit(tracks: list[Track]) -> tuple[float, str]:
    unit = tracks[0].unit
    if unit not in {"bytes", "bytes/s"}:
        return 1.0, unit
    largest = max((abs(v) for t in tracks for v in t.values if v is not None), default=0.0)
    exponent = formatting.byte_exponent(largest)
    return 1024.0**exponent, formatting.byte_unit(exponent) + unit.removeprefix("bytes")


def _summary(timeline: Timeline, tracks: list[Track]) -> str:
    said = [f"{formatting.seconds(timeline.end_s)} recorded"]
    for name in _TITLES:
        known = _known([track.values for track in tracks if track.name == name])
        if known and len(said) < 4:
            unit = next(track.unit for track in tracks if track.name == name)
            title = _TITLES[name].partition(",")[0]
            said.append(f"mean {title} {formatting.quantity(fmean(known), unit)}")
    return "; ".join(said) + "."


def _known(rows: list[Numbers]) -> list[float]:
    return [value for row in rows for value in row if value is not None]


def _note(timeline: Timeline, limit: int) -> str:
    cut = len(timeline.tracks) > _TRACKS
    thinner = timeline.thinned or any(len(track.values) > limit for track in timeline.tracks)
    notes = [f"The first {_TRACKS} of {len(timeline.tracks):,} tracks are drawn."] if cut else []
    if thinner:
        notes.append("Lines are means between lows and highs; the trace has every sample.")
    return " ".join(notes)
