"""What would the step time be if: a run's own steps, replayed with a change."""

from __future__ import annotations

from grpo_doctor.whatif.edits import Add, AsOthers, Change, Edit, Hide, Overlap, every, without
from grpo_doctor.whatif.model import StepModel, build_model
from grpo_doctor.whatif.prediction import (
    Ground,
    Prediction,
    Withheld,
    ground,
    law_error,
    predict,
)
from grpo_doctor.whatif.replay import replay
from grpo_doctor.whatif.sets import together
from grpo_doctor.whatif.settings import predict_settings

__all__ = [
    "Add",
    "AsOthers",
    "Change",
    "Edit",
    "Ground",
    "Hide",
    "Overlap",
    "Prediction",
    "StepModel",
    "Withheld",
    "build_model",
    "every",
    "ground",
    "law_error",
    "predict",
    "predict_settings",
    "replay",
    "together",
    "without",
]
