"""The run over time: the mean of all ranks, then a lane for each.

Everywhere means of neighboring steps are drawn, and every span in a few windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.figure import (
    Chart,
    Column,
    Figure,
    TimeAxis,
    axis,
    boxes,
    figure,
    line,
    token,
)
from grpo_doctor_reports.palette import UNATTRIBUTED, color_of, order_of
from grpo_doctor_reports.schema import views
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.report import ReportDocument

_NAMED = 4
_BUTTONS = 8
_LANES = 64  # more would be thinner than six pixels
_LANE_PX, _LEAST_PX, _MOST_PX, _AXIS_PX = 40, 80, 600, 44
_HALF = 0.44  # of a lane; the rest is the gap to the next one
_CLOSE = 30  # the view is close enough for spans where as many windows, or steps, fit into it
_LINKED = 2_000  # collectives drawn from rank to rank
_DEEPEST = 6
_WAIT = {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": token("page"), "fillmode": "replace",
         "bgcolor": "rgba(0,0,0,0)"}  # fmt: skip
_WORDS = {
    "open": "the step that never ended",
    "median": "the median step",
    "worst": "the worst step",
    "named": "step",
    "start": "the time before the steps",
    "end": "the time after the steps",
}


def lanes_chart(report: ReportDocument) -> Chart | None:
    """Return the lanes, None where no rank's phases were recorded."""
    timeline, steps = report.views.timeline, report.views.step_buckets
    if not timeline.exact.lanes and not timeline.ranks.first:
        return None
    named = {*steps.phase_seconds, *timeline.ranks.phase_seconds} - {UNATTRIBUTED}
    if not named and not any(lane.name for lane in timeline.exact.lanes):
        return None
    summary = _summary(report)
    return Chart(
        figures={"lanes": _figure(timeline, steps, of_a_log=not report.run.ranks)},
        summary=summary,
        note=_note(report),
        facts={"windows": _buttons(timeline.exact)},
    )


@dataclass(slots=True)
class _Boxes:
    """Edges of boxes, and the name of what each stands for."""

    x0: list[float] = field(default_factory=list)
    x1: list[float] = field(default_factory=list)
    y0: list[float] = field(default_factory=list)
    y1: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, x0: float, x1: float, y0: float, y1: float, name: str = "") -> None:
        self.x0.append(x0)
        self.x1.append(x1)
        self.y0.append(y0)
        self.y1.append(y1)
        self.names.append(name)

    def trace(
        self, time: TimeAxis, scale_s: float, color: str, meta: Figure, **more: Any
    ) -> Figure:
        edges = [time.moments(edge, scale_s) for edge in (self.x0, self.x1)]
        edges += [Column(list(edge), 3) for edge in (self.y0, self.y1)]
        known = sorted({*self.names})
        number = {name: at for at, name in enumerate(known)}
        named = {"names": known, "name": Column([number[name] for name in self.names])}
        return boxes(edges, color, meta={**meta, **named}, **more)


