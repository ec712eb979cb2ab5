"""The sentence at the top of a report."""

from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.document import verdict as module
from grpo_doctor.document.verdict import _lowered
from grpo_doctor.findings import Results
from grpo_doctor.findings.rule import Finding, Fix, NotApplicable, NotRun, Passed, Rule
from grpo_doctor.trace.model import Exit, Kind
from grpo_doctor.whatif import Prediction
from grpo_doctor_reports.formatting import MINUS
from grpo_doctor_reports.schema.report import HangEntry
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import empty_gpus, offloaded, straggling, without_vllm


def verdict(build: TraceBuilder, *hangs: HangEntry) -> str:
    return build_document(build.build(), hangs=hangs).summary.verdict


def ended(exit_: Exit, *, ranks: int = 1) -> TraceBuilder:
    """Four steps of a training that ended so."""
    build = TraceBuilder(ranks=ranks, exit=exit_)
    for rank in range(ranks):
        for number in range(4):
            build.step(rank, number, 10.0 * number, {"rollout": 6.0, "train": 4.0})
    return build


@pytest.mark.parametrize(("exit_", "sentence"), [
    (Exit("failed", 3), "The run failed (exit code 3) after step 3."),
    (Exit("killed", None, "SIGKILL"), "The run was killed (SIGKILL) after step 3."),
    (Exit("failed", 0), "The run failed after step 3."),
    (Exit("hung", None), "The run hung in step 3 and was ended."),
])  # fmt: skip
def test_how_it_died_is_all_that_is_said(exit_: Exit, sentence: str) -> None:
    assert verdict(ended(exit_)) == sentence


@pytest.mark.parametrize(("exit_", "sentence"), [
    (Exit("interrupted", None, "SIGINT"), "The run was interrupted (SIGINT) after step 3."),
    (Exit("running", None), "The run is still running."),
    (Exit("finished", 0), ""),
])  # fmt: skip
def test_how_it_ended_comes_last_unless_it_died(exit_: Exit, sentence: str) -> None:
    nothing = "10 s per step. Not enough data: only 2 of 45 checks could be made."
    assert verdict(ended(exit_)) == f"{nothing} {sentence}".strip()


@pytest.mark.parametrize("framework", ["unknown", "trl", "verl"])
def test_no_step_on_record_is_not_before_the_first_step(framework: str) -> None:
    build = TraceBuilder(exit=Exit("failed", 1), framework=framework, framework_version=None)
    assert verdict(build) == "The run failed (exit code 1); no step was recorded."
    assert verdict(build.span(0, "init", 0, 5)).endswith("; no step was recorded.")
    assert verdict(build.span(0, "dataload", 5, 6)).endswith(" before its first step.")


RULE = Rule("GD000", "slug", "It is slow", "system", ())


@pytest.mark.parametrize("applicable", [1, 3, 5, 30, 64])
def test_nothing_found_says_how_much_was_judged(applicable: int) -> None:
    analysis = analyse(ended(Exit("finished", 0)).build())
    for judged in range(applicable + 1):
        passed = ((RULE, Passed("")),) * judged
        lacking = ((RULE, NotRun(("it",))),) * (applicable - judged)
        unasked = ((RULE, NotApplicable("")),) * 7
        results = Results((), passed, lacking, unasked)
        clear = judged * 3 >= applicable and judged > 0
        assert module.tone(analysis, results) == ("clear" if clear else "unjudged")
        text = module.verdict(analysis, results, [])
        assert f"{judged or 'none'} of {applicable} checks" in text
        assert ("no problem found" in text) is clear


def test_open_spans_are_told_of_a_run_that_goes_on_and_of_one_that_just_ends() -> None:
    for exit_, words in (
        (Exit("running", None), "The run is still running: rank 0 in rollout (2 s)."),
        (Exit("unknown", None), "The recording ends early: rank 0 in rollout (2 s)."),
    ):
        assert verdict(ended(exit_).open(0, "rollout", 40.0, 42.0)).endswith(words)


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
    assert "no problem found" not in died
    assert "Last." not in verdict(ended(Exit("running", None)), *hangs)


