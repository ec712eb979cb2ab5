"""Made-up documents to look at while working on the renderers, and to test them with."""

from __future__ import annotations

from grpo_doctor_reports.demo.documents import DEMOS, demo_document, minimal_document

__all__ = ["DEMOS", "demo_document", "minimal_document"]
