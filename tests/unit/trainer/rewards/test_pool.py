"""Completions that wait for a function are handed out in the order in which they ended."""

from __future__ import annotations

from grpo_doctor_trainer.rewards.pool import Pending
from grpo_doctor_trainer.rewards.registry import CallStyle


def pending_of(columns: tuple[str, ...] | None) -> Pending:
    pending = Pending("mine", CallStyle(columns, is_async=False, per_completion=True))
    assert not pending
    pending.add({"completions": ["c", "a"], "level": [3, 1]}, [2, 0])
    pending.add({"completions": ["b"], "level": [2]}, [1])
    return pending


def test_all_that_wait_are_taken_in_their_order() -> None:
    pending = pending_of(None)
    assert len(pending) == 3
    call = pending.take_all()
    assert (call.name, call.indices, call.completions) == ("mine", (2, 0, 1), 3)
    assert call.columns == {"completions": ["c", "a", "b"], "level": [3, 1, 2]}
    assert not pending
    assert pending.take_all().indices == ()


def test_a_function_gets_the_columns_that_it_takes() -> None:
    assert pending_of(("level", "missing")).take_all().columns == {"level": [3, 1, 2]}
    assert pending_of(()).take_all().columns == {}
