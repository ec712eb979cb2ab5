"""Small jobs of which it is known what is wrong with them, to see whether the rules say so here."""

from __future__ import annotations

from grpo_doctor.selftest.cases import BUSY_MACHINE, CASES, Case, Outcome, judge

__all__ = ["BUSY_MACHINE", "CASES", "Case", "Outcome", "judge"]
