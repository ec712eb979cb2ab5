"""Made-up documents to look at while working on the renderers, and to test them with."""

from __future__ import annotations

from grpo_doctor_reports.demo.documents import DEMOS
from grpo_doctor_reports.demo.hostile import ATTACKS

__all__ = ["ATTACKS", "DEMOS"]
