"""Durations laid end to end, and steps that a log says again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.importers.reconstruct import (
    MOST_STEPS,
    Laid,
    LogFacts,
    LoggedStep,
    StepLog,
    reconstruct,
)
from grpo_doctor.trace.model import Kind

S = 1_000_000_000
Phases = tuple[tuple[str, float], ...]


def laid(*steps: LoggedStep) -> tuple[list[tuple[str, float, float]], tuple[str, ...]]:
    """Name, begin and end in seconds of each row, and what is said of them."""
    rows = Laid()
    for step in steps:
        rows.add(step)
    spans = rows.spans()
    assert (spans.depth == (spans.kind != Kind.STEP)).all()
    names = [rows.names.names[name] for name in spans.name]
    return list(zip(names, (spans.start_ns / S).tolist(), (spans.end_ns / S).tolist())), rows.notes


def of(seconds: float | None, *phases: tuple[str, float], beside: Phases = ()) -> LoggedStep:
    return LoggedStep(7, seconds, phases, {}, beside)


def test_phases_follow_each_other_within_their_step_and_steps_each_other() -> None:
    rows, notes = laid(of(4.0, ("rollout", 1.0), ("train", 2.0)), of(2.0, ("train", 1.0)))
    assert rows == [
        ("step", 0, 4), ("rollout", 0, 1), ("train", 1, 3), ("step", 4, 6), ("train", 4, 5),
    ]  # fmt: skip
    assert notes == ()


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_a_step_without_a_length_takes_no_place(seconds: float | None) -> None:
    assert laid(of(seconds, ("train", 2.0)), of(1.0))[0] == [("step", 0, 1)]


@pytest.mark.parametrize("seconds", [-1.0, 3e7, float("nan"), float("inf")])
def test_impossible_lengths_are_left_out_and_counted(seconds: float) -> None:
    rows, notes = laid(of(seconds), of(1.0, ("train", -1.0), ("reward", seconds)))
    assert rows == [("step", 0, 1)]
    assert notes == ("1 steps have impossible times and are excluded.",)


def test_a_log_of_30_years_is_damage() -> None:
    many = [of(2.5e7)] * 42
    assert laid(*many[:41])[1] == ()
    assert laid(*many)[1] == ("1 steps have impossible times and are excluded.",)


@pytest.mark.parametrize(
    ("saved", "inside"),
    # Timers are rounded, so that they may add up to half a percent more than their step.
    [(4.0, True), (1.005 * 1000 - 1000, True), (5.1, False)],
)
def test_what_a_steps_timer_leaves_out_lies_beside_it(saved: float, inside: bool) -> None:
    rows, notes = laid(of(1000.0, ("train", 1000.0), ("checkpoint", saved)), of(1.0))
    begins = {name: begin for name, begin, _ in rows[:-1]}
    step_s = 1000 + saved
    assert begins["checkpoint"] == pytest.approx(1e6 / step_s if inside else 1000.0)
    assert rows[-1][1] == pytest.approx(1000.0 if inside else step_s)
    assert notes == ()


def test_an_evaluation_is_taken_out_only_where_a_checkpoint_was_not_enough() -> None:
    phases = (("train", 10.0), ("checkpoint", 2.0), ("eval", 3.0))
    rows, _ = laid(of(13.0, *phases))
    assert rows == [("step", 0, 13), ("train", 0, 10), ("eval", 10, 13), ("checkpoint", 13, 15)]
    rows, _ = laid(of(10.0, *phases))
    assert rows == [("step", 0, 10), ("train", 0, 10), ("checkpoint", 10, 12), ("eval", 12, 15)]


def test_timers_that_ran_side_by_side_are_shortened_in_proportion() -> None:
    rows, notes = laid(of(10.0, ("rollout", 12.0), ("train", 8.0)), of(10.0, ("train", 15.0)))
    assert rows == [
        ("step", 0, 10), ("rollout", 0, 6), ("train", 6, 10), ("step", 10, 20), ("train", 10, 20),
    ]  # fmt: skip
    (note,) = notes
    assert note.startswith("Phases overlapped in 2 steps, where timers add up to")
    assert " 200% of the step" in note


def test_rounded_timers_end_with_their_step_and_are_not_side_by_side() -> None:
    rows, notes = laid(of(10.0, ("rollout", 6.0), ("train", 4.02)))
    assert rows[-1][2] == 10.0
    assert notes == ()


def test_what_was_done_beside_a_step_comes_after_it() -> None:
    beside = (("eval", 3.0), ("checkpoint", 0.0), ("eval", -1.0), ("eval", 3e7))
    rows, _ = laid(of(10.0, ("train", 4.0), beside=beside), of(1.0))
    assert rows == [("step", 0, 10), ("train", 0, 4), ("eval", 10, 13), ("step", 13, 14)]


# -- steps of a log


def numbered(*numbers: int) -> StepLog:
    log = StepLog()
    for index, number in enumerate(numbers):
        log.add(LoggedStep(number, 1.0, metrics={"loss": float(index)}))
    return log


@pytest.mark.parametrize(
    ("numbers", "expected", "abandoned"),
    [
        ((1, 2, 3), [(1, 0), (2, 1), (3, 2)], 0),
        ((1, 2, 3, 2), [(1, 0), (2, 3)], 2),
        ((1, 2, 2), [(1, 0), (2, 2)], 1),
        ((2, 4, 6, 3), [(2, 0), (3, 3)], 2),
        ((2, 4, 4, 5), [(2, 0), (4, 2), (5, 3)], 1),
        ((5, 1), [(1, 1)], 1),
        ((), [], 0),
    ],
)
def test_what_a_run_said_of_steps_that_it_does_again_is_left_out(
    numbers: tuple[int, ...], expected: list[tuple[int, int]], abandoned: int
) -> None:
    log = numbered(*numbers)
    assert [(step.number, step.metrics["loss"]) for step in log.steps.values()] == expected
    notes = (f"The run went back; {abandoned} steps from before that are left out.",)
    assert log.notes == (notes if abandoned else ())


def test_numbers_of_too_many_digits_are_damage() -> None:
    assert list(numbered(MOST_STEPS, MOST_STEPS + 1).steps) == [MOST_STEPS]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("run-3/trainer_state.json", "run-3"),
        ("run-3/logging.jsonl", "run-3"),
        ("run-3/train.log", "train.log"),
    ],
)
def test_a_run_is_called_after_its_folder_where_all_files_have_one_name(
    path: str, name: str
) -> None:
    facts = LogFacts("a log", "trl", spans=("train", "mine", "reward/x"))
    trace = reconstruct(Path(path), facts, numbered(1, 2))
    assert trace.run.id == name
    assert trace.run.duration_ns == 2 * S
    assert trace.run.origin is not None
    assert trace.run.origin.phases == ("reward", "train")
    assert trace.metrics.steps.tolist() == [1, 2]
    (process,) = trace.processes
    assert (process.start_ns, process.end_ns, process.rank) == (0, 2 * S, 0)


def test_steps_that_log_nothing_have_no_metrics() -> None:
    log, empty = StepLog(), dict[str, Any]()
    log.add(LoggedStep(1, 1.0, metrics=empty))
    assert len(reconstruct(Path("x"), LogFacts("a log", "trl"), log).metrics.steps) == 0