def _figure(timeline: views.Timeline, steps: views.StepBuckets, *, of_a_log: bool) -> Figure:
    """Far away, a column per bucket that phases share by their seconds; close, every span. A single
    rank is its own mean, and a log has but the job."""
    shown, time = lanes_shown(timeline), TimeAxis(timeline.end_s)
    has_mean = bool(steps.first) and (len(shown) != 1 or not timeline.ranks.first)
    rows = {rank: at + has_mean for at, rank in enumerate(shown)}
    names = ["job"] if of_a_log and len(shown) == 1 else [f"rank {rank}" for rank in shown]
    labels = ["mean"] * has_mean + names
    stride = -(-len(labels) // 40)
    lanes = [lane for lane in timeline.exact.lanes if lane.rank in rows]
    far = _far(timeline, steps if has_mean else views.StepBuckets(), rows, time)
    close_s = _close_s(timeline.exact, steps) if timeline.ranks.first else None
    return figure(
        [*far, *_near(timeline.exact, lanes, rows, time)],
        _AXIS_PX + min(_MOST_PX, max(_LEAST_PX, _LANE_PX * len(labels))),
        margin={"l": 64, "r": 8, "t": 4, "b": _AXIS_PX - 4},
        hovermode=False,
        xaxis=time.layout(),
        yaxis=axis(
            range=[len(labels) - 0.5, -0.5], showgrid=False, fixedrange=False,
            tickvals=list(range(0, len(labels), stride)),
            ticktext=[f"{label} " for label in labels[::stride]],
        ),
        meta={"axis": "time", "ranks": [*[None] * has_mean, *shown], "labels": labels,
              "close": None if close_s is None else close_s / time.unit[0]},
    )  # fmt: skip


def _close_s(exact: views.Exact, steps: views.StepBuckets) -> float | None:
    """The longest view, in seconds, that shows single spans; None: every view."""
    if not _is_whole(exact):
        return _CLOSE * _window_s(exact)
    lengths = [seconds for seconds in steps.seconds if seconds is not None]
    return _CLOSE * median(lengths) if lengths and sum(steps.steps) > _CLOSE else None


def _window_s(exact: views.Exact) -> float:
    return median([window.end_s - window.start_s for window in exact.windows] or [1.0])


def _far(
    timeline: views.Timeline, steps: views.StepBuckets, rows: dict[int, int], time: TimeAxis
) -> list[Figure]:
    ranks = timeline.ranks
    columns = [(0, steps.start_s, steps.end_s, steps.phase_seconds, steps.wait_seconds)]
    columns = columns if steps.first else []
    for at, rank in enumerate(ranks.ranks):
        of_rank = [{name: table[at] for name, table in tables.items()}
                   for tables in (ranks.phase_seconds, ranks.wait_seconds)]  # fmt: skip
        if rank in rows:
            columns.append((rows[rank], ranks.start_s, ranks.end_s, of_rank[0], of_rank[1]))
    phases: dict[str, _Boxes] = defaultdict(_Boxes)
    waits = _Boxes()
    for row, starts, ends, seconds, waited in columns:
        ordered = sorted(seconds, key=order_of)
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if start is not None and end is not None:
                _stack(phases, waits, (start, end), row,
                       [(name, seconds[name][at] or 0.0, _at(waited.get(name), at))
                        for name in ordered])  # fmt: skip
    meta = {"far": True}
    return [
        *(phases[name].trace(time, time.end_s, color_of(name), {**meta, "phase": name})
          for name in sorted(phases, key=order_of)),
        *([waits.trace(time, time.end_s, token("page"), meta, fillpattern=_WAIT)] * bool(waits.x0)),
    ]  # fmt: skip


def _at(values: Numbers | None, at: int) -> float:
    return (values[at] or 0.0) if values else 0.0


def _stack(
    phases: dict[str, _Boxes],
    waits: _Boxes,
    edges: tuple[float, float],
    row: int,
    parts: list[tuple[str, float, float]],
) -> None:
    """The phases of one column from the top down; the wait is the lower part of its phase."""
    whole = sum(seconds for _, seconds, _ in parts)
    top = row - _HALF
    for name, seconds, wait in parts:
        if seconds <= 0:
            continue
        bottom = top + 2 * _HALF * seconds / whole
        phases[name].add(*edges, top, bottom, name)
        if wait > 0:
            waits.add(*edges, bottom - (bottom - top) * min(1.0, wait / seconds), bottom, name)
        top = bottom


def _near(
    exact: views.Exact, lanes: list[views.ExactLane], rows: dict[int, int], time: TimeAxis
) -> list[Figure]:
    """Spans on the ground of their windows, each in the lower part of the one around it."""
    scale_s, meta = _window_s(exact), {"near": True}
    ground, waits, still_open = _Boxes(), _Boxes(), _Boxes()
    layers: dict[tuple[int, str], _Boxes] = defaultdict(_Boxes)
    deepest = max((min(d, _DEEPEST) for lane in lanes for d in lane.depth), default=0)
    for lane in lanes:
        row = rows[lane.rank]
        for window in exact.windows:
            ground.add(window.start_s, window.end_s, row - _HALF, row + _HALF)
        open_places = {*lane.open}
        for at, (code, depth) in enumerate(zip(lane.name, lane.depth, strict=True)):
            if depth > _DEEPEST:
                continue
            name = exact.names[code]
            is_call = name in exact.collectives
            top = row - _HALF + 2 * _HALF * depth / (deepest + 1)
            box = (lane.start_s[at], lane.end_s[at], top, row + _HALF, name)
            layers[depth, "" if is_call else name.partition("/")[0]].add(*box)
            if at in open_places:
                still_open.add(*box)
        for start, end in zip(lane.wait_s[::2], lane.wait_s[1::2], strict=True):
            height = 2 * _HALF / (deepest + 1)
            waits.add(start, end, row - _HALF, row - _HALF + height, "wait for other ranks")
    traces = [ground.trace(time, scale_s, token("sunken"), {**meta, "ground": True})]
    for depth, name in sorted(layers):
        drawn = layers[depth, name]
        color = color_of(name) if name else token("muted")
        traces.append(drawn.trace(time, scale_s, color, {**meta, "phase": name or None}))
        if depth or not name:  # paler, with an edge: it lies in another span
            edge = {"width": 0.5, "color": token("page")}
            traces.append(
                drawn.trace(time, scale_s, token("page"), meta, opacity=0.3, outline=edge)
            )
    dashes = {"width": 1.5, "color": token("ink"), "dash": "2px,2px"}
    traces += [waits.trace(time, scale_s, token("page"), meta, fillpattern=_WAIT)] * bool(waits.x0)
    traces += [
        still_open.trace(time, scale_s, "rgba(0,0,0,0)", {**meta, "open": True}, outline=dashes)
    ] * bool(still_open.x0)
    return [*traces, *_links(lanes, rows, time, scale_s)] if lanes else []


def _links(
    lanes: list[views.ExactLane], rows: dict[int, int], time: TimeAxis, scale_s: float
) -> Iterator[Figure]:
    """A line per collective from rank to rank, with a dot where the last rank arrives."""
    meetings: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for lane in lanes:
        for number, start_s in zip(lane.meeting, lane.start_s, strict=True):
            if number >= 0:
                meetings[number].append((start_s, rows[lane.rank]))
    met = [points for points in meetings.values() if len(points) > 1]
    if not 0 < len(met) <= _LINKED:
        return
    x = [at for points in met for at in (*(start for start, _ in points), None)]
    y = [at for points in met for at in (*(float(row) for _, row in points), None)]
    last = [max(points) for points in met]
    yield line(
        time.moments(x, scale_s), Column(y), token("ink"), hoverinfo="skip", opacity=0.4,
        line={"width": 1, "color": token("ink")}, meta={"near": True},
    )  # fmt: skip
    yield line(
        time.moments([start for start, _ in last], scale_s),
        Column([float(row) for _, row in last]),
        token("high"), mode="markers", marker={"size": 6, "color": token("high")},
        hoverinfo="skip", meta={"near": True},
    )  # fmt: skip


def lanes_shown(timeline: views.Timeline) -> list[int]:
    """Return the ranks that have a lane: those of the means first, where there are too many."""
    known = dict.fromkeys((*timeline.ranks.ranks, *(lane.rank for lane in timeline.exact.lanes)))
    return sorted(list(known)[:_LANES])


def _summary(report: ReportDocument) -> str:
    count, shares_of_phases = shares(report.views.step_buckets)
    if not shares_of_phases:
        return _of_spans(report.views.timeline)
    ranks = max(len(report.views.heatmap.means.ranks), len(lanes_shown(report.views.timeline)))
    mean = f"Mean of {ranks:,} ranks over" if ranks > 1 else "Mean of"
    phases = [
        f"{name} {formatting.share(share)}"
        + (f" ({formatting.share(wait)} waiting)" if wait >= 0.005 else "")
        for name, share, wait in sorted(shares_of_phases, key=lambda part: -part[1])
        if share >= 0.0005
    ]
    return f"{mean} {formatting.count(count, 'step')}: {', '.join(phases)}."


def _of_spans(timeline: views.Timeline) -> str:
    """What the outermost spans take, where no step is known."""
    phase_s: dict[str, float] = {}
    for lane in timeline.exact.lanes:
        for name, depth, start, end in zip(
            lane.name, lane.depth, lane.start_s, lane.end_s, strict=True
        ):
            if depth == 0:
                phase = timeline.exact.names[name].partition("/")[0]
                phase_s[phase] = phase_s.get(phase, 0.0) + end - start
    total_s = sum(phase_s.values()) or 1.0
    longest = sorted(phase_s.items(), key=lambda item: -item[1])[:_NAMED]
    phases = ", ".join(f"{phase} {formatting.share(s / total_s)}" for phase, s in longest)
    ranks = formatting.count(len(timeline.exact.lanes), "rank")
    return f"Recorded phases of {ranks} over {formatting.seconds(timeline.end_s)}: {phases}."


def _note(report: ReportDocument) -> str:
    timeline, steps = report.views.timeline, report.views.step_buckets
    notes = [_means_note(steps, timeline), _exact_note(timeline.exact)]
    lanes, total = lanes_shown(timeline), len(report.views.heatmap.means.ranks)
    silent = {rank.rank for rank in report.run.ranks} - {*lanes, *report.views.heatmap.means.ranks}
    if silent:
        ranks = f"Rank{'s' * (len(silent) > 1)} {formatting.int_ranges(silent)}"
        notes.append(f"{ranks} recorded no phases.")
    if len(lanes) < total:
        notes.append(
            f"{len(lanes):,} of {total:,} ranks are drawn, the slowest of each "
            f"{formatting.number(total / len(lanes))}; the mean is over all."
        )
    return " ".join(note for note in notes if note)


def _means_note(steps: views.StepBuckets, timeline: views.Timeline) -> str:
    widest = max(timeline.ranks.steps, default=1)
    all_ranks = max(steps.steps, default=1)
    if widest <= 1:
        return ""
    mean = "" if all_ranks == widest else f" ({all_ranks} in the lane of the mean)"
    return f"Zoomed out, a column is the mean of up to {widest} steps{mean}."


def _buttons(exact: views.Exact) -> list[dict[str, Any]]:
    """What the reader can go to with one click."""
    chosen = [window for why in _WORDS for window in exact.windows if window.why == why]
    return [
        {"name": _name(w).removeprefix("the "), "start": w.start_s, "end": w.end_s}
        for w in chosen[:_BUTTONS]
    ]


def _name(window: views.ExactWindow) -> str:
    words = _WORDS[window.why]
    return words if window.step is None else f"{words} {window.step}"


def _exact_note(exact: views.Exact) -> str:
    notes = []
    if exact.windows and not _is_whole(exact):
        names = [_name(window) for why in _WORDS for window in exact.windows if window.why == why]
        slow = sum(window.why == "slow" for window in exact.windows)
        names += [f"the {formatting.count(slow, 'next slowest step')}"] if slow else []
        notes.append(f"Every span is shown in {'; '.join(names)}.")
    if exact.spans_left_out:
        count, longest = formatting.count(exact.spans_left_out, "span"), exact.longest_left_out_s
        notes.append(f"{count} of at most {formatting.seconds(longest)} are not shown.")
    return " ".join(notes)


def _is_whole(exact: views.Exact) -> bool:
    return any(window.why == "whole" for window in exact.windows)


def shares(steps: views.StepBuckets) -> tuple[int, list[tuple[str, float, float]]]:
    """Return over how many steps the means are, and of each phase its share and that of its wait.

    Steps that the summary leaves out (warm-up, for example) are left out here too, unless there
    are no others.
    """
    chosen = [at for at, used in enumerate(steps.used) if used]
    chosen = chosen or list(range(len(steps.used)))
    totals = {name: _sum(values, chosen, steps) for name, values in steps.phase_seconds.items()}
    waits = {name: _sum(values, chosen, steps) for name, values in steps.wait_seconds.items()}
    all_s = _sum(steps.seconds, chosen, steps)
    if all_s <= 0:
        return 0, []
    count = sum(steps.steps[at] for at in chosen)
    return count, [(n, totals[n] / all_s, waits.get(n, 0.0) / all_s) for n in totals]


def _sum(values: Numbers, chosen: list[int], steps: views.StepBuckets) -> float:
    return sum((values[at] or 0.0) * steps.steps[at] for at in chosen)
