"""Draws what `grpo-doctor attach --json` prints: as a web page, as terminal text."""

from __future__ import annotations

from grpo_doctor_reports.hang.page import hang_page
from grpo_doctor_reports.hang.terminal import hang_text

__all__ = ["hang_page", "hang_text"]
