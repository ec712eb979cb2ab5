"""Trajectories: a lane for each of the slowest, and their flow from step to step."""

from __future__ import annotations

from collections import defaultdict

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.figure import (
    Chart,
    Column,
    Figure,
    axis,
    axis_title,
    boxes,
    column,
    figure,
    line,
    moments,
    plain,
    token,
)
from grpo_doctor_reports.palette import STATE_COLORS
from grpo_doctor_reports.schema.trajectories import PartShown, Shown, Trajectories
from grpo_doctor_reports.trajectory_words import counted

LANES = "lanes"
FLOW = "flow"
_LANES_SHOWN = 50
_ROW_PX = 13
_HALF = 0.4  # of a row
_TICKS = 10
_CURVES = {"produced": "decode", "trained": "reward", "dropped": "paused", "waiting": "buffer"}


def trajectories_chart(trajectories: Trajectories) -> Chart | None:
    """Return swimlanes and flow, None without trajectories."""
    slowest = [one for one in trajectories.shown if one.why == "slowest"][:_LANES_SHOWN]
    if not slowest:
        return None
    figures = {LANES: _lanes(slowest)}
    if len(trajectories.flow.steps) > 1:
        figures[FLOW] = _flow(trajectories)
    longest = slowest[0]
    before = {state: s for state, s in longest.states.items() if state != "buffer"}
    most = max(before.items(), key=lambda state: state[1], default=("other", 0.0))
    return Chart(
        figures=figures,
        summary=(
            f"The {len(slowest)} slowest of {counted(trajectories)}, each from its own beginning. "
            f"The slowest was ready after "
            f"{formatting.seconds(longest.seconds)}, of which {formatting.seconds(most[1])} "
            f"in {most[0]}."
        ),
    )


def _lanes(slowest: list[Shown]) -> Figure:
    ends_s = [part.end_s for one in slowest for part in one.parts]
    end_s = max(*ends_s, *(one.seconds for one in slowest), 1e-6)
    traces = []
    ground = [(row, 0.0, one.seconds) for row, one in enumerate(slowest)]
    traces.append(_boxes(ground, "other", end_s))
    by_state: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    failed: list[tuple[int, PartShown]] = []
    for row, one in enumerate(slowest):
        for part in one.parts:
            by_state[part.state].append((row, part.start_s, part.end_s))
            if part.failed:
                failed.append((row, part))
    traces += [_boxes(by_state[s], s, end_s) for s in STATE_COLORS if by_state[s]]
    traces.append(_hovers(slowest, end_s))
    if failed:
        traces.append({
            "type": "scatter", "mode": "markers", "hoverinfo": "skip",
            "x": moments([part.end_s for _, part in failed], end_s),
            "y": Column([row for row, _ in failed]),
            "marker": {"symbol": "x", "size": 7, "color": token("high")},
        })  # fmt: skip
    return figure(
        traces, 60 + _ROW_PX * len(slowest),
        margin={"l": 8, "r": 16, "t": 8, "b": 8},
        xaxis=axis(
            range=[0, end_s], title=axis_title("seconds since the trajectory began"),
            automargin=True, showgrid=False,
        ),
        yaxis=axis(
            range=[len(slowest) - 0.5, -0.5], showgrid=False, automargin=True,
            tickvals=list(range(len(slowest))),
            ticktext=[f"{plain(_label(one))} " for one in slowest], tickfont={"size": 10},
        ),
    )  # fmt: skip


def _boxes(rows: list[tuple[int, float, float]], state: str, end_s: float) -> Figure:
    edges = [
        moments([start for _, start, _ in rows], end_s),
        moments([end for _, _, end in rows], end_s),
        Column([row - _HALF for row, _, _ in rows], 1),
        Column([row + _HALF for row, _, _ in rows], 1),
    ]
    return boxes(edges, STATE_COLORS[state])


def _hovers(slowest: list[Shown], end_s: float) -> Figure:
    """A point in the middle of each part, which says what it is."""
    parts = [(row, part) for row, one in enumerate(slowest) for part in one.parts]
    return {
        "type": "scatter", "mode": "markers", "hoverinfo": "text",
        "x": moments([(part.start_s + part.end_s) / 2 for _, part in parts], end_s),
        "y": Column([row for row, _ in parts]),
        "marker": {"size": _ROW_PX, "opacity": 0},
        "hovertext": [plain(_words(slowest[row], part)) for row, part in parts],
    }  # fmt: skip


def _words(one: Shown, part: PartShown) -> str:
    what = f"{part.state} {part.name}".strip() + " (failed)" * part.failed
    return f"{_label(one)}: {what}, {formatting.seconds(part.end_s - part.start_s)}"


def _label(one: Shown) -> str:
    """Return which trajectory that is, as far as it is known."""
    group, sample = (one.numbers.get(name) for name in ("group", "sample"))
    known = [f"{group:.0f}"] if group is not None else []
    known += [f"{sample:.0f}"] if sample is not None else []
    return "/".join(known) or "?"


def _flow(trajectories: Trajectories) -> Figure:
    flow = trajectories.flow
    steps = Column(list(flow.steps))
    curves = {name: list(getattr(flow, name)) for name in _CURVES}
    return figure(
        [
            line(steps, column(values), STATE_COLORS[_CURVES[name]], name=name,
                 line={"width": 1.6, "color": STATE_COLORS[_CURVES[name]],
                       "dash": "dot" if name == "waiting" else "solid"})
            for name, values in curves.items() if any(values)
        ],
        220,
        showlegend=True,
        legend={"orientation": "h", "y": 1.15, "font": {"color": token("muted")}},
        margin={"l": 8, "r": 16, "t": 30, "b": 8},
        xaxis=axis(
            title=axis_title("step"), automargin=True, showgrid=False,
            dtick=max(1, len(flow.steps) // _TICKS),
        ),
        yaxis=axis(title=axis_title("trajectories"), automargin=True, rangemode="tozero"),
    )  # fmt: skip
