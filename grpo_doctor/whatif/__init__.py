"""What would the step time be if: a run's own steps, replayed with a change."""

from __future__ import annotations

from grpo_doctor.whatif.prediction import (
    Effect,
    Ground,
    NoModel,
    Prediction,
    Replay,
    Settings,
    WhatIf,
    Withheld,
    ground,
    predict,
    together,
)
from grpo_doctor.whatif.settings import predict_settings
from grpo_doctor.whatif.step_model import (
    Add,
    AsOthers,
    Change,
    Edit,
    Hide,
    Overlap,
    StepModel,
    build_model,
    every,
    halved,
    replay,
    without,
)

__all__ = [
    "Add",
    "AsOthers",
    "Change",
    "Edit",
    "Effect",
    "Ground",
    "Hide",
    "NoModel",
    "Overlap",
    "Prediction",
    "Replay",
    "Settings",
    "StepModel",
    "WhatIf",
    "Withheld",
    "build_model",
    "every",
    "ground",
    "halved",
    "predict",
    "predict_settings",
    "replay",
    "together",
    "without",
]
