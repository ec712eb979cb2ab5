"""Reasoning over what NCCL's RAS answers: who launched less, who was lost, who reported errors."""

from __future__ import annotations

from grpo_doctor.hang.dumps.ras.judge import Failure, Findings, LateRank, judge
from grpo_doctor.hang.dumps.ras.reading import RasReport, hear

__all__ = ["Failure", "Findings", "LateRank", "RasReport", "hear", "judge"]
