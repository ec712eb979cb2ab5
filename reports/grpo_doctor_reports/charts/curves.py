"""Learning curves: one small chart per training metric, reward and loss first.

Evaluations are drawn over the metric that they evaluate, where training logged it too.
"""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.figure import (
    Chart,
    Column,
    Figure,
    axis,
    column,
    figure,
    line,
    plain,
    thin_line,
    token,
)
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Evaluation, MetricsView

_CURVES_SHOWN = 24
_POINTS = 250
_FLAT_NAMED = 16
_HEIGHT_PX = 130
_FIRST = ("reward", "loss", "reward_std", "kl", "entropy", "completion_length", "grad_norm")
_EVALUATED = "eval_"


def curves_chart(metrics: MetricsView, evaluation: Evaluation | None = None) -> Chart | None:
    """Return the small multiples, None without any metric."""
    series = {name: values for name, values in metrics.series.items() if known(values)}
    if not series:
        return None
    trained = trained_metric(evaluation) if evaluation and best_words(evaluation) else ""
    over = evaluation if trained in series else None
    ordered = sorted(series.keys() - {over.metric if over else ""}, key=_rank)
    moving = [name for name in ordered if not _is_flat(name, series[name])]
    flat = [name for name in ordered if _is_flat(name, series[name])] if moving else []
    shown = (moving or ordered)[:_CURVES_SHOWN]
    summaries = [_summary(name, metrics) for name in shown[:3]]
    if evaluation and (best := best_words(evaluation)):
        first, last = from_to(evaluation.values)
        summaries.append(f"evaluation goes from {first} to {last}, {best}")
    overlaid = {name: over if name == trained else None for name in shown}
    left_out = len(ordered) - len(flat) - len(shown)
    return Chart(
        figures={name: _curve(name, metrics, points) for name, points in overlaid.items()},
        summary="; ".join(summaries) + ".",
        note=_note(left_out, flat, metrics),
        facts={"curves": [_words(name, metrics, points) for name, points in overlaid.items()]},
    )


def known(values: Numbers) -> list[float]:
    """Return the values that there are."""
    return [value for value in values if value is not None]


def from_to(values: Numbers) -> tuple[str, str]:
    """Return the first and the last known value."""
    numbers = known(values)
    return formatting.number(numbers[0]), formatting.number(numbers[-1])


def trained_metric(evaluation: Evaluation) -> str:
    """Return what the same metric is called in training: `reward` for `eval_reward`."""
    return evaluation.metric.removeprefix(_EVALUATED)


def best_words(evaluation: Evaluation) -> str:
    """Return `best 0.47 after step 30, saved`: with a checkpoint; empty where none is known."""
    best = dict(zip(evaluation.steps, evaluation.values, strict=True)).get(
        evaluation.best_step or 0
    )
    if evaluation.best_step is None or best is None:
        return ""
    saved = ", saved" if evaluation.best_saved else ""
    return f"best {formatting.number(best)} after step {evaluation.best_step}{saved}"


def _is_flat(name: str, values: Numbers) -> bool:
    numbers = known(values)
    return min(numbers) == max(numbers) and name not in _FIRST


def _note(left_out: int, flat: list[str], metrics: MetricsView) -> str:
    lost = metrics.steps_without_number
    drawn = [name for name, values in metrics.series.items() if name in lost and known(values)]
    words = [
        f"{name} at {formatting.count(lost[name], 'step')}"
        for name in (*drawn, *sorted(lost.keys() - set(drawn)))
    ]
    notes = [f"NaN or infinite: {formatting.listed(words, _FLAT_NAMED)}."] if words else []
    notes += [f"{formatting.count(left_out, 'more metric')} not drawn."] if left_out else []
    if flat:
        values = [f"{name} {from_to(metrics.series[name])[1]}" for name in flat]
        notes.append(f"One value each: {formatting.listed(values, _FLAT_NAMED)}.")
    return " ".join(notes)


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name


def _words(name: str, metrics: MetricsView, evaluation: Evaluation | None) -> Figure:
    lost = " (NaN elsewhere)" if name in metrics.steps_without_number else ""
    words: Figure = {"label": name, "last": from_to(metrics.series[name])[1] + lost}
    if evaluation:
        last = from_to(evaluation.values)[1]
        words["evaluation"] = {"last": last, "words": best_words(evaluation)}
    return words


def _curve(name: str, metrics: MetricsView, evaluation: Evaluation | None) -> Figure:
    thin = thin_line([float(step) for step in metrics.steps], metrics.series[name], _POINTS)
    color = token("link")
    traces = thin.traces(
        Column(thin.times), color, spread=0.16, connectgaps=True, marker={"color": color},
        mode="markers" if len(known(thin.values)) == 1 else "lines", meta=[plain(name)],
        hovertemplate="step %{x}<br>%{meta[0]} %{y:,.3~r}<extra></extra>",
    )  # fmt: skip
    first, last = metrics.steps[0] - 0.5, metrics.steps[-1] + 0.5
    return figure(
        [*traces, *([_evaluations(evaluation)] if evaluation else [])],
        _HEIGHT_PX,
        hovermode="x",
        margin={"l": 40, "r": 6, "t": 6, "b": 22},
        xaxis=axis(nticks=5, showgrid=False, tickformat="d", fixedrange=False,
                   range=[first, last], automargin=True),
        yaxis=axis(nticks=4, automargin=True),
        meta={"axis": "step"},
    )  # fmt: skip


def _evaluations(evaluation: Evaluation) -> Figure:
    """Points over the curve of training, the best of them larger and with a rim."""
    best = [step == evaluation.best_step for step in evaluation.steps]
    color = token("transfer")
    marker = {
        "color": color, "size": [11 if is_best else 6 for is_best in best],
        "symbol": ["star" if is_best else "circle" for is_best in best],
        "line": {"color": token("ink"), "width": [int(is_best) for is_best in best]},
    }  # fmt: skip
    return line(
        Column(list(evaluation.steps)), column(evaluation.values), color, mode="lines+markers",
        marker=marker, customdata=[", the best" if is_best else "" for is_best in best],
        hovertemplate="after step %{x}<br>evaluation %{y:,.3~r}%{customdata}<extra></extra>",
    )  # fmt: skip


def _summary(name: str, metrics: MetricsView) -> str:
    first, last = from_to(metrics.series[name])
    lost = metrics.steps_without_number.get(name)
    without = f" (no number at {formatting.count(lost, 'step')})" if lost else ""
    return f"{name} goes from {first} to {last}{without}"
