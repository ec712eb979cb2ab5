"""Learning curves: one small chart per training metric, reward and loss first."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart, line_values
from grpo_doctor_reports.model import Curve
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.thinning import thin_line

_CURVES_SHOWN = 24
_POINTS = 250
_FLAT_NAMED = 16
_FIRST = ("reward", "loss", "reward_std", "kl", "entropy", "completion_length", "grad_norm")


def curves_chart(curves: list[Curve], pool: NumberPool) -> Chart | None:
    """Return the small multiples, None without any metric."""
    if not curves:
        return None
    ordered = sorted(curves, key=lambda curve: _rank(curve.name))
    moving = [curve for curve in ordered if not _is_flat(curve)]
    flat = [curve for curve in ordered if _is_flat(curve)] if moving else []
    shown = (moving or ordered)[:_CURVES_SHOWN]
    return Chart(
        data={"curves": [_curve(curve, pool) for curve in shown]},
        summary="; ".join(_summary(curve) for curve in shown[:3]) + ".",
        note=_note(len(ordered) - len(flat) - len(shown), flat),
    )


def _is_flat(curve: Curve) -> bool:
    known = [value for value in curve.values if value is not None]
    return len(known) > 1 and min(known) == max(known) and curve.name not in _FIRST


def _note(left_out: int, flat: list[Curve]) -> str:
    said = [f"{formatting.count(left_out, 'more metric')} not drawn."] if left_out else []
    if flat:
        values = [f"{c.name} {formatting.number(_last(c))}" for c in flat[:_FLAT_NAMED]]
        more = f" and {len(flat) - _FLAT_NAMED} more" if len(flat) > _FLAT_NAMED else ""
        said.append(f"The same throughout: {', '.join(values)}{more}.")
    return " ".join(said)


def _last(curve: Curve) -> float | None:
    return next((value for value in reversed(curve.values) if value is not None), None)


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name


def _curve(curve: Curve, pool: NumberPool) -> dict[str, object]:
    line = thin_line([float(step) for step in curve.steps], curve.values, _POINTS)
    known = [value for value in curve.values if value is not None]
    return {
        "label": curve.name,
        "last": formatting.number(known[-1]),
        "x": pool.add_integers([int(step) for step in line.times if step is not None]),
        **line_values(line, pool),
    }


def _summary(curve: Curve) -> str:
    known = [value for value in curve.values if value is not None]
    return f"{curve.name} goes from {formatting.number(known[0])} to {formatting.number(known[-1])}"
