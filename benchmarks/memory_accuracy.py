"""How near the memory ledger comes to measured jobs, beside other estimators.

`python -m benchmarks.memory_accuracy --points FILE [--write FILE] [--unreadable]`
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.memory_fit import held_out, predicted_bytes
from benchmarks.memory_peers import PEERS
from benchmarks.memory_points import Point, read
from benchmarks.memory_tools import alloc
from grpo_doctor.markdown import wrapped
from grpo_doctor.memory.estimate import ledger_of
from grpo_doctor.memory.ledger import Ledger
from grpo_doctor.memory.setup import Setup

BEGIN = "<!-- section memory -->"
HEADING = """## How near the memory estimate comes

Written by `python -m benchmarks.memory_accuracy --points FILE --alloc PROGRAM --write FILE`. The
points are what people reported of their jobs: logs, tables, comments in scripts, issues, many
rounded to whole GiB. *Held out* is with the calibrated factors fitted on the points of all other
sources, a source being a repository at a commit or an address. A measurement of 93% of its card or
more counts as *fits* alone: there PyTorch's allocator fills the card. The other estimators are
their published formulas; none of them knows LoRA, logits or the engine beside the trainer. `alloc
ghost` of the alloc package 0.0.16 was run itself (`--alloc PROGRAM`), told a model's size, width,
batch and length, which is all it takes. `arena memory` of agilerl-arena 1.29.0 was tried and is not
here: it reads AgileRL's own manifests and sizes LoRA with asynchronous rollouts alone
("rollout_mode='colocated' is not sized"), which is none of these records.

First answer, with factors from the literature and before any record was looked at closely:
training 13% / 50% of 206 points, GRPO 34% / 45% of 5, outcomes 50 of 67. Since then formulas were
corrected where points showed what they lacked (buffers of losses, fused kernels of Megatron, eager
attention, lengths of unpacked rows, prompts' logits, rollouts by transformers, scales of quantized
weights), and 25 records more were set aside (rerankers and embeddings of unstated lengths, GRPO
without any length or accumulation, unsloth, FP8, which `check` refuses too), so even the held-out
numbers say less than a new source would. Which jobs are furthest off, and what is missing there:
[memory.md](../../docs/memory.md#where-it-is-furthest-off).
"""
Errors = dict[str, float]
Peers = Mapping[str, Callable[[Setup], float]]


def main() -> int:
    """Scores the points of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--points", type=Path, required=True, help="records, one JSON object a line"
    )
    parser.add_argument("--alloc", type=Path, help="the program of the alloc package, run too")
    parser.add_argument("--write", type=Path, help="the document whose section is replaced")
    parser.add_argument("--unreadable", action="store_true", help="each record that can't be read")
    parser.add_argument("--worst", type=int, default=0, help="the N points furthest off")
    arguments = parser.parse_args()
    points, unreadable = read(arguments.points)
    ledgers = {point.identity: ledger_of(point.setup) for point in points}
    peers = {**PEERS, **({"alloc ghost": alloc(arguments.alloc)} if arguments.alloc else {})}
    text = report(points, ledgers, unreadable, peers)
    print(text)
    if arguments.unreadable:
        print("\n".join(f"{identity}: {reason}" for identity, reason in unreadable))
    for line in _worst(points, ledgers, arguments.worst):
        print(line)
    if arguments.write:
        replace_section(arguments.write, text)
    return 0


def report(
    points: Sequence[Point],
    ledgers: dict[str, Ledger],
    unreadable: Sequence[tuple[str, str]],
    estimators: Peers = PEERS,
) -> str:
    """The section of the document."""
    measured = [point for point in points if point.measured_bytes]
    others = held_out(points)
    columns: dict[str, Errors] = {
        "ours": {p.identity: _off(p, predicted_bytes(p, ledgers[p.identity])) for p in measured},
        "ours, held out": {
            p.identity: _off(p, predicted_bytes(p, others[p.identity])) for p in measured
        },
        **{
            name: {p.identity: _off(p, formula(p.setup)) for p in measured}
            for name, formula in estimators.items()
        },
    }
    total = len(points) + len(unreadable)
    counts = f"{len(points)} of {total} records can be scored, {len(measured)} by bytes"
    sections = [
        f"{counts}; cells are the median error and the 90th percentile.",
        _table("", measured, columns, lambda point: point.group),
        _table("framework", measured, columns, _framework),
        _table("method", measured, columns, lambda point: point.setup.method),
        _table("quality", measured, columns, lambda point: str(point.record["quality"])),
        _table("source", measured, columns, lambda point: point.source, fewest=5),
        _outcomes(points, ledgers, estimators),
        _intervals(measured, others),
        _reasons(unreadable),
    ]
    return "\n\n".join(sections)


