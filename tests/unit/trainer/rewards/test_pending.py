"""Completions that wait for a function are handed out in the order in which they ended."""

from __future__ import annotations

from grpo_doctor_trainer.rewards.pending import Pending
from grpo_doctor_trainer.rewards.registry import CallStyle


def waiting(columns: tuple[str, ...] | None) -> Pending:
    found = Pending("mine", CallStyle(columns, is_async=False, per_completion=True))
    assert not found
    found.add({"completions": ["c", "a"], "level": [3, 1]}, [2, 0])
    found.add({"completions": ["b"], "level": [2]}, [1])
    return found


def test_those_that_wait_longest_are_taken_first() -> None:
    pending = waiting(None)
    assert len(pending) == 3
    call = pending.take(2)
    assert (call.name, call.indices, call.completions) == ("mine", (2, 0), 2)
    assert call.columns == {"completions": ["c", "a"], "level": [3, 1]}
    assert len(pending) == 1
    rest = pending.take_all()
    assert (rest.indices, rest.columns) == ((1,), {"completions": ["b"], "level": [2]})
    assert not pending
    assert pending.take(5).indices == ()


def test_a_function_gets_the_columns_that_it_takes() -> None:
    assert waiting(("level", "missing")).take_all().columns == {"level": [3, 1, 2]}
    assert waiting(()).take_all().columns == {}
