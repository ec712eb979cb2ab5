"""Reasoning over what NCCL's RAS answers: who launched less, who was lost, who reported errors."""

from __future__ import annotations

from grpo_doctor.hang.dumps.ras.answers import RasReport, hear
from grpo_doctor.hang.dumps.ras.judge import Failure, Findings, LateRank, judge_ras

__all__ = ["Failure", "Findings", "LateRank", "RasReport", "hear", "judge_ras"]
