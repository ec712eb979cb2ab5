"""Completions that wait for a function are handed out in the order in which they ended."""

from __future__ import annotations

from grpo_doctor_trainer.rewards.pending import Pending
from grpo_doctor_trainer.rewards.registry import CallStyle


def pending_of(columns: tuple[str, ...] | None) -> Pending:
    pending = Pending("mine", CallStyle(columns, is_async=False, per_completion=True))
    assert not pending
    pending.add({"completions": ["c", "a"], "level": [3, 1]}, [2, 0])
    pending.add({"completions": ["b"], "level": [2]}, [1])
    return pending


def test_those_that_wait_longest_are_taken_first() -> None:
    pending = pending_of(None)
    assert len(pending) == 3
    call = pending.take(2)
    assert (call.name, call.indices, call.completions) == ("mine", (2, 0), 2)
    assert call.columns == {"completions": ["c", "a"], "level": [3, 1]}
    assert len(pending) == 1
    remaining = pending.take_all()
    assert (remaining.indices, remaining.columns) == ((1,), {"completions": ["b"], "level": [2]})
    assert not pending
    assert pending.take(5).indices == ()


def test_a_function_gets_the_columns_that_it_takes() -> None:
    assert pending_of(("level", "missing")).take_all().columns == {"level": [3, 1, 2]}
    assert pending_of(()).take_all().columns == {}
