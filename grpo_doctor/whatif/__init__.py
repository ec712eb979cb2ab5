"""What would the step time be if: a run's own steps, replayed with a change."""

from __future__ import annotations

from grpo_doctor.whatif.edits import Edit, without
from grpo_doctor.whatif.model import StepModel, build_model
from grpo_doctor.whatif.replay import Prediction, Withheld, law_error, predict, replay
from grpo_doctor.whatif.settings import predict_settings

__all__ = [
    "Edit",
    "Prediction",
    "StepModel",
    "Withheld",
    "build_model",
    "law_error",
    "predict",
    "predict_settings",
    "replay",
    "without",
]
