"""Reasoning over what NCCL's RAS answers: who launched less, who was lost, who reported errors."""

from __future__ import annotations

from grpo_doctor.hang.dumps.ras.judge import Failure, Findings, Laggard, judge
from grpo_doctor.hang.dumps.ras.reading import Heard, hear

__all__ = ["Failure", "Findings", "Heard", "Laggard", "hear", "judge"]
