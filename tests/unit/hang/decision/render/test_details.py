"""Whether the job can be saved is said of what stands, and of nothing else."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.catalogue import CLASSES, Class
from grpo_doctor.hang.decision.render.details import with_outlook
from grpo_doctor.hang.verdict import State, Verdict


def verdict(state: State, cause: str) -> Verdict:
    return Verdict(state=state, cause=cause, culprits=(1,), confidence=0.9, summary="Rank 1 waits.")


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.name)
def test_every_class_begins_with_an_answer(one: Class) -> None:
    assert with_outlook(verdict("stuck", one.name)).can_go_on == one.can_go_on
    assert one.can_go_on.startswith(("Yes", "No", "Only if", "That is open"))


@pytest.mark.parametrize(
    ("state", "cause"), [("slow", "reward-blocked"), ("healthy", ""), ("stuck", "")]
)
def test_what_may_move_needs_no_answer(state: State, cause: str) -> None:
    assert with_outlook(verdict(state, cause)).can_go_on == ""
