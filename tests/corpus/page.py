"""What the confidence is worth, for benchmarks/results/accuracy.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from grpo_doctor.hang.decision.confidence import ALL, Table
from tests.corpus.fit import COMMAND, Settings, brier
from tests.corpus.verdicts import WHOLE, Case

_BINS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.001)
_HEAD = """\
# Confidence

Written by `{command}`. The confidence of a verdict is the share of verdicts like it that had the
right ranks and the right class, among the recorded jobs of `tests/corpus`: {whole} verdicts on jobs
seen whole, and {worse} on the same jobs seen worse (without stacks, with every other rank's stack,
without recordings, from one of two hosts). Kinds of roots with few cases lean on the wider kind (as
if that were {lean:g} more cases), and the widest on what was right of {first} unforeseen faults at
first sight ({first_share:.0%}). Below, each verdict's confidence is from a table that was made
without its whole family of jobs.
"""


def page(predictions: Sequence[tuple[Case, float]], table: Table, settings: Settings) -> str:
    """The section, as Markdown."""
    whole = [prediction for prediction in predictions if prediction[0].visibility == WHOLE]
    worse = [prediction for prediction in predictions if prediction[0].visibility != WHOLE]
    head = _HEAD.format(
        command=COMMAND, whole=len(whole), worse=len(worse), lean=settings.lean,
        first=table.first_sight.cases, first_share=table.first_sight.probability,
    )  # fmt: skip
    parts = [head, _scores(whole, worse), _reliability(whole, worse), _kinds(table)]
    return "\n".join([*parts, _evidence(table)])


def expected_error(predictions: Sequence[tuple[Case, float]]) -> float:
    """The mean distance of confidence and share right, over the bins (ECE)."""
    return sum(
        abs(sum(sure for _, sure in in_bin) - sum(case.right for case, _ in in_bin))
        for in_bin in map(list, _binned(predictions).values())
    ) / len(predictions)


def _scores(whole: Sequence[tuple[Case, float]], worse: Sequence[tuple[Case, float]]) -> str:
    rows = [
        [name, str(len(group)), _percent(_right(group)), _percent(_sure(group)),
         f"{brier(group):.3f}", f"{expected_error(group):.3f}"]
        for name, group in (("seen whole", whole), ("seen worse", worse))
        if group
    ]  # fmt: skip
    titles = ["", "verdicts", "right", "mean confidence", "Brier score", "calibration error"]
    return _table(titles, rows)


def _reliability(whole: Sequence[tuple[Case, float]], worse: Sequence[tuple[Case, float]]) -> str:
    of_whole, of_worse = _binned(whole), _binned(worse)
    rows = []
    for low, high in pairwise(_BINS):
        cells = [f"{low:.2f} to {min(high, 1.0):.2f}"]
        for bins in (of_whole, of_worse):
            in_bin = bins[low]
            some = bool(in_bin)
            cells += [str(len(in_bin))] + [
                _percent(share(in_bin)) if some else "-" for share in (_sure, _right)
            ]
        rows.append(cells)
    titles = ["confidence", "seen whole", "said", "right", "seen worse", "said", "right"]
    return _table(titles, rows)


def _kinds(table: Table) -> str:
    rows = [
        [name, str(cell.cases), str(cell.right), f"{cell.probability:.3f}"]
        for name, cell in sorted(table.kinds.items(), key=lambda kind: (kind[0] != ALL, kind[0]))
    ]
    return "## Kinds of roots\n\n" + _table(["kind", "cases", "right", "confidence"], rows)


def _evidence(table: Table) -> str:
    rows = [
        [name, value, str(weight.cases), str(weight.right), f"{weight.log_odds:+.2f}"]
        for name, values in table.evidence.items()
        for value, weight in sorted(values.items())
    ]
    note = (
        "*Proven* are roots that nothing can move any more, *open* all others; what is not listed "
        "moves nothing.\n\n"
    )
    titles = ["evidence", "value", "cases", "right", "moves the log odds by"]
    return "## What the other evidence moves\n\n" + note + _table(titles, rows)


def _binned(
    predictions: Sequence[tuple[Case, float]],
) -> dict[float, list[tuple[Case, float]]]:
    return {
        low: [prediction for prediction in predictions if low <= prediction[1] < high]
        for low, high in pairwise(_BINS)
    }


def _right(predictions: Sequence[tuple[Case, float]]) -> float:
    return sum(case.right for case, _ in predictions) / len(predictions)


def _sure(predictions: Sequence[tuple[Case, float]]) -> float:
    return sum(sure for _, sure in predictions) / len(predictions)


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
