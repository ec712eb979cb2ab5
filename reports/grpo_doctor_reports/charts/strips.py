"""Samples over time, one strip per quantity, under the axis that all charts over time share."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.figure import (
    Chart,
    Column,
    Figure,
    TimeAxis,
    axis,
    boxes,
    figure,
    plain,
    thin_line,
    token,
)
from grpo_doctor_reports.palette import color_of
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Timeline, TrackEntry

_POINTS = 10_000  # over all tracks; merged points are three numbers each
_POINTS_PER_TRACK = (40, 600)
_TRACKS = 400
_STRIP_PX, _GAP_PX, _AXIS_PX = 58, 26, 40
_STRIPS = 30  # in one group; more named quantities than this are not ours
_GROUPS = (("gpu", "GPUs"), ("host", "Hosts"), ("rank", "Processes"))
_TITLES = {
    "gpu.util": "GPU utilization",
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
    "host.psi_cpu": "CPU pressure",
    "host.psi_memory": "memory pressure",
    "host.psi_io": "I/O pressure",
    "host.memory_available": "memory available",
    "host.swap_used": "swap used",
    "host.shm_used": "shared memory used",
    "host.shm_size": "shared memory size",
    "host.major_faults": "major page faults",
    "job.cpu": "CPU of the job, 100% = one core",
    "job.rss": "memory of the job",
    "job.processes": "processes of the job",
    "rank.cpu": "CPU, 100% = one core",
    "rank.rss": "resident memory",
    "rank.major_faults": "major page faults",
    "rank.threads": "threads",
    "rank.cpu_wait": "time waiting for a CPU",
    "rank.processors": "CPUs it may use",
    "gc/seconds": "Python garbage collection",
    "gc/longest_s": "longest garbage collection",
}
_ORDER = {name: at for at, name in enumerate(_TITLES)}


def strips_chart(timeline: Timeline) -> Chart | None:
    """Return all strips, None where nothing was sampled. Constant series are listed, not drawn."""
    tracks = timeline.tracks[:_TRACKS]
    by_name = _by_name(tracks)
    flat = {name: every for name, every in by_name.items() if _is_flat(every)}
    moving = [track for name, every in by_name.items() if name not in flat for track in every]
    if not by_name:
        return None
    fewest, most = _POINTS_PER_TRACK
    limit = min(most, max(fewest, _POINTS // max(1, len(moving))))
    groups = {
        title: named
        for key, title in (*_GROUPS, ("other", "Other"))
        if (named := _in_order(_by_name([t for t in moving if _group(t) == key])))
    }
    return Chart(
        figures={title: _group_figure(named, limit, timeline) for title, named in groups.items()},
        summary=_summary(timeline, moving),
        note=_note(timeline, moving, limit, flat),
        facts={
            title: [_TITLES.get(name, name) for name in named] for title, named in groups.items()
        },
    )


def _by_name(tracks: list[TrackEntry]) -> dict[str, list[TrackEntry]]:
    by_name: dict[str, list[TrackEntry]] = defaultdict(list)
    for track in tracks:
        if any(value is not None for value in track.v):
            by_name[track.name].append(track)
    return by_name


def _is_flat(tracks: list[TrackEntry]) -> bool:
    """Whether no track changes; tracks of one sample are drawn."""
    rows = [[value for value in track.v if value is not None] for track in tracks]
    return all(len(row) > 1 and min(row) == max(row) for row in rows)


def _group(track: TrackEntry) -> str:
    return track.group if track.group in dict(_GROUPS) else "other"


def _in_order(by_name: dict[str, list[TrackEntry]]) -> dict[str, list[TrackEntry]]:
    ordered = sorted(by_name, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return {name: by_name[name] for name in ordered[:_STRIPS]}


def _group_figure(named: dict[str, list[TrackEntry]], limit: int, timeline: Timeline) -> Figure:
    """Strips under each other, over the phases of the first rank where every span is known."""
    height = 8 + _AXIS_PX + len(named) * (_STRIP_PX + _GAP_PX)
    inner = height - 8 - _AXIS_PX
    time = TimeAxis(timeline.end_s)
    traces = _phases_behind(timeline, time)
    layout: Figure = {"yaxis": axis(range=[0, 1], visible=False, anchor="x"), "annotations": []}
    for at, (name, tracks) in enumerate(named.items()):
        top = 1 - ((at + 1) * _GAP_PX + at * _STRIP_PX) / inner
        divisor, unit = _display_unit(tracks)
        scaled = [[None if v is None else v / divisor for v in track.v] for track in tracks]
        lines = [thin_line(t.t_s, v, limit) for t, v in zip(tracks, scaled, strict=True)]
        for track, thin in zip(tracks, lines, strict=True):
            traces += thin.traces(
                time.moments(thin.times), token("ink"), spread=max(0.02, 0.16 / len(tracks)),
                yaxis=f"y{at + 2}", meta=[plain(track.label or track.name), plain(unit)],
                opacity=0.5 if len(tracks) > 1 else 1,
                hovertemplate="%{meta[0]}: %{y:,.3~r} %{meta[1]}<br>at %{x:.4~r} "
                f"{time.unit[1]}<extra></extra>",
            )  # fmt: skip
        most = max(v for thin in lines for v in (*thin.values, *thin.highs) if v is not None)
        layout[f"yaxis{at + 2}"] = axis(
            domain=[max(0.0, top - _STRIP_PX / inner), top], anchor="x",
            **({"range": [0, 102], "tickvals": [0, 50, 100]} if unit == "%" and most <= 100
               else {"rangemode": "tozero", "nticks": 3}),
        )  # fmt: skip
        layout["annotations"].append(_strip_title(_TITLES.get(name, name), unit, top))
    spikes = {"showspikes": True, "spikemode": "across", "spikethickness": 1, "spikedash": "solid",
              "spikecolor": token("muted"), "spikesnap": "cursor"}  # fmt: skip
    margin = {"l": 64, "r": 8, "t": 8, "b": _AXIS_PX}
    xaxis = time.layout(anchor="free", position=0, **spikes)
    return figure(traces, height, margin=margin, xaxis=xaxis, meta={"axis": "time"}, **layout)


def _strip_title(title: str, unit: str, top: float) -> Figure:
    return {
        "xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom",
        "showarrow": False, "text": plain(f"{title}, {unit}" if unit else title),
        "font": {"size": 11.5, "color": token("ink")},
    }  # fmt: skip


def _phases_behind(timeline: Timeline, time: TimeAxis) -> list[Figure]:
    exact = timeline.exact
    lane = next((lane for lane in exact.lanes if lane.name), None)
    by_phase: dict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(lane.name if lane else []):
        if lane and lane.depth[at] == 0 and exact.names[name] not in exact.collectives:
            by_phase[exact.names[name].partition("/")[0]].append(at)
    return [
        boxes(
            [time.moments([edges[at] for at in places]) for edges in (lane.start_s, lane.end_s)]
            + [Column([float(y)] * len(places)) for y in (0, 1)],
            color_of(phase), opacity=0.16, yaxis="y", meta={"phase": phase},
        )
        for phase, places in by_phase.items() if lane
    ]  # fmt: skip


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
        notes.append(
            f"{formatting.count(left_out, 'more series', 'more series')} only in the trace."
        )
    if any(len(track.v) > limit for track in moving):
        notes.append(
            "Lines are averages, shaded from minimum to maximum; the trace has every sample."
        )
    if flat:
        ordered = sorted(flat, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
        facts = [_flat_words(name, flat[name]) for name in ordered]
        notes.append(f"Constant: {formatting.listed(facts, _STRIPS)}.")
    return " ".join(notes)


def _flat_words(name: str, tracks: list[TrackEntry]) -> str:
    values = _values([track.v for track in tracks])
    low, high = (formatting.quantity(value, tracks[0].unit) for value in (min(values), max(values)))
    title = _TITLES.get(name, name).partition(",")[0]
    return f"{title} {low}" if low == high else f"{title} {low} to {high}"
