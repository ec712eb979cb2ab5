"""How near the memory estimate comes to measured jobs, next to other estimators.

`python -m benchmarks.memory_accuracy [--write]`
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.memory_points import Point, held_out, predicted_bytes, read
from grpo_doctor.memory.estimate import ledger_of
from grpo_doctor.memory.ledger import Ledger
from grpo_doctor.memory.setup import GIB, Setup, share_of
from tests.pages import put_section

PAGE = Path(__file__).with_name("results") / "accuracy.md"
Errors = dict[str, float]
_WORST = 5


def print_or_write(about: str | None, sections: Mapping[str, Callable[[], str]]) -> int:
    """Prints tables, with --write into the page's sections of these names; a whole `main`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("only", nargs="*", help=f"{', '.join(sections)}: these sections alone")
    parser.add_argument("--write", action="store_true", help=f"the sections of {PAGE.name}")
    arguments = parser.parse_args()
    for name in arguments.only or sections:
        text = sections[name]()
        print(text)
        if arguments.write:
            put_section(PAGE, name, text)
    return 0


def report() -> str:
    """How near the estimate comes to the points, and which are furthest off."""
    points, unscored = read()
    ledgers = {point.id: ledger_of(point.setup) for point in points}
    measured = [point for point in points if point.measured_bytes]
    others = held_out(points)
    columns: dict[str, Errors] = {
        "ours": {p.id: _off(p, predicted_bytes(p, ledgers[p.id])) for p in measured},
        "ours, held out": {p.id: _off(p, predicted_bytes(p, others[p.id])) for p in measured},
        **{name: {p.id: _off(p, said(p)) for p in measured} for name, said in PEERS.items()},
    }
    total = len(points) + len(unscored)
    counts = f"{len(points)} of {total} records can be scored, {len(measured)} by bytes"
    sections = [
        f"{counts}; cells are the median error and the 90th percentile.",
        _table("", measured, columns, lambda point: point.group),
        _table("framework", measured, columns, lambda point: point.framework),
        _table("method", measured, columns, lambda point: point.setup.method),
        _table("quality", measured, columns, lambda point: point.quality),
        _table("source", measured, columns, lambda point: point.source, fewest=5),
        _outcomes(points, ledgers),
        _intervals(measured, others),
        _worst(measured, ledgers),
        _reasons(unscored),
    ]
    return "\n\n".join(sections)


def _off(point: Point, predicted: float) -> float:
    assert point.measured_bytes
    return predicted / point.measured_bytes - 1


