"""Entry times of flight recorders as instants: each once, on the trace's clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_doctor.trace.load import load
from grpo_doctor.trace.model import Kind, Trace
from tests.recording import write_recording

UNIX_NS = 1_763_680_000_000_000_000


def look(*entries: dict[str, Any]) -> str:
    clocks = {"monotonic_ns": 9_000_000_000, "unix_ns": UNIX_NS + 9_000_000_000}
    return json.dumps({**clocks, "dump": {"entries": list(entries), "version": "2.10"}})


def entry(record: int, sequence: int, at_ns: int, **more: Any) -> dict[str, Any]:
    return {
        "record_id": record, "collective_seq_id": sequence, "profiling_name": "nccl:all_reduce",
        "process_group": ["0", "default_pg"], "time_created_ns": UNIX_NS + at_ns, **more,
    }  # fmt: skip


def recorded(tmp_path: Path, *lines: str) -> Trace:
    write_recording(tmp_path, 0, [("train", 5_000_000_000, 9_000_000_000)])
    (tmp_path / "ranks" / "00000.flight.jsonl").write_text("\n".join(lines) + "\n")
    return load(tmp_path)


def entered(trace: Trace) -> list[tuple[str, str, float, int]]:
    spans = trace.spans
    start_ns = int(spans.start_ns[spans.kind == Kind.SPAN][0])
    return [
        (
            trace.names[spans.name[row]],
            trace.args[spans.args[row]]["group"],
            float(spans.value[row]),
            int(spans.start_ns[row]) - start_ns,
        )
        for row in (spans.kind == Kind.INSTANT).nonzero()[0]
    ]


def test_times_are_on_the_clock_of_the_spans(tmp_path: Path) -> None:
    trace = recorded(tmp_path, look(entry(0, 7, 6_000_000_000)))
    assert entered(trace) == [("nccl:all_reduce", "default_pg", 7, 1_000_000_000)]


def test_looks_overlap_and_each_entry_counts_once(tmp_path: Path) -> None:
    first, second, third = (entry(n, n + 1, 6_000_000_000 + n) for n in range(3))
    trace = recorded(tmp_path, look(first, second), look(second, third))
    assert [sequence for _, _, sequence, _ in entered(trace)] == [1, 2, 3]


def test_groups_of_a_part_of_the_ranks_go_by_their_name(tmp_path: Path) -> None:
    trace = recorded(tmp_path, look(entry(0, 1, 6_000_000_000, process_group=["7", "undefined"])))
    assert entered(trace)[0][1] == "7"


def test_damage_and_calls_between_two_ranks_are_left_out(tmp_path: Path) -> None:
    sound = look(entry(0, 1, 6_000_000_000), entry(1, 2, 6_500_000_000, is_p2p=True))
    strange = look(entry(2, 3, -UNIX_NS), {"record_id": "four"})
    trace = recorded(tmp_path, sound[:-5], "\x00\xff", sound, strange, look(entry(9, 9, 10**20)))
    assert [sequence for _, _, sequence, _ in entered(trace)] == [1]
