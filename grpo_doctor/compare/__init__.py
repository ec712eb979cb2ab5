"""Two runs side by side: what got faster, by how much, how sure, and what else changed."""

from __future__ import annotations

from grpo_doctor.compare.assemble import compare
from grpo_doctor_reports.schema.compare import SCHEMA, ComparisonDocument

__all__ = ["SCHEMA", "ComparisonDocument", "compare"]
