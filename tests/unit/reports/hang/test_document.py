"""How much of a verdict is read: what a short text stands for is bounded."""

from __future__ import annotations

import pytest

from grpo_doctor_reports.hang.words import Wait, waits_of
from grpo_doctor_reports.schema.attach import read_verdict

MOST_OF_ONE_END = 4_096
MOST_ENDS = 262_144


def read(*edges: tuple[str, str]) -> list[Wait]:
    waits = [{"source": a, "target": b, "kind": "p2p", "label": "recv"} for a, b in edges]
    return waits_of(read_verdict({"schema": 1, "graph": {"edges": waits}}).graph)


@pytest.mark.parametrize(("end", "ranks"), [
    ("rank:3", [3]),
    ("rank:0-2", [0, 1, 2]),
    ("rank:7,0-1,5-5", [7, 0, 1, 5]),
    ("rank:0-4095", list(range(4_096))),
    ("rank:5-9999", list(range(5, 4_101))),
    ("rank:1,10-9999", [1, *range(10, 4_105)]),
])  # fmt: skip
def test_an_end_has_each_rank_that_it_names_up_to_a_limit(end: str, ranks: list[int]) -> None:
    (wait,) = read((end, "pid:7"))
    assert wait.sources == tuple(f"rank:{rank}" for rank in ranks)
    assert wait == Wait(wait.sources, ("pid:7",), "p2p", "recv")


@pytest.mark.parametrize("end", ["pid:7", "file:/data/lock", "rank:1-", "rank:", "ranks:1"])
def test_any_other_end_is_one_point(end: str) -> None:
    (wait,) = read((end, "rank:0"))
    assert wait.sources == (end,)


def test_waits_are_read_as_long_as_their_ends_are_not_too_many() -> None:
    many = (f"rank:0-{MOST_OF_ONE_END - 2}", "pid:7")
    fit = MOST_ENDS // MOST_OF_ONE_END
    assert len(read(*[many] * fit)) == fit
    assert len(read(*[many] * fit, ("pid:1", "pid:2"))) == fit
    assert len(read(*[many] * (fit - 1), ("pid:1", "pid:2"))) == fit
