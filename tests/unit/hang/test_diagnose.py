"""What may not be called stuck, what nothing explains, and that order never matters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.hang.diagnose import diagnose
from tests.evidence import UNIX_NS, EvidenceBuilder, frames
from tests.verdicts import REWARD, UPDATE, verdict


@pytest.mark.parametrize(
    ("function", "word"),
    [
        ("save_checkpoint", "checkpoint"),
        ("compile_model", "compiles"),
        ("evaluate", "evaluates"),
        ("rollout", "generates"),
        ("download_dataset", "downloads"),
        ("reward", "rewards"),
    ],
)
def test_long_work_is_slow_for_however_long(function: str, word: str) -> None:
    for waited_s in (4.0, 40.0, 4000.0):
        build = EvidenceBuilder()
        build.waited_s = waited_s
        stack = frames("inner /home/me/m.py:3", f"{function} /home/me/train.py:3")
        build.elsewhere(2, stack).works(stack)
        outcome = verdict(build)
        assert outcome.state == "slow", outcome.summary
        assert outcome.culprits == (2,)
        assert word in outcome.summary


def _stopped(build: EvidenceBuilder, rank: int) -> None:
    build.elsewhere(rank, REWARD).state = "T"


def _dead(build: EvidenceBuilder, rank: int) -> None:
    build.rank(rank).state = "Z"


def _asleep(build: EvidenceBuilder, rank: int) -> None:
    build.elsewhere(rank, REWARD).blocks("sleep")


def _other_size(build: EvidenceBuilder, rank: int) -> None:
    build.joins[rank] = []
    build.calls(rank, "all_reduce", size=9)


def _at_work(build: EvidenceBuilder, rank: int) -> None:
    build.elsewhere(rank, UPDATE).works(UPDATE)


CASES: tuple[Callable[[EvidenceBuilder, int], None], ...] = (
    _stopped,
    _dead,
    _asleep,
    _other_size,
    _at_work,
)


@settings(max_examples=25, deadline=None)
@given(
    case=st.sampled_from(CASES), culprit=st.integers(0, 4), order=st.permutations(range(100, 105))
)
def test_the_order_of_ranks_never_matters(
    case: Callable[[EvidenceBuilder, int], None], culprit: int, order: list[int]
) -> None:
    build = EvidenceBuilder(ranks=5)
    case(build, culprit)
    plain = diagnose(build.build())
    assert plain.verdict.culprits == (culprit,)
    shuffled = diagnose(build.build(dict(zip(order, range(5), strict=True))))
    assert shuffled == plain
    assert shuffled.taken_unix_ns == UNIX_NS
