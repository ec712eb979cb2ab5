"""Made-up documents to look at while working on the renderers, and to test them with."""

from __future__ import annotations

from tests.demo_reports.documents import DEMOS
from tests.demo_reports.hostile import ATTACKS

__all__ = ["ATTACKS", "DEMOS"]
