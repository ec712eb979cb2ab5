"""Two whole runs: what is said of them, and of those that can't be compared."""

# ruff: noqa: RUF001 (the minus sign is what is printed)

from __future__ import annotations

import math

import pytest

from grpo_doctor import knobs
from grpo_doctor.cli.compare import regression_code
from grpo_doctor.compare.assemble import _plain, _signed
from tests.build import TraceBuilder
from tests.unit.compare.runs import compared, steps, uneven
from tests.unit.findings.example_runs import healthy, offloaded, run


def test_a_run_compared_with_itself_has_no_difference() -> None:
    comparison = compared(healthy(), healthy())
    assert comparison.step_time.verdict == "no difference"
    assert comparison.step_time.change_pct == 0
    assert (comparison.settings, comparison.fixes) == ([], [])
    assert {f.state for f in comparison.findings} <= {"still"}


def test_longer_completions_are_told_from_slowness() -> None:
    comparison = compared(steps(12, 1.0, tokens=1000).build(), steps(12, 1.5, tokens=1500).build())
    assert comparison.step_time.verdict == "slower"
    assert comparison.per_token.verdict == "no difference"
    assert comparison.per_token.change_pct == pytest.approx(0, abs=1)
    assert any("50% more tokens per step" in caution for caution in comparison.cautions)
    assert ", and no significant difference per token (" in comparison.verdict
    fewer = compared(steps(12, 1.0, tokens=1000).build(), steps(12, 1.0, tokens=500).build())
    assert any("generates 50% fewer tokens" in caution for caution in fewer.cautions)
    assert "No significant difference in step time (" in fewer.verdict
    assert ", and 2.0x as long per token (" in fewer.verdict


@pytest.mark.parametrize(
    ("tokens", "is_said"), [(111, True), (109, False), (91, False), (89, True)]
)
def test_a_tenth_more_tokens_is_the_same_work(tokens: float, is_said: bool) -> None:
    comparison = compared(steps(8, 1.0, tokens=100).build(), steps(8, 1.0, tokens=tokens).build())
    assert any("tokens per step" in caution for caution in comparison.cautions) == is_said


@pytest.mark.parametrize("more", [({}, {"tokens": 9.0}), ({"tokens": 9.0}, {}), ({}, {})])
def test_without_tokens_nothing_is_said_per_token(
    more: tuple[dict[str, float], dict[str, float]],
) -> None:
    comparison = compared(steps(8, 1.0, **more[0]).build(), steps(8, 2.0, **more[1]).build())
    missing = [name for name, part in zip(("before", "after"), more, strict=True) if not part]
    assert (
        comparison.per_token.note == f"completion tokens were not recorded: {' and '.join(missing)}"
    )
    assert "per token" not in comparison.verdict
    assert not any("tokens" in caution for caution in comparison.cautions)


def test_what_both_say_per_step_and_per_token_is_said_once() -> None:
    comparison = compared(steps(12, 1.0, tokens=900).build(), steps(12, 2.0, tokens=900).build())
    assert "per token" not in comparison.verdict


def test_where_metrics_part_is_in_the_verdict() -> None:
    made = []
    for seconds in (0, 9):
        build = steps(12, 1.0)
        for step in range(12):
            build.metrics(step, reward=step % 3 + seconds * (step > 6), kl=float(step % 2))
        made.append(build.build())
    assert compared(*made).verdict.endswith(". Metrics diverge at step 7, first reward.")
    assert "diverge" not in compared(made[0], made[0]).verdict


def test_findings_are_gone_new_or_still_there() -> None:
    comparison = compared(offloaded().build(), run(idle=1.5).build())
    states = {finding.id: (finding.state, bool(finding.title)) for finding in comparison.findings}
    assert states["GD001"] == ("gone", True)
    assert states["GD005"] == ("new", True)
    again = compared(run(idle=1.5).build(), run(idle=1.5).build())
    assert {f.id: f.state for f in again.findings}["GD005"] == "still"


