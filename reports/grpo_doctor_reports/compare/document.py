"""The document of `compare --json`, read into what page and terminal draw."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from grpo_doctor_reports import schema
from grpo_doctor_reports.compare.model import Comparison, Curve, FixResult, Setting, Side
from grpo_doctor_reports.run_facts import any_value
from grpo_doctor_reports.schema import compare as parts
from grpo_doctor_reports.schema.part import Numbers

_MOST: Final = 500  # rows of any table


def read_comparison(document: schema.AnyDocument) -> Comparison:
    """Return the document as typed values; every string in it is cleaned.

    Raises:
        DocumentError: it has another schema, or a part of the wrong type.
    """
    whole = schema.read(
        document, parts.ComparisonDocument, parts.SCHEMA, "grpo-doctor compare --json"
    )
    return Comparison(
        tool=whole.tool.name or "grpo-doctor",
        version=whole.tool.version,
        verdict=whole.verdict,
        comparable=whole.comparable,
        cautions=whole.cautions[:_MOST],
        before=_side(whole.before),
        after=_side(whole.after),
        step_time=whole.step_time,
        per_token=whole.per_token,
        phases=whole.phases[:_MOST],
        settings=[_setting(part) for part in whole.settings[:_MOST]],
        metrics=whole.metrics[:_MOST],
        fixes=[_fix(part) for part in whole.fixes[:_MOST]],
        findings=whole.findings[:_MOST],
        curves=(_curve(whole.steps.get("before", {})), _curve(whole.steps.get("after", {}))),
    )


def _side(part: parts.Side) -> Side:
    return Side(
        source=part.source,
        run=part.id,
        framework=f"{part.framework} {part.framework_version or ''}".strip(),
        command=shlex.join(part.command),
        world_size=part.world_size,
        gpus=part.gpus,
        steps=part.steps,
        steps_total=part.steps_total,
        step_time_s=part.step_time_s,
        tokens_per_step=part.tokens_per_step,
    )


def _setting(part: parts.SettingChange) -> Setting:
    return Setting(
        name=part.name,
        before=any_value(part.before),
        after=any_value(part.after),
    )


def _fix(part: parts.FixResult) -> FixResult:
    return FixResult(
        findings=part.findings,
        low_pct=part.predicted_low_pct,
        mid_pct=part.predicted_mid_pct,
        high_pct=part.predicted_high_pct,
        measured_pct=part.measured_pct,
        inside=part.inside,
        note=part.note,
        unpredicted=part.unpredicted or "",
    )


def _curve(columns: Mapping[str, Numbers]) -> Curve:
    pairs = zip(columns.get("step", []), columns.get("seconds", []), strict=False)
    known = [(step, s) for step, s in pairs if step is not None and s is not None]
    return Curve([step for step, _ in known], [s for _, s in known])
