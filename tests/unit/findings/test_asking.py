"""Why a rule could not judge a run, in the words of whoever could record more of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from grpo_doctor.findings import NotRun, RunView, signals
from grpo_doctor.findings.engine import ask
from grpo_doctor.findings.learning import metric
from grpo_doctor.findings.rule import NotApplicable, Outcome, Passed, Rule
from grpo_doctor.findings.view import RuleFile
from grpo_doctor.trace.model import Exit, Origin, Trace
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run

LOG = Origin("a console log", (), ("rollout",), durations_only=True)
INSTEAD = "not in a console log; record with `grpo-doctor run -- ...`"
PRESSURE = signals.sampled("host.pressure", "record with `grpo-doctor run` on a kernel with PSI")


def asking(
    *needs: signals.Signal, ranks: int = 1, check: Callable[[RunView], Any] | None = None
) -> Any:
    """A rule that needs these signals and so many ranks."""
    rule = Rule("GD900", "fake", "Fake", "data", needs, min_ranks=ranks)
    return SimpleNamespace(RULE=rule, check=check or (lambda view: Passed("asked")))


def outcome(rule: Any, build: TraceBuilder, origin: Origin | None = None, **facts: Any) -> Outcome:
    trace: Trace = build.build()
    view = RunView.of(replace(trace, run=replace(trace.run, origin=origin, **facts)))
    return ask(cast(RuleFile, rule), view)


def lacked(signal: signals.Signal, build: TraceBuilder, origin: Origin | None = None) -> str:
    answer = outcome(asking(signal), build, origin)
    assert isinstance(answer, NotRun)
    (text,) = answer.missing
    return text


def short(**facts: Any) -> TraceBuilder:
    """Two steps, which are too few, with phases."""
    build = TraceBuilder(ranks=1, **facts)
    for number in range(2):
        build.step(0, number, 10.0 * number, {"train": 5.0})
    return build


def unmarked(framework: str = "trl", **facts: Any) -> TraceBuilder:
    """A job that marked nothing, beside which something was recorded."""
    build = TraceBuilder(ranks=1, framework=framework, framework_version="1.0.0", **facts)
    return build.series("host.cpu", "%", [0.0, 10.0], [50.0, 50.0])


UNKNOWN = Exit(state="unknown", code=None)
FAILED = Exit(state="failed", code=1)


@pytest.mark.parametrize(("signal", "build", "message"), [
    (signals.STEPS, short(), "at least 3 steps after the warm-up: record a longer run"),
    (signals.STEPS, unmarked(), "steps and phases: none were recorded, see GD075"),
    (signals.PHASES, unmarked(), "steps and phases: none were recorded, see GD075"),
    (signals.STEPS, unmarked(exit=FAILED),
        "steps and phases: the run failed, and none was recorded"),
    (signals.STEPS, unmarked("unknown", exit=FAILED),
        "steps and phases: the run failed, and none was recorded"),
    (signals.STEPS, unmarked("bundled"), signals.STEPS.text),
    (signals.SETTINGS, unmarked(), signals.SETTINGS.text),
    (signals.COLLECTIVES, short(), signals.COLLECTIVES.text),
    (signals.GPU_MEMORY, short(), "GPU memory samples: `grpo-doctor run` saw none"),
    (PRESSURE, short(),
        "`host.pressure`: `grpo-doctor run` saw none, which takes a kernel with PSI"),
    (signals.GPU_MEMORY, short(exit=UNKNOWN), signals.GPU_MEMORY.text),
    (signals.STEPS, unmarked(exit=UNKNOWN), signals.STEPS.text),
])  # fmt: skip
def test_what_our_own_recording_lacks_is_not_advised_to_be_recorded_again(
    signal: signals.Signal, build: TraceBuilder, message: str
) -> None:
    assert lacked(signal, build) == message


@pytest.mark.parametrize(("signal", "build", "message"), [
    (signals.GPU_MEMORY, short(), f"GPU memory samples: {INSTEAD}"),
    (signals.COLLECTIVES, short(), f"collectives of several ranks: {INSTEAD}"),
    (signals.SETTINGS, short(), f"settings of TRL, ms-swift, verl or OpenRLHF: {INSTEAD}"),
    (signals.STEPS, short(), signals.STEPS.text),
    (signals.STEPS, unmarked(), f"step times: {INSTEAD}"),
    (signals.sampled("x", "elsewhere"), short(), "`x`: elsewhere"),
    (signals.sampled("x", "elsewhere"), unmarked(), "`x`: elsewhere"),
    (metric("reward", 5), short(), "metric `reward`: not in a console log"),
])  # fmt: skip
def test_what_someone_elses_file_lacks_is_to_be_recorded_by_us(
    signal: signals.Signal, build: TraceBuilder, message: str
) -> None:
    assert lacked(signal, build, LOG) == message


def test_two_signals_that_come_the_same_way_are_said_once() -> None:
    answer = outcome(asking(signals.STEPS, signals.PHASES, signals.SETTINGS), unmarked())
    assert answer == NotRun(
        ("steps and phases: none were recorded, see GD075", signals.SETTINGS.text)
    )


def test_a_rule_about_ranks_is_asked_of_as_many_as_it_wants() -> None:
    two = run(ranks=2)
    assert outcome(asking(ranks=2), two, LOG) == Passed("asked")
    assert outcome(asking(ranks=3), two, LOG) == NotRun((f"a recording of every rank: {INSTEAD}",))
    assert outcome(asking(ranks=2), two) == Passed("asked")
    assert outcome(asking(ranks=3), two) == NotApplicable("the run has 2 ranks")
    assert outcome(asking(ranks=2), run(ranks=1)) == NotApplicable("the run has 1 rank")
    assert outcome(asking(ranks=3), two, world_size=3) == Passed("asked")


def test_a_phase_that_a_file_does_not_time_is_no_answer_and_one_that_it_times_is() -> None:
    def shares(phase: str) -> Any:
        return asking(check=lambda view: Passed(f"{view.share(phase) > 0}"))

    assert outcome(shares("rollout"), run(), LOG) == Passed("True")
    assert outcome(shares("train"), run(), LOG) == NotRun((f"the time in `train`: {INSTEAD}",))
    assert outcome(shares("train"), run()) == Passed("True")
