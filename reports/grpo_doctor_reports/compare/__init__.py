"""Two runs side by side, as a page and as terminal text."""

from __future__ import annotations

from grpo_doctor_reports.compare.page import comparison_page
from grpo_doctor_reports.compare.terminal import comparison_text

__all__ = ["comparison_page", "comparison_text"]
