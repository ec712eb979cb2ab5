"""The document of `compare --json`, read and checked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from grpo_doctor_reports.compare.model import (
    Change,
    Comparison,
    Curve,
    FindingChange,
    FixResult,
    Metric,
    Phase,
    Setting,
    Side,
)
from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.run_facts import any_value
from grpo_doctor_reports.text_safety import PROSE_LIMIT

SCHEMA: Final = 1
_MOST: Final = 500  # rows of any table


def read_comparison(document: Mapping[str, Any]) -> Comparison:
    """Return the document as typed values; every string in it is cleaned.

    Raises:
        DocumentError: it has another schema, or a part of the wrong type.
    """
    root = Node(document)
    if root.number("schema") != SCHEMA:
        raise DocumentError(
            f"This comparison has schema {root.number('schema')}; this version draws schema "
            f"{SCHEMA}. Use the grpo-doctor that wrote it, or a newer one."
        )
    tool, steps = root.node("tool"), root.node("steps")
    return Comparison(
        tool=tool.text("name") or "grpo-doctor",
        version=tool.text("version"),
        verdict=root.text("verdict", PROSE_LIMIT),
        comparable=root.flag("comparable"),
        cautions=root.texts("cautions", PROSE_LIMIT)[:_MOST],
        before=_side(root.node("before")),
        after=_side(root.node("after")),
        step_time=_change(root.node("step_time")),
        per_token=_change(root.node("per_token")),
        phases=[_phase(node) for node in root.nodes("phases")[:_MOST]],
        settings=[_setting(node) for node in root.nodes("settings")[:_MOST]],
        metrics=[_metric(node) for node in root.nodes("metrics")[:_MOST]],
        fixes=[_fix(node) for node in root.nodes("fixes")[:_MOST]],
        findings=[_finding(node) for node in root.nodes("findings")[:_MOST]],
        curves=(_curve(steps.node("before")), _curve(steps.node("after"))),
    )


def _side(node: Node) -> Side:
    framework = f"{node.text('framework')} {node.text('framework_version')}".strip()
    return Side(
        source=node.text("source"),
        run=node.text("id"),
        framework=framework,
        command=shlex.join(node.texts("command")),
        world_size=node.integer("world_size"),
        gpus=node.text("gpus"),
        steps=node.integer("steps"),
        steps_total=node.integer("steps_total"),
        step_time_s=node.number("step_time_s"),
        tokens_per_step=node.number("tokens_per_step"),
    )


def _change(node: Node) -> Change:
    return Change(
        before=node.number("before"),
        after=node.number("after"),
        change_pct=node.number("change_pct"),
        low_pct=node.number("low_pct"),
        high_pct=node.number("high_pct"),
        verdict=node.text("verdict"),
        note=node.text("note", PROSE_LIMIT),
    )


def _phase(node: Node) -> Phase:
    return Phase(
        phase=node.text("phase"),
        before_s=node.number("before_s") or 0.0,
        after_s=node.number("after_s") or 0.0,
        change_s=node.number("change_s") or 0.0,
        low_s=node.number("low_s"),
        high_s=node.number("high_s"),
        verdict=node.text("verdict"),
    )


def _setting(node: Node) -> Setting:
    return Setting(
        name=node.text("name"),
        known=bool(node.text("knob")),
        before=any_value(node.members.get("before")),
        after=any_value(node.members.get("after")),
    )


def _metric(node: Node) -> Metric:
    return Metric(
        name=node.text("name"),
        state=node.text("state"),
        before=node.number("before"),
        after=node.number("after"),
        note=node.text("note", PROSE_LIMIT),
    )


def _fix(node: Node) -> FixResult:
    knobs = node.node("knobs")
    settings = []
    for name in knobs.members:
        pair = knobs.members[name]
        old, new = pair if isinstance(pair, list) and len(pair) == 2 else (None, pair)
        before, after = (any_value(value) or "not set" for value in (old, new))
        settings.append(f"{any_value(name)}: {before} to {after}")
    inside = node.members.get("inside")
    return FixResult(
        settings=settings[:_MOST],
        findings=node.texts("findings"),
        low_pct=node.number("predicted_low_pct"),
        mid_pct=node.number("predicted_mid_pct"),
        high_pct=node.number("predicted_high_pct"),
        measured_pct=node.number("measured_pct"),
        inside=inside if isinstance(inside, bool) else None,
        note=node.text("note", PROSE_LIMIT),
        unpredicted=node.text("unpredicted", PROSE_LIMIT),
    )


def _finding(node: Node) -> FindingChange:
    return FindingChange(
        id=node.text("id"),
        title=node.text("title", PROSE_LIMIT),
        state=node.text("state"),
        severity=node.text("severity"),
    )


def _curve(node: Node) -> Curve:
    pairs = zip(node.numbers("step"), node.numbers("seconds"), strict=False)
    known = [(step, s) for step, s in pairs if step is not None and s is not None]
    return Curve([step for step, _ in known], [s for _, s in known])
