"""Draw the document that `grpo-doctor report --json` prints: as a web page, as terminal text.

What draws is imported when it is first asked for: the types of the documents, in `schema`, are
also for programs that draw nothing, and jinja2 and rich take a tenth of a second to import.

All that take a document raise `DocumentError` where it has another schema or a part of it is
damaged; pages raise `AssetError` where a file of theirs is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_doctor_reports.errors import AssetError, DocumentError, ReportError
from grpo_doctor_reports.schema.report import SCHEMA as SCHEMA_VERSION

if TYPE_CHECKING:
    from grpo_doctor_reports.page import render_html
    from grpo_doctor_reports.terminal import render_text

__all__ = [
    "SCHEMA_VERSION",
    "AssetError",
    "DocumentError",
    "ReportError",
    "render_html",
    "render_text",
]


def __getattr__(name: str) -> Any:
    if name == "render_html":
        from grpo_doctor_reports.page import render_html  # noqa: PLC0415

        return render_html
    if name == "render_text":
        from grpo_doctor_reports.terminal import render_text  # noqa: PLC0415

        return render_text
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
