"""Rank by step, one matrix at a time: own work, wait, step time, or one phase."""

from __future__ import annotations

from statistics import fmean

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart, slowest_columns
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Heatmap

_ROWS = 128
_CELLS = 10_000  # per matrix; 13 matrices of it are about 150 kB in the page


def heatmap_chart(heatmap: Heatmap, pool: NumberPool) -> Chart | None:
    """Return the chart, None where there are no ranks or no steps."""
    ranks, steps = heatmap.ranks[:_ROWS], heatmap.steps
    if not ranks or not steps:
        return None
    columns = slowest_columns(heatmap.step_seconds, len(steps), max(1, _CELLS // len(ranks)))
    options = [
        {"label": label, "z": pool.add(_flat(rows[:_ROWS], columns))}
        for label, rows in _matrices(heatmap)
        if any(value is not None for row in rows for value in row)
    ]
    if not options:
        return None
    return Chart(
        data={
            "ranks": ranks,
            "steps": pool.add_integers([steps[at] for at in columns]),
            "options": options,
        },
        summary=_summary(heatmap),
        note=_note(heatmap, columns),
    )


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


def _flat(rows: list[Numbers], columns: list[int]) -> Numbers:
    return [row[at] for row in rows for at in columns]


def _summary(heatmap: Heatmap) -> str:
    means = heatmap.means
    own = [(v, r) for v, r in zip(means.own_seconds, means.ranks, strict=False) if v is not None]
    waits = [(v, r) for v, r in zip(means.wait_seconds, means.ranks, strict=False) if v is not None]
    lines = []
    if own:
        longest, rank = max(own)
        mean = formatting.seconds(fmean(value for value, _ in own))
        worst = f"{len(own):,} ranks, most on rank {rank} with {formatting.seconds(longest)}"
        of = f" of {worst}" if len(own) > 1 else ""
        lines.append(f"Own work per step is {mean} in the mean{of}.")
    if len(waits) > 1:
        (low_s, low_rank), (high_s, high_rank) = min(waits), max(waits)
        lines.append(
            f"Mean wait per step runs from {formatting.seconds(low_s)} (rank {low_rank}) to "
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
        lines.append(f"The longest own work in a step is {cell}.")
    return " ".join(lines)


def _note(heatmap: Heatmap, columns: list[int]) -> str:
    rows, ranks = min(len(heatmap.ranks), _ROWS), len(heatmap.means.ranks)
    notes = ["Own work and phases exclude waiting for other ranks."] if heatmap.wait_seconds else []
    if ranks > rows:
        every = formatting.number(ranks / rows, 2)
        notes.append(f"{rows} of {ranks:,} ranks: of every {every} the one that works longest.")
    if heatmap.steps_total > len(columns):
        every = formatting.number(heatmap.steps_total / len(columns), 2)
        notes.append(f"Of every {every} steps the slowest is drawn.")
    return " ".join(notes)
