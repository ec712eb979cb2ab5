"""What a change of settings would bring: each knob's own local law, replayed together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_doctor.analysis import Analysis
from grpo_doctor.whatif.model import StepModel
from grpo_doctor.whatif.replay import Prediction, Withheld


def predict_settings(
    analysis: Analysis, model: StepModel, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Prediction | Withheld:
    """Replays a run with some knobs set to other values.

    Args:
        analysis: the run.
        model: its steps.
        before: the knobs' values in this run, settings or defaults; None where unknown.
        after: the values to try, by canonical name.
    """
    del analysis, model, before
    return Withheld(f"no law says what {', '.join(after)} does to this run's time")
