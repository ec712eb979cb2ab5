"""Neither the order of files nor the numbers of ranks change who is blamed."""

from __future__ import annotations

import functools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from tests.dumps.cases import CASES, Case
from tests.dumps.compare import relabelled
from tests.dumps.formats import dumps as dumps_of
from tests.dumps.simulator import Job
from tests.verdicts import of_dumps


@functools.cache
def blamed(case: Case) -> frozenset[tuple[int, str, str]]:
    return blames(case.build(), case.after_s)


def blames(
    built: Job, after_s: float, shuffled: int | None = None
) -> frozenset[tuple[int, str, str]]:
    files = dumps_of(built, after_s=after_s)
    if shuffled is not None:
        random.Random(shuffled).shuffle(files)
    matched = match(dumps.read(files))
    return frozenset((blame.rank, blame.reason, blame.grounds) for blame in matched.blame)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_blame_follows_the_ranks_wherever_they_are(case: Case, data: st.DataObject) -> None:
    built = case.build()
    to = data.draw(st.permutations(range(len(built.ranks))))
    moved = blames(relabelled(built, list(to)), case.after_s, data.draw(st.integers(0, 99)))
    assert moved == {(to[rank], reason, weight) for rank, reason, weight in blamed(case)}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_order_of_files_changes_nothing_at_all(case: Case) -> None:
    files = dumps_of(case.build(), after_s=case.after_s)
    straight = match(dumps.read(files))
    assert match(dumps.read(files[::-1])) == straight
    assert of_dumps(files) == of_dumps(files[::-1])
