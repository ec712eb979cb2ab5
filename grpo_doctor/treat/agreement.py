"""Whether losses and rewards of paired trials agree, as `compare` judges metrics."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.compare.metrics import IDENTICAL, NEEDS_POINTS, PARTED, SAME, metric_changes
from grpo_doctor.trace.model import Trace
from grpo_doctor.treat.decision import ALGORITHM
from grpo_doctor_reports.schema.compare import MetricChange

_LOSS, _REWARDS = "loss", ("reward", "score")


def disagreement(pairs: Sequence[tuple[Trace, Trace]], math: str) -> str:
    """Return why a change may not be kept: what parts in most pairs, or that nothing was logged.

    Metrics of two runs without the change that are bit-identical are judged by the bits of their
    first steps, unless the change says that it rounds otherwise. Not by those of all steps: a
    second pass over the data may draw other samples (ms-swift 4.6 with loader processes). Of a
    change of the algorithm the loss is another quantity, so that rewards alone count.

    Args:
        pairs: the recordings before and after; at least 2.
        math: what the change says of the math.
    """
    (first, _), (again, _) = pairs[:2]
    exact = {row.name for row in metric_changes(first, again) if row.state == IDENTICAL}
    parted: list[str] = []
    judged = 0
    for before, after in pairs:
        rows = [
            row
            for row in metric_changes(
                before,
                after,
                bits=lambda name: NEEDS_POINTS * (math == "same-math" and name in exact),
            )
            if _counts(row.name, math)
        ]
        judged += any(row.state in (IDENTICAL, SAME, PARTED) for row in rows)
        parted += [_words(row) for row in rows if row.state == PARTED][:1]
    if judged < len(pairs):
        return "too few losses and rewards were logged to show that the math is the same"
    return parted[0] if 2 * len(parted) > len(pairs) else ""


def _counts(name: str, math: str) -> bool:
    name = name.lower()
    return any(word in name for word in _REWARDS) or (_LOSS in name and math != ALGORITHM)


def _words(row: MetricChange) -> str:
    return f"{row.name} diverges at step {row.step} ({row.note})"
