from __future__ import annotations

import random

import pytest

from grpo_doctor.trace.model import Exit, Kind, Uncaught
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS
from tests.unit.findings.rules.saying import finding_in, rows

DEVICES = (
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices"
)
LOST = "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:4242"


def ended(*errors: tuple[int, float, str], state: str = "failed") -> TraceBuilder:
    build = TraceBuilder(ranks=2, knobs=SETTINGS, exit=Exit(state=state, code=1))
    for rank in (0, 1):
        build.span(rank, "train", 0.0, 5.0)
    for rank, at_s, text in errors:
        build.row(Kind.INSTANT, rank, f"error/train/{text}", at_s, at_s)
    return build


def plain(*errors: Uncaught, ended: tuple[str, ...] = (), state: str = "failed") -> TraceBuilder:
    """A script without phases."""
    build = TraceBuilder(ranks=0, exit=Exit(state=state, code=1))
    build.run_facts = {"uncaught": errors, "ended": ended}
    return build


@pytest.mark.parametrize("order", range(6))
def test_without_phases_the_error_that_ended_the_first_rank_is_the_reason(order: int) -> None:
    errors = [
        Uncaught("ValueError: boom", 11, 1, at_ns=20),
        Uncaught(LOST, 10, 0, at_ns=10),
        Uncaught("KeyError: 'tried again'", 9, 1, at_ns=5),
    ]
    random.Random(order).shuffle(errors)
    finding = finding_in(plain(*errors, ended=("rank 1 (pid 11) ended first",)), "GD074")
    assert (finding.ranks, finding.phases) == ((1,), ())
    assert finding.cause == "Rank 1 ended: ValueError: boom"
    assert finding.headline == "Rank 1 ended the run: ValueError: boom"
    assert [e.value for e in finding.evidence] == [
        "ValueError: boom", 2, "rank 1 (pid 11) ended first",
    ]  # fmt: skip


def who_ran_out_of_memory_gets_the_settings_that() -> TraceBuilder:
    build = ended((1, 4.0, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"))
    build.knobs = {**SETTINGS, "train.micro_batch": 4, "train.grad_accumulation": 2}
    return build


def who_ran_out_of_memory_gets_the_settings_that_2() -> TraceBuilder:
    build = ended((1, 4.0, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"))
    build.knobs = {}
    return build


def other_marks_are_no_errors() -> TraceBuilder:
    build = ended((1, 4.0, DEVICES))
    build.row(Kind.INSTANT, 1, "mark/train/ValueError: none", 4.5, 4.5)
    return build


RUNS = {
    "sick": lambda: ended((1, 4.0, DEVICES)),
    "well": lambda: ended((1, 4.0, DEVICES), state="finished"),
    "the error is named with its rank phase and remedy": lambda: ended((1, 4.0, DEVICES)),
    "a script without ranks is named as such": lambda:
        plain(Uncaught("OutOfMemoryError: CUDA out of memory.", 7)),
    **rows(
        "without any error it is who ended first",
        lambda how: plain(
            ended=(f"rank 1 (pid 11) ended first, {how}", "then rank 0 (pid 10) 0.1 s later")
        ),
        "by SIGSEGV",
        "with exit code 7",
        "by SIGKILL; the kernel says: x",
    ),
    "lost connections are not the reason even if they are seen": lambda: ended((0, 3.9, LOST),
        (1, 4.0, DEVICES)),
    "where all lost a connection the first is told": lambda: ended((0, 4.1, LOST), (1, 4.0, LOST)),
    "of several errors of a rank the last ended it": lambda: ended((0, 1.0, "ValueError: caught"),
        (0, 4.0, "KeyError: 'image'")),
    **rows("errors that ended nothing are none",
        lambda state: ended((0, 4.0, DEVICES), state=state), "finished", "interrupted", "killed"),
    "of two errors at one moment the one recorded last ended": lambda:
        ended((0, 4.0, "ValueError: caught"), (0, 4.0, "KeyError: 'image'")),
}  # fmt: skip
