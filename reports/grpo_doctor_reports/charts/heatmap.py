"""Rank by step, one matrix at a time: own work, wait, step time, or one phase."""

from __future__ import annotations

from statistics import fmean

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.figure import (
    Chart,
    Column,
    Figure,
    axis,
    axis_title,
    column,
    figure,
    plain,
    slowest_columns,
    token,
)
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Heatmap

_ROWS = 128
_CELLS = 10_000  # per matrix; 13 matrices of it are about 150 kB in the page
_ROW_PX, _LEAST_PX, _MOST_PX = 22, 150, 560
_SEEN = 0.98  # of the values: color stops there if a few slow steps would bleach the rest


def heatmap_chart(heatmap: Heatmap) -> Chart | None:
    """Return the chart, None without several ranks, or without steps."""
    ranks, steps = heatmap.ranks[:_ROWS], heatmap.steps
    if len(ranks) < 2 or not steps:
        return None
    columns = slowest_columns(heatmap.step_seconds, len(steps), max(1, _CELLS // len(ranks)))
    matrices = {
        label: [[row[at] for at in columns] for row in rows[:_ROWS]]
        for label, rows in _matrices(heatmap)
        if any(value is not None for row in rows for value in row)
    }
    if not matrices:
        return None
    shown = [steps[at] for at in columns]
    return Chart(
        figures={"heatmap": _figure(matrices, ranks, shown)},
        summary=_summary(heatmap),
        note=_note(heatmap, columns),
        facts={"labels": list(matrices)},
    )


def _figure(matrices: dict[str, list[Numbers]], ranks: list[int], steps: list[int]) -> Figure:
    """All matrices as traces, of which the first is visible."""
    names = [f"rank {rank}" for rank in ranks]
    traces = [
        {
            "type": "heatmap", "x": Column(list(steps)), "y": names, "z": [*map(column, rows)],
            "visible": at == 0, "hoverongaps": False, "xgap": int(len(steps) < 200),
            "ygap": int(len(ranks) < 40), **_colors(rows),
            "meta": [plain(label)],
            "hovertemplate": "%{y}, step %{x}<br>%{meta[0]} %{z:,.3~r} s<extra></extra>",
        }
        for at, (label, rows) in enumerate(matrices.items())
    ]  # fmt: skip
    return figure(
        traces,
        min(_MOST_PX, max(_LEAST_PX, 74 + _ROW_PX * len(ranks))),
        margin={"l": 64, "r": 8, "t": 4, "b": 38},
        xaxis=axis(
            tickformat="d", range=[steps[0] - 0.5, steps[-1] + 0.5], fixedrange=False,
            showgrid=False, title=axis_title("step"),
        ),
        yaxis=axis(type="category", range=[len(ranks) - 0.5, -0.5], showgrid=False,
                   fixedrange=False, ticksuffix=" "),
        meta={"axis": "step", "ranks": ranks},
    )  # fmt: skip


def _colors(rows: list[Numbers]) -> Figure:
    known = sorted(value for row in rows for value in row if value is not None)
    high = known[min(len(known) - 1, int(len(known) * _SEEN))]
    top = high if known[-1] > 1.6 * high else known[-1]
    low = known[0] if known[0] > 0.5 * top else 0.0
    return {
        "zmin": low, "zmax": max(top, low + 1e-9),
        "colorscale": [[at / 4, token(f"heat-{at}")] for at in range(5)],
        "colorbar": {
            "thickness": 9, "outlinewidth": 0, "ticks": "", "nticks": 5, "ticksuffix": " s",
            "x": 1.005, "xpad": 6, "tickfont": {"size": 11, "color": token("muted")},
        },
    }  # fmt: skip


def _matrices(heatmap: Heatmap) -> list[tuple[str, list[Numbers]]]:
    """Own work first: who waits for a slow rank takes as long as that rank."""
    own = [("own work", _own_work(heatmap))]
    phases = [
        (name, _without(rows, heatmap.phase_wait_seconds.get(name, [])))
        for name, rows in heatmap.phase_seconds.items()
    ]
    return [*own, ("wait", heatmap.wait_seconds), ("step time", heatmap.step_seconds), *phases]


def _own_work(heatmap: Heatmap) -> list[Numbers]:
    return _without(heatmap.step_seconds, heatmap.wait_seconds)


def _without(rows: list[Numbers], waits: list[Numbers]) -> list[Numbers]:
    if not waits:
        return rows
    return [
        [None if v is None else max(0.0, v - (w or 0.0)) for v, w in zip(row, wait, strict=True)]
        for row, wait in zip(rows, waits, strict=True)
    ]


def _summary(heatmap: Heatmap) -> str:
    means = heatmap.means
    own = [(v, r) for v, r in zip(means.own_seconds, means.ranks, strict=False) if v is not None]
    waits = [(v, r) for v, r in zip(means.wait_seconds, means.ranks, strict=False) if v is not None]
    lines = []
    if own:
        longest, rank = max(own)
        mean = formatting.seconds(fmean(value for value, _ in own))
        most = f"rank {rank} has the most, {formatting.seconds(longest)}"
        lines.append(f"Own work averages {mean} per step over {len(own):,} ranks; {most}.")
    if len(waits) > 1:
        (low_s, low_rank), (high_s, high_rank) = min(waits), max(waits)
        lines.append(
            f"Average wait per step ranges from {formatting.seconds(low_s)} (rank {low_rank}) to "
            f"{formatting.seconds(high_s)} (rank {high_rank})."
        )
    cells = [
        (value, rank, step)
        for rank, row in zip(heatmap.ranks, _own_work(heatmap), strict=False)
        for step, value in zip(heatmap.steps, row, strict=False)
        if value is not None
    ]
    if cells:
        value, rank, step = max(cells)
        cell = f"{formatting.seconds(value)} (rank {rank}, step {step})"
        lines.append(f"Most own work in one step: {cell}.")
    return " ".join(lines)


def _note(heatmap: Heatmap, columns: list[int]) -> str:
    rows, ranks = min(len(heatmap.ranks), _ROWS), len(heatmap.means.ranks)
    notes = ["Own work and phases exclude waiting for other ranks."] if heatmap.wait_seconds else []
    if ranks > rows:
        every = formatting.number(ranks / rows, 2)
        notes.append(
            f"Shows {rows} of {ranks:,} ranks: of every {every} the one with the most work."
        )
    if heatmap.steps_total > len(columns):
        every = formatting.number(heatmap.steps_total / len(columns), 2)
        notes.append(f"Shows the slowest of every {every} steps.")
    return " ".join(notes)
