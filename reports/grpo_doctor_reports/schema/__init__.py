"""The documents that grpo-doctor writes and draws, as types.

Each is written by `grpo_doctor`, printed by `--json`, and the only input of its renderers. A
version (`schema`) changes when a member changes its meaning or goes; new members do not change it.
"""

from grpo_doctor_reports.schema.compare import ComparisonDocument
from grpo_doctor_reports.schema.part import AnyDocument, Part, read
from grpo_doctor_reports.schema.report import ReportDocument

__all__ = ["AnyDocument", "ComparisonDocument", "Part", "ReportDocument", "read"]