def test_steps_have_a_column_for_each_phase_that_took_time() -> None:
    columns = compared(steps(4, 1.0).build(), healthy()).steps["before"]
    assert list(columns) == ["step", "seconds", "rollout", "train"]
    assert columns["step"] == [0, 1, 2, 3]


@pytest.mark.parametrize(("longest", "is_said"), [(20.0, False), (20.5, True)])
def test_a_step_of_twenty_times_the_usual_is_a_long_one(longest: float, is_said: bool) -> None:
    comparison = compared(uneven({}, last_of={}), uneven({6: longest}, last_of={}))
    assert any("as long as usual" in caution for caution in comparison.cautions) == is_said


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, None), (math.inf, None), (1.5, 1.5), (True, True), (3, 3), ("a", "a"), ([1], "[1]")],
)
def test_settings_are_plain_values(value: object, shown: object) -> None:
    plain = _plain(value)
    assert (plain, type(plain)) == (shown, type(shown))


@pytest.mark.parametrize(
    ("percent", "shown"),
    [(None, "+0.0"), (-1.96, "−2.0"), (2.0, "+2"), (-2.4, "−2"), (1.9, "+1.9")],
)
def test_small_percentages_have_a_digit(percent: float | None, shown: str) -> None:
    assert _signed(percent) == shown


def test_few_steps_are_not_enough_evidence() -> None:
    comparison = compared(steps(2, 1.0).build(), steps(12, 0.5).build())
    assert comparison.step_time.verdict == "not enough evidence"
    assert "there are 2 and 12" in comparison.verdict
    assert regression_code(comparison, 5) == 8


def test_a_small_change_is_not_rounded_to_none() -> None:
    comparison = compared(steps(60, 1.0).build(), steps(60, 0.992).build())
    assert "0.8% less time per step" in comparison.verdict


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [(0.41, "is 2.4x as fast per step"), (2.4, "takes 2.4x as long per step")],
)
def test_a_large_change_is_a_ratio(seconds: float, sentence: str) -> None:
    assert sentence in compared(steps(12, 1.0).build(), steps(12, seconds).build()).verdict


def test_runs_without_steps_are_said_to_be_incomparable() -> None:
    comparison = compared(TraceBuilder(ranks=1).build(), steps(12, 1.0).build())
    assert not comparison.comparable
    assert "BEFORE contains no step" in comparison.verdict
    assert comparison.after.step_time_s == pytest.approx(1.0, rel=0.01)
    assert regression_code(comparison, 5) == 8


def test_other_ranks_and_batches_are_cautions() -> None:
    comparison = compared(
        run(ranks=2, knobs={"train.micro_batch": 4, "train.grad_accumulation": 2}).build(),
        run(ranks=4, knobs={"train.micro_batch": 8, "train.grad_accumulation": 2}).build(),
    )
    text = " ".join(comparison.cautions)
    assert "the number of ranks changed from 2 to 4" in text
    assert "steps are not comparable: train.micro_batch changed from 4 to 8" in text


def test_a_batch_cut_otherwise_is_the_same_work() -> None:
    many = {"train.micro_batch": 2, "train.grad_accumulation": 8}
    few = {"train.micro_batch": 8, "train.grad_accumulation": 2}
    comparison = compared(run(knobs=many).build(), run(knobs=few).build())
    assert not any("not comparable" in caution for caution in comparison.cautions)


FRAMEWORKS = list(knobs.FRAMEWORKS)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("other", [*FRAMEWORKS, "unknown"])
def test_what_one_run_alone_says_is_no_difference(framework: str, other: str) -> None:
    said = {row.knob: "said" for row in knobs.FRAMEWORKS[framework]}
    runs = (
        run(framework=framework, knobs=said, config={"said": "all"}).build(),
        run(framework=other, knobs={}).build(),
    )
    for pair in (runs, runs[::-1]):
        comparison = compared(*pair)
        assert (comparison.settings, comparison.fixes) == ([], [])
        cautions = [c for c in comparison.cautions if not c.startswith("not recorded of ")]
        assert not any(name in caution for caution in cautions for name in said)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_command_that_leaves_a_setting_out_has_its_default_and_says_so(framework: str) -> None:
    without = run(framework=framework, knobs={"model.name": "m"}).build()
    for name in {row.knob for row in knobs.FRAMEWORKS[framework]} - {"model.name"}:
        given = {"model.name": "m", name: "given"}
        comparison = compared(run(framework=framework, knobs=given).build(), without)
        (change,) = comparison.settings
        assert (change.name, change.before_from, change.after_from) == (name, "given", "default")
        assert change.after == without.run.setting(name).value


