"""Read where the time of a step went: accounting, steps, critical paths, collectives, clocks."""

from __future__ import annotations

from typing import Final

from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.text_safety import PROSE_LIMIT
from grpo_doctor_reports.time_model import (
    Accounting,
    Clock,
    Collective,
    CriticalPath,
    Kinds,
    Segment,
    StepTime,
)

KINDS: Final = ("work", "wait", "transfer", "idle")
_STEPS: Final = 1_000
_SEGMENTS: Final = 400  # a path of more pieces than this is not read piece by piece
_NUMBERS: Final = 10_000


def read_kinds(node: Node) -> Kinds:
    """Return a phase's seconds by kind; what no kind names is work."""
    total = left = max(0.0, node.number("seconds") or 0.0)
    parts = []
    for kind in ("wait", "transfer", "idle"):
        parts.append(min(left, max(0.0, node.number(f"{kind}_seconds") or 0.0)))
        left -= parts[-1]
    wait, transfer, idle = parts
    return Kinds(total, left, wait, transfer, idle)


def read_accounting(summary: Node) -> Accounting:
    """Return what the summary says about kinds of time and about steps set apart."""
    shares, apart = summary.node("accounting"), summary.node("set_apart")
    steady = summary.node("steady")
    first = steady.number("first_step")
    known = [(kind, shares.number(kind)) for kind in KINDS]
    lists = [(name, apart.integers(key)[:_NUMBERS]) for key, name in apart.named()]
    return Accounting(
        shares=[(kind, max(0.0, share)) for kind, share in known if share is not None],
        steady_from=None if first is None else int(first),
        steady_reason=steady.text("reason", PROSE_LIMIT),
        set_apart=[(name, numbers) for name, numbers in lists if numbers],
    )


def read_clock(node: Node) -> Clock | None:
    """Return how well the clocks agree, None where nothing was said."""
    if not node:
        return None
    return Clock(
        max_error_ms=node.number("max_error_ms"),
        methods=node.texts("methods"),
        text=node.text("text", PROSE_LIMIT),
    )


def read_steps(nodes: list[Node]) -> list[StepTime]:
    """Return the steps by the time at which they begin; one without times is left out."""
    steps = [step for node in nodes if (step := _read_step(node)) is not None]
    return sorted(steps, key=lambda step: (step.start_s, step.number))[:_STEPS]


def _read_step(node: Node) -> StepTime | None:
    start, end = node.number("start_s"), node.number("end_s")
    if start is None or end is None or end < start:
        return None
    taken, rank = node.number("seconds"), node.number("slowest_rank")
    return StepTime(
        number=node.integer("number"),
        start_s=start,
        end_s=end,
        seconds=end - start if taken is None else max(0.0, taken),
        kind=node.text("kind") or "steady",
        slowest_rank=None if rank is None else int(rank),
    )


def read_paths(views: Node) -> list[CriticalPath]:
    """Return the critical paths that there are: of the median step, then of the worst."""
    pairs = [("median", "critical_path"), ("worst", "critical_path_worst")]
    read = [_read_path(which, views.node(key)) for which, key in pairs]
    return [path for path in read if path.segments]


def _read_path(which: str, node: Node) -> CriticalPath:
    nodes = node.nodes("segments")
    begins = min((start for n in nodes if (start := n.number("start_s")) is not None), default=0.0)
    segments = [_read_segment(item, begins) for item in nodes[:_SEGMENTS]]
    end = max((segment.start_s + segment.seconds for segment in segments), default=0.0)
    return CriticalPath(
        which=which,
        step=node.integer("step"),
        seconds=max(node.number("seconds") or 0.0, end),
        segments=[segment for segment in segments if segment.seconds > 0],
        left_out=max(0, len(nodes) - _SEGMENTS),
    )


def _read_segment(node: Node, begins_s: float) -> Segment:
    start = max(0.0, (node.number("start_s") or 0.0) - begins_s)
    end = max(start, (node.number("end_s") or 0.0) - begins_s)
    rank, lane = node.number("rank"), node.text("lane")
    kind = node.text("kind")
    return Segment(
        lane=f"{lane} {int(rank)}".strip() if rank is not None else lane or "unknown",
        phase=node.text("phase"),
        name=node.text("name"),
        start_s=start,
        seconds=end - start,
        kind=kind if kind in KINDS else "work",
    )


def read_collectives(nodes: list[Node]) -> list[Collective]:
    """Return the collectives, the longest first."""
    return sorted((_read_collective(node) for node in nodes), key=lambda one: -one.seconds)


def _read_collective(node: Node) -> Collective:
    last = node.number("last_rank")
    return Collective(
        group=node.text("group"),
        name=node.text("name"),
        phase=node.text("phase"),
        count=node.number("count") or 0.0,
        seconds=max(0.0, node.number("seconds") or 0.0),
        skew_s=max(0.0, node.number("skew_seconds") or 0.0),
        transfer_s=max(0.0, node.number("transfer_seconds") or 0.0),
        last_rank=None if last is None else int(last),
    )
