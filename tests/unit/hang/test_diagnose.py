"""What may not be called stuck, what nothing explains, and that order never matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.hang.diagnose import diagnose
from tests.evidence import UNIX_NS, EvidenceBuilder, frames
from tests.verdicts import REWARD, UPDATE, healthy, verdict


def test_a_healthy_loop() -> None:
    build = EvidenceBuilder()
    healthy(build)
    assert verdict(build).state == "healthy"
    build.recorded = False
    assert verdict(build).state == "healthy"


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


def test_a_checkpoint_that_writes_is_slow_though_its_stack_stands() -> None:
    build = EvidenceBuilder()
    build.waited_s = 60.0
    process = build.elsewhere(2, frames("write /me/io.py:3", "save_checkpoint /me/train.py:3"))
    process.state, process.written_bytes, process.still_s = "D", 300_000_000, 0.0
    outcome = verdict(build)
    assert outcome.state == "slow"
    assert "300" in outcome.summary


def test_what_nothing_explains_is_unknown_with_one_command() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        build.rank(rank).stack, build.rank(rank).still_s = (), 100.0
    outcome = verdict(build)
    assert outcome.cause in ("unknown", "user-code-blocked")
    assert outcome.confirm


def test_dumps_alone() -> None:
    build = EvidenceBuilder()
    build.joins[2] = []
    evidence = build.build()
    alone = replace(evidence, looks=(), stacks=(), limits=(), blocked=())
    assert diagnose(alone).verdict.culprits == (2,)


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