def _off(point: Point, predicted: float) -> float:
    assert point.measured_bytes
    return predicted / point.measured_bytes - 1


def _framework(point: Point) -> str:
    return str(point.record["config"].get("framework"))


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
            cells = [cell(errors[p.identity] for p in members) for errors in columns.values()]
            rows.append(f"| {name} | {len(members)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def cell(errors: Iterable[float], digits: int = 0) -> str:
    """The median error and the 90th percentile."""
    sizes = sorted(100 * abs(value) for value in errors)
    if not sizes:
        return "-"
    high = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
    return f"{statistics.median(sizes):.{digits}f}% / {high:.{digits}f}%"


def _outcomes(points: Sequence[Point], ledgers: dict[str, Ledger], estimators: Peers) -> str:
    """How often `fits` and OOM were right, and what each estimator would have said."""
    judged = [point for point in points if point.fitted is not None]
    ours = sum(_runs(ledgers[p.identity]) == p.fitted for p in judged)
    sure = [p.identity for p in judged if p.fitted is False and ledgers[p.identity].state == "fits"]
    peers = {
        name: sum((formula(p.setup) <= p.setup.card_bytes) == p.fitted for p in judged)
        for name, formula in estimators.items()
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
        ledger = ledgers[point.identity]
        outside = ledger.train.peak.bytes - predicted_bytes(point, ledger)
        interval = ledger.train.peak.interval
        inside += interval.low <= point.measured_bytes + outside <= interval.high
    return (
        f"The 80% interval, held out, holds {100 * inside / max(1, len(points)):.0f}% of the "
        "measurements."
    )


def _reasons(unreadable: Sequence[tuple[str, str]]) -> str:
    reasons = Counter(reason.split("; near")[0].split(": ")[0] for _, reason in unreadable)
    lines = [f"- {count}: {reason}" for reason, count in reasons.most_common(12)]
    return "Not scored, and why (`--unreadable` lists all):\n" + "\n".join(lines)


def _worst(points: Sequence[Point], ledgers: dict[str, Ledger], count: int) -> list[str]:
    measured = [point for point in points if point.measured_bytes]
    gib = float(1 << 30)

    def off(point: Point) -> float:
        return _off(point, predicted_bytes(point, ledgers[point.identity]))

    return [
        f"{point.identity} {point.setup.model.name} {(point.measured_bytes or 0) / gib:.1f} GiB: "
        f"{100 * off(point):+.0f}%"
        for point in sorted(measured, key=lambda point: -abs(off(point)))[:count]
    ]


def print_or_write(about: str | None, table: Callable[[], str], begin: str, heading: str) -> int:
    """Prints a table, and with --write puts it into a document; a benchmark's whole `main`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", type=Path, help="the document whose section is replaced")
    arguments = parser.parse_args()
    text = table()
    print(text)
    if arguments.write:
        replace_section(arguments.write, text, begin, heading)
    return 0


def replace_section(path: Path, text: str, begin: str = BEGIN, heading: str = HEADING) -> None:
    """Puts the text under the section's heading; what others wrote stays."""
    document = path.read_text("utf-8")
    section = wrapped(f"{begin}\n\n{heading}\n{text}\n")
    if begin in document:
        tail = re.compile(re.escape(begin) + r".*?(?=\n<!-- section |\Z)", re.DOTALL)
        document = tail.sub(lambda _: section, document)
    else:
        document = document.rstrip("\n") + "\n\n" + section
    path.write_text(document, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
