"""Draw the document that `grpo-doctor report --json` prints: as a web page, as terminal text."""

from __future__ import annotations

from grpo_doctor_reports.errors import AssetError, DocumentError, ReportError
from grpo_doctor_reports.page import render_html
from grpo_doctor_reports.schema.report import SCHEMA as SCHEMA_VERSION
from grpo_doctor_reports.terminal import render_text

__all__ = [
    "SCHEMA_VERSION",
    "AssetError",
    "DocumentError",
    "ReportError",
    "render_html",
    "render_text",
]
