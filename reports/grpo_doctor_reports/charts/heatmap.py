"""Rank by step, one matrix at a time: step time, wait, or one phase."""

from __future__ import annotations

from statistics import mean, median

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.model import Heatmap
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.thinning import slowest_columns

_ROWS = 128
_CELLS = 16_000  # per matrix; 13 matrices of it are about 300 kB in the page


def heatmap_chart(heatmap: Heatmap, pool: NumberPool) -> Chart | None:
    """Return the chart, None where there are no ranks or no steps."""
    ranks, steps = heatmap.ranks[:_ROWS], heatmap.steps
    if not ranks or not steps:
        return None
    columns = slowest_columns(heatmap.step_s, len(steps), max(1, _CELLS // len(ranks)))
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
    named = [("step time", heatmap.step_s), ("wait", heatmap.wait_s)]
    return named + list(heatmap.phases_s.items())


def _flat(rows: list[Numbers], columns: list[int]) -> Numbers:
    return [row[at] for row in rows for at in columns]


def _summary(heatmap: Heatmap) -> str:
    cells = [
        (value, rank, step)
        for rank, row in zip(heatmap.ranks, heatmap.step_s, strict=False)
        for step, value in zip(heatmap.steps, row, strict=False)
        if value is not None
    ]
    said = []
    if cells:
        value, rank, step = max(cells)
        said.append(
            f"The longest step is {formatting.seconds(value)} (rank {rank}, step {step}); "
            f"the median is {formatting.seconds(median(cell[0] for cell in cells))}."
        )
    return " ".join([*said, *_wait_summary(heatmap)])


def _wait_summary(heatmap: Heatmap) -> list[str]:
    waits = []
    for rank, row in zip(heatmap.ranks, heatmap.wait_s, strict=False):
        known = [value for value in row if value is not None]
        if known:
            waits.append((mean(known), rank))
    if len(waits) < 2:
        return []
    (least, waits_least), (most, waits_most) = min(waits), max(waits)
    lowest = f"{formatting.seconds(least)} (rank {waits_least})"
    highest = f"{formatting.seconds(most)} (rank {waits_most})"
    return [f"Mean wait per step runs from {lowest} to {highest}."]


def _note(heatmap: Heatmap, columns: list[int]) -> str:
    notes = []
    if len(heatmap.ranks) > _ROWS:
        notes.append(f"The first {_ROWS} of {len(heatmap.ranks):,} ranks are drawn.")
    if len(heatmap.steps) > len(columns):
        shown = formatting.number(len(heatmap.steps) / len(columns), 2)
        notes.append(f"Of every {shown} steps the slowest is drawn.")
    return " ".join(notes)
