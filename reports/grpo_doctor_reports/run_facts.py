"""Read the facts of the run: command, versions, knobs, devices, ranks, what was lost."""

from __future__ import annotations

import json
from collections.abc import Mapping

from grpo_doctor_reports.model import Run
from grpo_doctor_reports.schema.report import RunEntry
from grpo_doctor_reports.text_safety import clean


def read_run(part: RunEntry) -> Run:
    """Return the `run` part of the document."""
    return Run(
        id=part.id,
        source=part.source,
        command=part.command,
        framework=part.framework,
        framework_version=part.framework_version or "",
        model=part.model,
        parallelism=part.parallelism,
        hosts=part.hosts,
        world_size=part.world_size,
        started_unix_ns=part.started_unix_ns,
        duration_s=part.duration_s,
        exit_state=part.exit.state or "unknown",
        exit_code=part.exit.code,
        exit_signal=part.exit.signal or "",
        knobs=_pairs(part.knobs),
        versions=_pairs(part.versions),
        gpus=part.gpus,
        ranks=sorted(part.ranks, key=lambda rank: rank.rank),
        loss=part.loss,
        notes=part.notes,
        clock=part.clock,
    )


def any_value(value: object) -> str:
    """Return a setting's value as safe text: strings as they are, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return f"{value:g}"
    return clean(json.dumps(value, ensure_ascii=False, default=str))


def _pairs(members: Mapping[str, object]) -> list[tuple[str, str]]:
    return sorted((name, any_value(value)) for name, value in members.items())
