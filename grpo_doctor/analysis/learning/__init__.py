"""Training metrics as curves: one name for all frameworks, and what a curve does over the steps."""

from __future__ import annotations

from grpo_doctor.analysis.learning.curves import RATE, Curve, components, curve, highest_rate
from grpo_doctor.analysis.learning.names import METRICS, spellings

__all__ = ["METRICS", "RATE", "Curve", "components", "curve", "highest_rate", "spellings"]
