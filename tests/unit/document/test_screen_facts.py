"""Nothing on the first screen of a recorded run is false: `python -m tests.screen_facts`."""

from __future__ import annotations

import pytest

from tests.screen_facts.cases import CASES, Case
from tests.screen_facts.screens import path_of, screen

FEWEST_RUNS, FEWEST_FACTS = 20, 10


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_fact_on_the_first_screen_is_true(case: Case) -> None:
    facts = list(screen(case).facts())
    assert len(facts) >= FEWEST_FACTS
    assert [fact for fact in facts if not fact.is_true] == []


def test_the_runs_are_of_all_kinds() -> None:
    assert sum(path_of(case).exists() for case in CASES) >= FEWEST_RUNS
    truths = [case.truth for case in CASES]
    assert {t.framework for t in truths} == {"", "bundled", "trl", "ms-swift", "verl", "openrlhf"}
    assert {t.state for t in truths} == {"finished", "failed", "interrupted", "hung"}
    assert (min(t.ranks for t in truths), max(t.ranks for t in truths)) == (1, 64)
