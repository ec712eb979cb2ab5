"""Samples over time, one strip per quantity, under the axis that all charts over time share."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart, line_values, thin_line
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Timeline, TrackEntry

_POINTS = 10_000  # over all tracks; merged points are three numbers each
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
    """Return all strips, None where nothing was sampled. What never changes is said, not drawn."""
    tracks = timeline.tracks[:_TRACKS]
    by_name = _by_name(tracks)
    flat = {name: every for name, every in by_name.items() if _is_flat(every)}
    moving = [track for name, every in by_name.items() if name not in flat for track in every]
    if not by_name:
        return None
    limit = _points_per_track(len(moving))
    groups = [
        {"key": key, "title": title, "strips": strips}
        for key, title in _group_titles(moving)
        if (strips := _strips([t for t in moving if _group(t) == key], limit, timeline, pool))
    ]
    return Chart(
        data={"end": timeline.end_s, "groups": groups},
        summary=_summary(timeline, moving),
        note=_note(timeline, moving, limit, flat),
    )


def _by_name(tracks: list[TrackEntry]) -> dict[str, list[TrackEntry]]:
    by_name: dict[str, list[TrackEntry]] = defaultdict(list)
    for track in tracks:
        if any(value is not None for value in track.v):
            by_name[track.name].append(track)
    return by_name


def _is_flat(tracks: list[TrackEntry]) -> bool:
    """Whether no track changes; a single sample each is worth a look still."""
    rows = [[value for value in track.v if value is not None] for track in tracks]
    return all(len(row) > 1 and min(row) == max(row) for row in rows)


def _points_per_track(tracks: int) -> int:
    fewest, limit = _POINTS_PER_TRACK
    return min(limit, max(fewest, _POINTS // max(1, tracks)))


def _group(track: TrackEntry) -> str:
    return track.group if track.group in dict(_GROUPS) else "other"


def _group_titles(tracks: list[TrackEntry]) -> list[tuple[str, str]]:
    present = {_group(track) for track in tracks}
    return [pair for pair in (*_GROUPS, ("other", "Other")) if pair[0] in present]


def _strips(
    tracks: list[TrackEntry], limit: int, timeline: Timeline, pool: NumberPool
) -> list[dict[str, Any]]:
    by_name = _by_name(tracks)
    ordered = sorted(by_name, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return [_strip(name, by_name[name], limit, timeline, pool) for name in ordered[:_STRIPS]]


def _strip(
    name: str, tracks: list[TrackEntry], limit: int, timeline: Timeline, pool: NumberPool
) -> dict[str, Any]:
    divisor, unit = _display_unit(tracks)
    lines = []
    for track in tracks:
        line = thin_line(track.t_s, _scaled(track.v, divisor), limit)
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


def _display_unit(tracks: list[TrackEntry]) -> tuple[float, str]:
    unit = tracks[0].unit
    if unit not in {"bytes", "bytes/s"}:
        return 1.0, unit
    largest = max((abs(v) for t in tracks for v in t.v if v is not None), default=0.0)
    exponent = formatting.byte_exponent(largest)
    return 1024.0**exponent, formatting.byte_unit(exponent) + unit.removeprefix("bytes")


def _summary(timeline: Timeline, tracks: list[TrackEntry]) -> str:
    facts = [f"{formatting.seconds(timeline.end_s)} recorded"]
    for name in _TITLES:
        values = _values([track.v for track in tracks if track.name == name])
        if values and len(facts) < 4:
            unit = next(track.unit for track in tracks if track.name == name)
            title = _TITLES[name].partition(",")[0]
            facts.append(f"mean {title} {formatting.quantity(fmean(values), unit)}")
    return "; ".join(facts) + "."


def _values(rows: list[Numbers]) -> list[float]:
    return [value for row in rows for value in row if value is not None]


def _note(
    timeline: Timeline, moving: list[TrackEntry], limit: int, flat: dict[str, list[TrackEntry]]
) -> str:
    notes = []
    left_out = timeline.tracks_left_out + max(0, len(timeline.tracks) - _TRACKS)
    if left_out:
        notes.append(f"{formatting.count(left_out, 'more track')} not drawn; the trace has them.")
    if any(len(track.v) > limit for track in moving):
        notes.append("Lines are means between lows and highs; the trace has every sample.")
    if flat:
        ordered = sorted(flat, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
        facts = [_flat_words(name, flat[name]) for name in ordered]
        notes.append(f"The same throughout: {formatting.listed(facts, _STRIPS)}.")
    return " ".join(notes)


def _flat_words(name: str, tracks: list[TrackEntry]) -> str:
    values = _values([track.v for track in tracks])
    low, high = (formatting.quantity(value, tracks[0].unit) for value in (min(values), max(values)))
    title = _TITLES.get(name, name).partition(",")[0]
    return f"{title} {low}" if low == high else f"{title} {low} to {high}"
