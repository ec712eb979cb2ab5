"""Read the facts of the run: command, versions, knobs, devices, ranks, what was lost."""

from __future__ import annotations

import json

from grpo_doctor_reports.accounting import read_clock
from grpo_doctor_reports.model import Gpu, Loss, OpenSpan, Rank, Run
from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.text_safety import PROSE_LIMIT, clean


def read_run(node: Node) -> Run:
    """Return the `run` part of the document."""
    exit_node = node.node("exit")
    code = exit_node.number("code")
    return Run(
        id=node.text("id"),
        source=node.text("source"),
        command=node.texts("command", PROSE_LIMIT),
        framework=node.text("framework"),
        framework_version=node.text("framework_version"),
        hosts=node.texts("hosts"),
        world_size=node.integer("world_size"),
        started_unix_ns=node.integer("started_unix_ns"),
        duration_s=node.number("duration_s"),
        exit_state=exit_node.text("state") or "unknown",
        exit_code=None if code is None else int(code),
        exit_signal=exit_node.text("signal"),
        knobs=_pairs(node.node("knobs")),
        versions=_pairs(node.node("versions")),
        gpus=[_read_gpu(item) for item in node.nodes("gpus")],
        ranks=sorted((_read_rank(item) for item in node.nodes("ranks")), key=lambda r: r.rank),
        loss=_read_loss(node.node("loss")),
        notes=node.texts("notes", PROSE_LIMIT),
        clock=read_clock(node.node("clock")),
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


def _pairs(node: Node) -> list[tuple[str, str]]:
    return sorted((name, any_value(node.members[key])) for key, name in node.named())


def _read_gpu(node: Node) -> Gpu:
    index = node.number("index")
    return Gpu(
        uuid=node.text("uuid"),
        name=node.text("name"),
        index=None if index is None else int(index),
        host=node.text("host"),
        memory_total_bytes=node.number("memory_total_bytes"),
    )


def _read_rank(node: Node) -> Rank:
    pid = node.number("pid")
    return Rank(
        rank=node.integer("rank"),
        host=node.text("host"),
        pid=None if pid is None else int(pid),
        state=node.text("state"),
        open=[OpenSpan(span.text("name"), span.number("open_s")) for span in node.nodes("open")],
        clock_error_ns=node.number("clock_error_ns"),
    )


def _read_loss(node: Node) -> Loss:
    return Loss(
        dropped_events=node.integer("dropped_events"),
        missing_ranks=node.integers("missing_ranks"),
        truncated=node.flag("truncated"),
        notes=node.texts("notes", PROSE_LIMIT),
    )
