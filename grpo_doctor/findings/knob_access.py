"""How rules read a run's settings, and what they ask of the models about others."""

from __future__ import annotations

import math
from typing import Any

from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Change, NoModel, Prediction, Withheld

# Above it more processes would take the CPU from each other and from the ranks.
MAX_HOST_CPU_PCT = 85.0


def by_model(
    view: RunView, otherwise: Prediction | Withheld, **after: Any
) -> Prediction | Withheld:
    """What a model predicts of these settings (dots as `__`); `otherwise` where there is none."""
    outcome = view.what_if(**after)
    return otherwise if isinstance(outcome, NoModel) else outcome


def edits_of(outcome: Prediction | Withheld) -> tuple[Change, ...]:
    """The edits behind an outcome; none where nothing was predicted."""
    return outcome.edits if isinstance(outcome, Prediction) else ()


def number(view: RunView, name: str) -> float | None:
    """A setting that must be a number; None where it is something else, such as `auto`."""
    value = view.knob(name)
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return value if known and math.isfinite(value) else None


def whole(view: RunView, name: str) -> int | None:
    """A setting that must be a whole number; None where it is something else."""
    value = number(view, name)
    return value if isinstance(value, int) else None
