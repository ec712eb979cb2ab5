"""Read the facts of the run; settings and versions as text."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec.structs import replace

from grpo_doctor_reports.schema.compare import Side
from grpo_doctor_reports.schema.report import RunEntry
from grpo_doctor_reports.text_safety import clean


def read_run(part: RunEntry) -> RunEntry:
    """Return the `run` part of the document, its ranks in order."""
    ranks = sorted(part.ranks, key=lambda rank: rank.rank)
    return replace(part, ranks=ranks, exit=replace(part.exit, state=part.exit.state or "unknown"))


def framework_words(run: RunEntry | Side) -> str:
    """Return `ms-swift 4.6.0`; empty where no known framework was seen."""
    known = run.framework if run.framework != "unknown" else ""
    return f"{known} {run.framework_version or ''}".strip() if known else ""


def any_value(value: object) -> str:
    """Return a setting's value as safe text: strings as they are, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return f"{value:g}"
    return clean(json.dumps(value, ensure_ascii=False, default=str))


def setting_pairs(members: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return names and values as text, by name."""
    return sorted((name, any_value(value)) for name, value in members.items())
