"""Evaluations during training in words and, for a terminal, as one line of blocks."""

from __future__ import annotations

from statistics import fmean

from grpo_doctor_reports import formatting
from grpo_doctor_reports.model import Curve, Evaluation
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.thinning import bin_edges

_BLOCKS = "▁▂▃▄▅▆▇█"
_EVALUATED = "eval_"


def trained_metric(evaluation: Evaluation) -> str:
    """Return what the same metric is called in training: `reward` for `eval_reward`."""
    return evaluation.curve.name.removeprefix(_EVALUATED)


def best_words(evaluation: Evaluation) -> str:
    """Return `best 0.47 after step 30, saved`: with a checkpoint."""
    saved = ", saved" if evaluation.best_saved else ""
    value = formatting.number(evaluation.best)
    return f"best {value} after step {evaluation.best_step}{saved}"


def sparkline(curve: Curve, width: int) -> str:
    """Return a curve in at most `width` blocks, each the mean of its neighbours."""
    values = [value for value in curve.values if value is not None]
    means = [
        fmean(values[start:end]) for start, end in bin_edges(len(values), min(width, len(values)))
    ]
    low, span = min(means), max(means) - min(means)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * (mean - low) / span) if span else 0] for mean in means)


def from_to(values: Numbers) -> tuple[str, str]:
    """Return the first and the last known value."""
    numbers = [value for value in values if value is not None]
    return formatting.number(numbers[0]), formatting.number(numbers[-1])
