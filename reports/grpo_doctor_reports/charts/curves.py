"""Learning curves: one small chart per training metric, reward and loss first.

Evaluations are drawn over the metric that they evaluate, where training logged it too.
"""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart, line_values
from grpo_doctor_reports.evaluation import best_words, from_to, trained_metric
from grpo_doctor_reports.model import Curve, Evaluation
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.thinning import thin_line

_CURVES_SHOWN = 24
_POINTS = 250
_FLAT_NAMED = 16
_FIRST = ("reward", "loss", "reward_std", "kl", "entropy", "completion_length", "grad_norm")


def curves_chart(
    curves: list[Curve], pool: NumberPool, evaluation: Evaluation | None = None
) -> Chart | None:
    """Return the small multiples, None without any metric."""
    lost = [curve for curve in curves if curve.lost]
    curves = [curve for curve in curves if curve.values]
    if not curves:
        return None
    over = _drawn_over(curves, evaluation)
    evaluated = evaluation.curve.name if evaluation and over else ""
    trained = [curve for curve in curves if curve.name != evaluated]
    ordered = sorted(trained, key=lambda curve: _rank(curve.name))
    moving = [curve for curve in ordered if not _is_flat(curve)]
    flat = [curve for curve in ordered if _is_flat(curve)] if moving else []
    shown = (moving or ordered)[:_CURVES_SHOWN]
    return Chart(
        data={
            "curves": [
                _curve(curve, pool, evaluation if curve.name == over else None) for curve in shown
            ]
        },
        summary="; ".join(_summaries(shown, evaluation)) + ".",
        note=_note(len(ordered) - len(flat) - len(shown), flat, lost),
    )


def _drawn_over(curves: list[Curve], evaluation: Evaluation | None) -> str:
    """The metric of training that evaluations are drawn over; empty for none."""
    trained = trained_metric(evaluation) if evaluation else ""
    return trained if trained in {curve.name for curve in curves} else ""


def _evaluated(evaluation: Evaluation, pool: NumberPool) -> dict[str, object]:
    curve = evaluation.curve
    return {
        "x": pool.add_integers(curve.steps),
        "v": pool.add(curve.values),
        "best": evaluation.best_step,
        "last": from_to(curve.values)[1],
        "words": best_words(evaluation),
    }


def _summaries(shown: list[Curve], evaluation: Evaluation | None) -> list[str]:
    summaries = [_summary(curve) for curve in shown[:3]]
    if evaluation is None:
        return summaries
    first, last = from_to(evaluation.curve.values)
    return [*summaries, f"evaluation goes from {first} to {last}, {best_words(evaluation)}"]


def _is_flat(curve: Curve) -> bool:
    values = [value for value in curve.values if value is not None]
    return len(values) > 1 and min(values) == max(values) and curve.name not in _FIRST


def _note(left_out: int, flat: list[Curve], lost: list[Curve]) -> str:
    words = [f"{curve.name} at {formatting.count(curve.lost, 'step')}" for curve in lost]
    notes = [f"NaN or infinite: {formatting.listed(words, _FLAT_NAMED)}."] if words else []
    notes += [f"{formatting.count(left_out, 'more metric')} not drawn."] if left_out else []
    if flat:
        values = [f"{curve.name} {from_to(curve.values)[1]}" for curve in flat]
        notes.append(f"The same throughout: {formatting.listed(values, _FLAT_NAMED)}.")
    return " ".join(notes)


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name


def _curve(curve: Curve, pool: NumberPool, evaluation: Evaluation | None) -> dict[str, object]:
    line = thin_line([float(step) for step in curve.steps], curve.values, _POINTS)
    return {
        "label": curve.name,
        "last": from_to(curve.values)[1] + (" (NaN elsewhere)" if curve.lost else ""),
        "x": pool.add_integers([int(step) for step in line.times if step is not None]),
        **line_values(line, pool),
        **({"evaluation": _evaluated(evaluation, pool)} if evaluation else {}),
    }


def _summary(curve: Curve) -> str:
    first, last = from_to(curve.values)
    lost = f" (no number at {formatting.count(curve.lost, 'step')})" if curve.lost else ""
    return f"{curve.name} goes from {first} to {last}{lost}"
