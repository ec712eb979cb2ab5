"""The sentence at the top of a report."""

from __future__ import annotations

import pytest

from grpo_doctor.document import build_document
from grpo_doctor.trace.model import Exit, Kind
from grpo_doctor_reports.schema.report import HangEntry
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import empty_gpus, offloaded, run, straggling


def verdict(build: TraceBuilder, *hangs: HangEntry) -> str:
    return build_document(build.build(), hangs=hangs).summary.verdict


def ended(exit_: Exit, *, ranks: int = 1) -> TraceBuilder:
    """Four steps of a training that ended so."""
    build = TraceBuilder(ranks=ranks, exit=exit_)
    for rank in range(ranks):
        for number in range(4):
            build.step(rank, number, 10.0 * number, {"rollout": 6.0, "train": 4.0})
    return build


@pytest.mark.parametrize(
    ("exit_", "beginning"),
    [
        (Exit("failed", 3), "The run failed (exit code 3) after step 3."),
        (Exit("killed", None, "SIGKILL"), "The run was killed (SIGKILL) after step 3."),
        (Exit("failed", 0), "The run failed after step 3."),
        (Exit("interrupted", None, "SIGINT"), "The run was interrupted (SIGINT) after step 3."),
        (Exit("hung", None), "The run was stuck and was ended after step 3."),
        (Exit("running", None), "The run still goes on."),
        (Exit("finished", 0), "A step takes 10 s, 60% of it rollout."),
    ],
)
def test_how_it_ended_comes_first_unless_it_ended_well(exit_: Exit, beginning: str) -> None:
    assert verdict(ended(exit_)).startswith(beginning)


def test_a_run_that_died_before_its_first_step() -> None:
    build = TraceBuilder(exit=Exit("failed", 1)).span(0, "init", 0, 5)
    assert verdict(build).startswith(
        "The run failed (exit code 1) before its first step. No step was recorded."
    )


def test_open_spans_are_told_of_a_run_that_goes_on_and_of_one_that_just_ends() -> None:
    for exit_, words in (
        (Exit("running", None), "The run still goes on: rank 0 in rollout (2 s)."),
        (Exit("unknown", None), "The recording ends early: rank 0 in rollout (2 s)."),
    ):
        assert verdict(ended(exit_).open(0, "rollout", 40.0, 42.0)).startswith(words)


def test_up_to_four_ranks_are_named_and_more_are_counted() -> None:
    build = ended(Exit("killed", None, "SIGKILL"), ranks=9)
    for rank in range(9):
        build.open(rank, "train" if rank < 4 else "rollout", 40.0, 41.0 + rank)
    text = verdict(build)
    assert "ranks 0, 1, 2, 3 in train (4 s), 5 ranks in rollout (9 s)" in text


def test_a_span_of_the_users_own_is_quoted() -> None:
    text = verdict(ended(Exit("killed", None, "SIGKILL")).open(0, "mine", 40.0, 41.0))
    assert "rank 0 in 'mine' (1 s)" in text


def test_the_step_a_run_died_in_or_after() -> None:
    build = ended(Exit("killed", None, "SIGKILL"), ranks=2)
    build.row(Kind.STEP, 1, "step", 40.0, 45.0, depth=0, value=4, open=True)
    assert "was killed (SIGKILL) in step 4" in verdict(build)


@pytest.mark.parametrize("state", ["stuck", "dead", "slow", "healthy"])
def test_the_watchdogs_last_word_counts_if_it_was_stuck_or_dead(state: str) -> None:
    hangs = [
        HangEntry(page="hangs/1/hang.html", headline="First.", state="stuck", taken_unix_ns=1),
        HangEntry(page="hangs/2/hang.html", headline="Last.", state=state, taken_unix_ns=2),
    ]
    died = verdict(ended(Exit("failed", 1)), *hangs)
    assert ("Last." if state in ("stuck", "dead") else "First.") in died
    assert "No rule found a problem" not in died
    assert "Last." not in verdict(ended(Exit("running", None)), *hangs)


def test_the_gravest_finding_is_told_with_what_it_is_worth() -> None:
    assert verdict(offloaded()) == (
        "A step takes 12 s, 42% of it rollout. "
        "Biggest problem: offload costs more than it saves, worth about 17% of the step time."
    )


def test_without_a_gain_nothing_is_promised() -> None:
    text = verdict(empty_gpus())
    assert "Biggest problem: " in text
    assert "worth" not in text


def test_waiting_is_said_from_a_twentieth_and_called_unexplained_from_a_tenth() -> None:
    assert "spent waiting" not in verdict(run(slow={1: {"rollout": 0.3}}))
    assert "% of step time is spent waiting" in verdict(straggling())


def test_the_bundled_trainer_and_another_command_that_recorded_nothing() -> None:
    nothing = TraceBuilder(ranks=0)
    assert verdict(nothing).startswith("The trainer ended before it recorded anything")
    foreign = TraceBuilder(ranks=0, framework="unknown", framework_version=None)
    assert verdict(foreign).startswith("The command recorded no phases of its own")


def test_time_outside_all_phases_is_told_as_such() -> None:
    build = TraceBuilder()
    for number in range(5):
        build.step(0, number, 10.0 * number, {"train": 2.0}, end_s=10.0 * number + 10)
    assert "80% of it outside all phases" in verdict(build)
