"""Read the parts that become charts: heatmap, learning curves."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from grpo_doctor_reports.model import Curve, Evaluation
from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.schema import views as parts
from grpo_doctor_reports.schema.part import Numbers

Item = TypeVar("Item")


def read_heatmap(part: parts.Heatmap) -> parts.Heatmap:
    """Return the seconds by rank and step; rows and columns that are not there read as None."""
    height, width = len(part.ranks), len(part.steps)
    phases = {name: matrix(rows, height, width) for name, rows in part.phase_seconds.items()}
    waits = {name: matrix(rows, height, width) for name, rows in part.phase_wait_seconds.items()}
    return replace(
        part,
        step_seconds=matrix(part.step_seconds, height, width),
        wait_seconds=matrix(part.wait_seconds, height, width),
        phase_seconds={name: phases[name] for name in sorted(phases, key=order_of)},
        phase_wait_seconds={name: rows for name, rows in waits.items() if rows},
        steps_total=max(width, part.steps_total),
    )


def read_curves(part: parts.MetricsView) -> list[Curve]:
    """Return one curve per metric; it is empty where no step has a number."""
    curves = [
        Curve(
            name,
            part.steps,
            fitted(values, len(part.steps)),
            part.steps_without_number.get(name, 0),
        )
        for name, values in part.series.items()
    ]
    known = [curve for curve in curves if any(value is not None for value in curve.values)]
    nowhere = part.steps_without_number.keys() - {curve.name for curve in known}
    return [*known, *(Curve(n, [], [], part.steps_without_number[n]) for n in sorted(nowhere))]


def read_evaluation(part: parts.Evaluation | None) -> Evaluation | None:
    """Return how evaluations went; None where there is none, or its best step is not among them."""
    if part is None or part.best_step is None:
        return None
    curve = Curve(part.metric, part.steps, fitted(part.values, len(part.steps)))
    best = dict(zip(curve.steps, curve.values, strict=True)).get(part.best_step)
    return None if best is None else Evaluation(curve, part.best_step, best, part.best_saved)


def matrix(rows: list[Numbers], height: int, width: int) -> list[Numbers]:
    """Return rows of this height and width, None where nothing is; [] of none."""
    if not rows:
        return []
    present = [fitted(row, width) for row in rows[:height]]
    return present + [[None] * width for _ in range(height - len(present))]


def fitted(values: list[Item], length: int, missing: Any = None) -> list[Item]:
    """Return exactly this many values; `missing` stands for what is not there."""
    return values[:length] + [missing] * (length - len(values))