def test_the_saving_comes_first_then_the_gravest_finding() -> None:
    pace = f"12.0 → 9.95 s per step, {MINUS}17%: "
    assert verdict(offloaded()) == pace + "offload costs more than it saves."
    assert verdict(straggling()) == pace + "rank 2 is slow in rollout."


def test_without_a_gain_nothing_is_promised() -> None:
    assert verdict(empty_gpus()) == "9.95 s per step: GPU memory is left unused."
    lost = verdict(without_vllm())
    assert lost == "9.95 s per step, rollout takes 51% of it: the rollout runs without vLLM."


@pytest.mark.parametrize(("gain", "cost", "sentence"), [
    (1.0, 0.0, f"10 → 9.90 s per step, {MINUS}1%: it is slow."),
    (0.94, 0.01, "10 s per step, 1% of it lost: it is slow."),
    (0.0, 0.0099, "10 s per step: it is slow."),
])  # fmt: skip
def test_a_hundredth_is_worth_saying(gain: float, cost: float, sentence: str) -> None:
    fix = Fix("a.knob", 1, 2, "--a 2", Prediction(-5.0, -gain, 0.0, "so"), "same-math", "")
    finding = Finding(
        severity="low", confidence=1.0, evidence=(), cause="", fixes=(fix,), cost=cost
    )
    results = Results(((Rule("GD000", "slug", "It is slow", "system", ()), finding),), (), (), ())
    analysis = analyse(ended(Exit("finished", 0)).build())
    assert module.verdict(analysis, results, []) == sentence


def test_names_keep_their_letters_in_the_middle_of_a_line() -> None:
    assert _lowered("ZeRO-3 where ZeRO-2 fits") == "ZeRO-3 where ZeRO-2 fits"
    assert _lowered("GPU memory is left unused") == "GPU memory is left unused"
    assert _lowered("A log-prob pass is avoidable") == "a log-prob pass is avoidable"


@pytest.mark.parametrize(("late_s", "is_said"), [(2.0, True), (1.9, False)])
def test_a_tenth_of_the_step_is_much_waiting(late_s: float, is_said: bool) -> None:
    build = TraceBuilder(ranks=2)
    for number in range(6):
        at = 16.0 * number
        for rank in range(2):
            late = late_s * ((number + rank) % 2)
            build.span(rank, "train", at, at + 10)
            build.collective(rank, number, at + 5 + late, at + 10)
            build.step(rank, number, at, {}, end_s=at + 10)
    assert ("10% of it is wait time" in verdict(build)) is is_said


def test_a_run_that_died_in_the_step_with_which_its_recording_begins() -> None:
    build = TraceBuilder(exit=Exit("killed", None, "SIGKILL"))
    build.row(Kind.STEP, 0, "step", 0.0, 5.0, depth=0, value=7, open=True)
    assert verdict(build) == "The run was killed (SIGKILL) in step 7."


def test_a_step_that_was_ended_is_in_no_mean() -> None:
    """A hung run's last step closes as the stack unwinds; so does one that an error leaves."""
    for exit_ in (Exit("hung", None), Exit("failed", 1)):
        build = ended(exit_, ranks=2)
        for rank in range(2):
            build.step(rank, 4, 40.0, {"rollout": 6.0, "reward": 80.0})
        build.row(Kind.INSTANT, 0, "error/reward/TimeoutError: ended", 125.0, 125.0)
        summary = build_document(build.build()).summary
        assert (summary.steps, summary.steps_total, summary.step_time_s) == (4, 5, 10.0)
        assert "reward" not in summary.phases


def test_the_bundled_trainer_and_another_command_that_recorded_nothing() -> None:
    nothing = TraceBuilder(ranks=0)
    assert verdict(nothing).startswith("The trainer ended before it recorded anything")
    foreign = TraceBuilder(ranks=0, framework="unknown", framework_version=None)
    assert verdict(foreign).startswith("No phase data: this script marks no phases")
