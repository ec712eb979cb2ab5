"""What is wrong with a run, why, and what to change: rules over the analysis of a trace."""

from __future__ import annotations

from grpo_doctor.findings.engine import Results, run_rules
from grpo_doctor.findings.rule import NotRun
from grpo_doctor.findings.view import RunView

__all__ = ["NotRun", "Results", "RunView", "run_rules"]