@pytest.mark.parametrize(("before", "after", "said"), [
    ({}, {}, ""),
    ({"model.name": "a/Tiny"}, {"model.name": "/models/Tiny"}, ""),
    ({"model.name": "a/Tiny"}, {}, ""),
    ({"model.name": "a/Tiny"}, {"model.name": "a/Huge"}, "the model changed from Tiny to Huge"),
])  # fmt: skip
def test_different_jobs_are_said_to_be_so_first(
    before: dict[str, object], after: dict[str, object], said: str
) -> None:
    verdict = compared(run(knobs=before).build(), run(knobs=after).build()).verdict
    assert verdict.startswith(f"Different jobs: {said}. No significant") is bool(said)
    more = compared(run(ranks=2).build(), run(ranks=4).build()).verdict
    assert more.startswith("Different jobs: the number of ranks changed from 2 to 4. ")


def test_a_finding_is_gone_only_where_it_was_looked_for() -> None:
    states = {f.id: f.state for f in compared(offloaded().build(), steps(1, 1.0).build()).findings}
    assert states["GD001"] == "not judged after"
    states = {f.id: f.state for f in compared(steps(1, 1.0).build(), offloaded().build()).findings}
    assert states["GD001"] == "not judged before"


@pytest.mark.parametrize(("dataload", "shown"), [(1.0, True), (0.99, False)])
def test_a_phase_of_a_thousandth_of_the_step_is_shown(dataload: float, shown: bool) -> None:
    build = TraceBuilder()
    for number in range(6):
        phases = {"dataload": dataload, "train": 1000.0 - dataload}
        build.step(0, number, 1000.0 * number, phases)
    comparison = compared(build.build(), build.build())
    assert ("dataload" in {phase.phase for phase in comparison.phases}) is shown


def test_ranks_that_stopped_early_or_never_began_are_named() -> None:
    step_s = uneven({}, last_of={})
    comparison = compared(step_s, uneven({}, last_of={1: 5}))
    assert (
        "AFTER has 4 of 10 steps that did not end on all ranks; they are excluded"
        in comparison.cautions
    )
    silent = compared(uneven({}, last_of={1: -1}), step_s)
    assert "BEFORE has no steps on 1 of 2 ranks" in silent.cautions
    assert not compared(step_s, step_s).cautions


def test_a_step_in_which_the_clock_jumped_is_named_and_no_run_gains_more_than_all() -> None:
    comparison = compared(uneven({}, last_of={}), uneven({6: 3600.0}, last_of={}))
    assert any("3600 times as long as usual" in caution for caution in comparison.cautions)
    assert comparison.step_time.verdict == "no difference"
    low = comparison.step_time.low_pct
    assert low is not None
    assert low >= -100


def test_numbers_are_finite() -> None:
    before = steps(6, 1.0).metrics(0, reward=math.nan).metrics(1, reward=math.inf).build()
    compared(before, before)


def test_the_facts_of_a_side() -> None:
    trace = run(ranks=2).build()
    side = compared(trace, trace).before
    assert (side.gpus, side.steps, side.steps_total, side.set_apart) == (
        "2 x NVIDIA A100-SXM4-80GB", 6, 6, 0,
    )  # fmt: skip
    assert side.tokens_per_step is None
    long_first = TraceBuilder()
    for number in range(6):
        long_first.step(0, number, 100.0 * number, {"train": 50.0 if number == 0 else 10.0})
    side = compared(trace, long_first.build()).after
    assert (side.gpus, side.steps, side.steps_total, side.set_apart) == ("no GPU sampled", 5, 6, 1)
