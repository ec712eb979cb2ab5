"""The document of `compare --json`, read and bounded."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from grpo_doctor_reports import schema
from grpo_doctor_reports.schema.compare import SCHEMA, ComparisonDocument

_MOST_ROWS: Final = 500  # of any table
_TABLES: Final = ("cautions", "phases", "settings", "metrics", "fixes", "findings")


def read_comparison(document: schema.AnyDocument) -> ComparisonDocument:
    """Return the document as typed values; every string in it is cleaned.

    Raises:
        DocumentError: it has another schema, or a part of the wrong type.
    """
    comparison = schema.read(document, ComparisonDocument, SCHEMA, "grpo-doctor compare --json")
    bounded = {name: getattr(comparison, name)[:_MOST_ROWS] for name in _TABLES}
    return replace(comparison, **bounded)
