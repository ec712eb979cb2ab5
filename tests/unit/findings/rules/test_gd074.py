from __future__ import annotations

import random

import pytest

from grpo_doctor.findings.rule import NotApplicable
from grpo_doctor.findings.rules import gd074_ended_by_an_error as rule
from grpo_doctor.trace.model import Exit, Kind, Uncaught
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS
from tests.unit.findings.recorded import finding_by, judged

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


def sick() -> TraceBuilder:
    return ended((1, 4.0, DEVICES))


def well() -> TraceBuilder:
    return ended((1, 4.0, DEVICES), state="finished")


def test_the_error_is_named_with_its_rank_phase_and_remedy() -> None:
    finding = finding_by(rule, ended((1, 4.0, DEVICES)))
    assert (finding.severity, finding.ranks, finding.phases) == ("high", (1,), ("train",))
    assert finding.evidence[0].value == DEVICES
    assert finding.cause.startswith("Rank 1 ended in train: RuntimeError: Expected all tensors")
    assert "NPROC_PER_NODE" in finding.fixes[0].spelling


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
    finding = finding_by(rule, plain(*errors, ended=("rank 1 (pid 11) ended first",)))
    assert (finding.ranks, finding.phases) == ((1,), ())
    assert finding.cause == "Rank 1 ended: ValueError: boom"
    assert finding.headline == "Rank 1 ended the run: ValueError: boom"
    assert [e.value for e in finding.evidence] == [
        "ValueError: boom", 2, "rank 1 (pid 11) ended first",
    ]  # fmt: skip


def test_a_script_without_ranks_is_named_as_such() -> None:
    finding = finding_by(rule, plain(Uncaught("OutOfMemoryError: CUDA out of memory.", 7)))
    assert (finding.headline, finding.ranks) == ("The script ran out of memory", ())


@pytest.mark.parametrize(
    "how", ["by SIGSEGV", "with exit code 7", "by SIGKILL; the kernel says: x"]
)
def test_without_any_error_it_is_who_ended_first(how: str) -> None:
    sentences = (f"rank 1 (pid 11) ended first, {how}", "then rank 0 (pid 10) 0.1 s later")
    finding = finding_by(rule, plain(ended=sentences))
    assert finding.cause == f"Rank 1 (pid 11) ended first, {how}."
    assert "last lines of rank 1" in finding.fixes[0].spelling


def test_lost_connections_are_not_the_reason_even_if_they_are_seen_first() -> None:
    finding = finding_by(rule, ended((0, 3.9, LOST), (1, 4.0, DEVICES)))
    assert finding.ranks == (1,)
    assert finding.evidence[1].value == 2


def test_where_all_lost_a_connection_the_first_is_told() -> None:
    assert finding_by(rule, ended((0, 4.1, LOST), (1, 4.0, LOST))).ranks == (1,)


def test_of_several_errors_of_a_rank_the_last_ended_it() -> None:
    finding = finding_by(rule, ended((0, 1.0, "ValueError: caught"), (0, 4.0, "KeyError: 'image'")))
    assert finding.cause == "Rank 0 ended in train: KeyError: 'image'"
    assert "traceback of rank 0" in finding.fixes[0].spelling


@pytest.mark.parametrize("state", ["finished", "interrupted", "killed"])
def test_errors_that_ended_nothing_are_none(state: str) -> None:
    assert isinstance(judged(rule, ended((0, 4.0, DEVICES), state=state)), NotApplicable)


def test_a_failed_run_without_a_recorded_error_points_to_the_log() -> None:
    answer = judged(rule, ended())
    assert isinstance(answer, NotApplicable)
    assert "log" in answer.reason


def test_who_ran_out_of_memory_gets_the_settings_that_save_some() -> None:
    build = ended((1, 4.0, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"))
    build.knobs = {**SETTINGS, "train.micro_batch": 4, "train.grad_accumulation": 2}
    finding = finding_by(rule, build)
    assert finding.headline == "Rank 1 ran out of memory in train"
    assert [fix.knob for fix in finding.to_paste] == ["train.micro_batch"]
    build.knobs = {}
    assert "fewer of them per pass" in finding_by(rule, build).next_steps[0].spelling


def test_of_two_errors_at_one_moment_the_one_recorded_last_ended_the_rank() -> None:
    finding = finding_by(rule, ended((0, 4.0, "ValueError: caught"), (0, 4.0, "KeyError: 'image'")))
    assert finding.cause == "Rank 0 ended in train: KeyError: 'image'"


def test_other_marks_are_no_errors() -> None:
    build = ended((1, 4.0, DEVICES))
    build.row(Kind.INSTANT, 1, "mark/train/ValueError: none", 4.5, 4.5)
    finding = finding_by(rule, build)
    assert finding.evidence[0].value == DEVICES
    assert finding.evidence[1].value == 1
