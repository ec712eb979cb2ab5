"""Two runs side by side: what got faster, by how much, how sure, and what else changed."""

from __future__ import annotations

from grpo_doctor.compare.assemble import compare
from grpo_doctor.compare.schema import SCHEMA, Comparison

__all__ = ["SCHEMA", "Comparison", "compare"]