def _table(
    title: str,
    points: Sequence[Point],
    columns: dict[str, Errors],
    key: Callable[[Point], str],
    fewest: int = 1,
) -> str:
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        groups[key(point)].append(point)
    rows = [f"| {title} | points | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for name, members in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        if len(members) >= fewest:
            cells = [cell(errors[p.id] for p in members) for errors in columns.values()]
            rows.append(f"| {name} | {len(members)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def cell(errors: Iterable[float], digits: int = 0) -> str:
    """The median error and the 90th percentile."""
    sizes = sorted(100 * abs(value) for value in errors)
    if not sizes:
        return "-"
    high = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
    return f"{statistics.median(sizes):.{digits}f}% / {high:.{digits}f}%"


def _outcomes(points: Sequence[Point], ledgers: dict[str, Ledger]) -> str:
    """How often `fits` and OOM were right, and what each estimator would have said."""
    judged = [point for point in points if point.fitted is not None]
    ours = sum(_runs(ledgers[p.id]) == p.fitted for p in judged)
    sure = [p.id for p in judged if p.fitted is False and ledgers[p.id].state == "fits"]
    peers = {
        name: sum((said(p) <= p.setup.card_bytes) == p.fitted for p in judged)
        for name, said in PEERS.items()
    }
    beside = ", ".join(f"{name} {100 * right / len(judged):.0f}%" for name, right in peers.items())
    return (
        f"Whether it fits, of {len(judged)} recorded outcomes: ours right in "
        f"{100 * ours / len(judged):.0f}%, {beside}. `fits` was said of {len(sure)} jobs that ran "
        f"out of memory ({', '.join(sure) or 'none'})."
    )


def _runs(ledger: Ledger) -> bool:
    return not ledger.train.refusals and ledger.train.needed_share <= 1


def _intervals(points: Sequence[Point], ledgers: dict[str, Ledger]) -> str:
    inside = 0
    for point in points:
        assert point.measured_bytes
        ledger = ledgers[point.id]
        outside = ledger.train.peak.bytes - predicted_bytes(point, ledger)
        interval = ledger.train.peak.interval
        inside += interval.low <= point.measured_bytes + outside <= interval.high
    return (
        f"The 80% interval, held out, holds {100 * inside / max(1, len(points)):.0f}% of the "
        "measurements."
    )


def _reasons(unscored: Sequence[str]) -> str:
    reasons = Counter(reason.split("; near")[0].split(": ")[0] for reason in unscored)
    lines = [f"- {count}: {reason}" for reason, count in reasons.most_common(12)]
    return "Not scored, and why:\n" + "\n".join(lines)


def _worst(points: Sequence[Point], ledgers: dict[str, Ledger]) -> str:
    off = {p.id: _off(p, predicted_bytes(p, ledgers[p.id])) for p in points}
    rows = [
        f"- {p.id}, {p.setup.model.name}: {100 * off[p.id]:+.0f}% of {p.gib:.1f} GiB"
        for p in sorted(points, key=lambda p: -abs(off[p.id]))[:_WORST]
    ]
    return "Furthest off:\n" + "\n".join(rows)


def deepspeed(setup: Setup) -> float:
    """`estimate_zero2_model_states_mem_needs` and `estimate_zero3_...`: model states alone."""
    parameters = setup.model.parameters
    ranks = max(1, setup.ranks)
    if setup.zero_stage == 3 or setup.engine == "fsdp":
        largest = max(setup.model.embedding_parameters, setup.model.layer_parameters)
        if setup.zero_offload_optimizer:
            return 4 * largest + 2 * parameters / ranks
        return 4 * largest + 18 * parameters / ranks
    if setup.zero_offload_optimizer:
        return 2 * parameters
    return 2 * parameters + 18 * parameters / ranks


def accelerate(setup: Setup) -> float:
    """`accelerate estimate-memory`: four times the weights for Adam, or the weights alone."""
    weights = 2 * setup.model.parameters
    return weights if setup.method == "lora" else 4 * weights


def transformer_math(setup: Setup) -> float:
    """blog.eleuther.ai/transformer-math: states by ZeRO stage, and activations by recomputation."""
    share = share_of(setup)
    parameters = share.trained + share.trained_experts + share.frozen
    ranks = setup.data_parallel
    stage = 3 if setup.engine == "fsdp" else setup.zero_stage
    weights = 2 * parameters / (ranks if stage == 3 else 1)
    gradients = 2 * parameters / (ranks if stage >= 2 else 1)
    optimizer = 12 * parameters / (ranks if stage >= 1 else 1)
    model = setup.model
    tokens = setup.micro_batch * (setup.prompt_tokens + setup.completion_tokens)
    row = tokens / setup.micro_batch
    per_layer = tokens * model.hidden / setup.tensor_parallel
    if setup.recompute == "full":
        activations = 2 * per_layer * model.layers
    elif setup.recompute == "selective":
        activations = 34 * per_layer * model.layers
    else:
        activations = (34 + 5 * model.heads * row / model.hidden) * per_layer * model.layers
    return weights + gradients + optimizer + activations


# What other estimators say, by their published formulas. None of them knows LoRA, so all parameters
# count as trained; accelerate's alone gets the benefit of its row for loading there.
PEERS: Mapping[str, Callable[[Point], float]] = {
    "DeepSpeed": lambda point: deepspeed(point.setup),
    "accelerate": lambda point: accelerate(point.setup),
    "transformer-math": lambda point: transformer_math(point.setup),
    "alloc ghost": lambda point: point.alloc_gib * GIB,
}


if __name__ == "__main__":
    sys.exit(print_or_write(__doc__, {"memory": report}))
