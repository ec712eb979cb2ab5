"""Two whole runs: what is said of them, and of those that can't be compared."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import pytest
from msgspec import structs

from grpo_doctor.cli.compare import regression_code
from grpo_doctor.compare import ComparisonDocument, compare
from grpo_doctor.compare.assemble import _plain, _signed
from grpo_doctor.compare.fixes import _of_finding, _outcome, _predicted
from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.trace.model import Trace
from grpo_doctor.whatif import Edit, Prediction, Withheld, predict
from grpo_doctor_reports.schema.compare import Change
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, healthy, offloaded, run


def compared(before: Trace, after: Trace) -> ComparisonDocument:
    """The comparison, after checking that it is valid JSON of the schema."""
    comparison = compare(before, after)
    text = json.dumps(msgspec.to_builtins(comparison), allow_nan=False)
    assert msgspec.json.decode(text, type=ComparisonDocument) == comparison
    return comparison


def steps(count: int, seconds: float, **more: float) -> TraceBuilder:
    """One rank whose steps take so long, with a little spread."""
    build = TraceBuilder(ranks=1)
    now = 0.0
    for number in range(count):
        length = seconds * (1 + 0.02 * (number % 3 - 1))
        build.step(0, number, now, {"rollout": 0.6 * length, "train": 0.4 * length})
        now += length
    if "tokens" in more:
        times = [(n + 0.5) * seconds for n in range(count)]
        values = [more["tokens"]] * count
        build.series("rollout/tokens", "", times, values, scope="counter", rank=0)
    return build


def test_a_fix_is_measured_beside_its_prediction() -> None:
    comparison = compared(offloaded().build(), healthy())
    assert comparison.step_time.verdict == "faster"
    assert comparison.verdict.startswith("The run after takes 17% less time per step")
    (fix,) = comparison.fixes
    assert fix.knobs == {"offload.optimizer": [True, False]}
    assert fix.findings == ["GD001"]
    assert fix.inside is True
    assert fix.measured_pct == pytest.approx(fix.predicted_mid_pct, abs=0.5)
    (phase,) = [p for p in comparison.phases if p.verdict != "no difference"]
    assert (phase.phase, phase.verdict) == ("offload", "faster")
    assert phase.change_s == pytest.approx(-2.02)
    assert {f.id: f.state for f in comparison.findings}["GD001"] == "gone"


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
    assert ", and these steps can't say per token (" in comparison.verdict
    fewer = compared(steps(12, 1.0, tokens=1000).build(), steps(12, 1.0, tokens=500).build())
    assert any("generates 50% fewer tokens" in caution for caution in fewer.cautions)
    assert "no difference" in fewer.verdict.lower()
    assert ", and slower per token (" in fewer.verdict


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
    [(None, "+0.0"), (-1.96, "-2.0"), (2.0, "+2"), (-2.4, "-2"), (1.9, "+1.9")],
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
    assert "the run before has no steps" in comparison.verdict
    assert comparison.after.step_time_s == pytest.approx(1.0, rel=0.01)
    assert regression_code(comparison, 5) == 8


def test_other_ranks_and_batches_are_cautions() -> None:
    comparison = compared(
        run(ranks=2, knobs={"train.micro_batch": 4}).build(),
        run(ranks=4, knobs={"train.micro_batch": 8}).build(),
    )
    text = " ".join(comparison.cautions)
    assert "number of ranks differs: 2 before, 4 after" in text
    assert "not the same work: train.micro_batch is 4 before, 8 after" in text


@pytest.mark.parametrize(
    ("seconds", "limit", "code"), [(1.2, 5.0, 7), (1.2, 30.0, 0), (0.8, 0.0, 0), (1.0, 0.0, 0)]
)
def test_a_regression_beyond_the_limit_has_its_code(
    seconds: float, limit: float, code: int
) -> None:
    comparison = compared(steps(12, 1.0).build(), steps(12, seconds).build())
    assert regression_code(comparison, limit) == code


def test_a_batch_cut_otherwise_is_the_same_work() -> None:
    many = {"train.micro_batch": 2, "train.grad_accumulation": 8}
    few = {"train.micro_batch": 8, "train.grad_accumulation": 2}
    comparison = compared(run(knobs=many).build(), run(knobs=few).build())
    assert not any("not the same work" in caution for caution in comparison.cautions)


CHANGE = Change(
    before=1.0, after=0.9, change_pct=-10.0, low_pct=-12.0, high_pct=-8.0, verdict="faster"
)
SAID = Prediction(-11.0, -9.0, -7.0, "a replay")


@pytest.mark.parametrize(
    ("more", "seconds", "inside"),
    [
        ({}, "", True),
        ({"change_pct": -20.0, "low_pct": -22.0, "high_pct": -18.0}, "", False),
        ({"change_pct": -20.0, "low_pct": -60.0, "high_pct": 20.0}, "", None),
        ({"low_pct": None, "high_pct": None}, "", None),
        ({}, "the framework", None),
    ],
)
def test_a_prediction_holds_fails_or_can_not_be_judged(
    more: dict[str, object], seconds: str, inside: bool | None
) -> None:
    comparison, note = _outcome(SAID, structs.replace(CHANGE, **more), seconds)
    assert comparison is inside
    assert bool(note) == (inside is None)


@pytest.mark.parametrize(
    ("change", "low", "high", "inside"),
    [
        (-0.5, -2.0, 1.0, True),
        (1.5, 1.0, 2.0, True),
        (2.0, 1.0, 3.0, True),  # as much as two runs of the same settings are taken to differ
        (2.01, 1.0, 3.0, False),
        (-9.0, -10.0, -8.0, False),
    ],
)
def test_no_change_is_held_to_what_two_runs_differ_by(
    change: float, low: float, high: float, inside: bool
) -> None:
    measured = structs.replace(CHANGE, change_pct=change, low_pct=low, high_pct=high)
    nothing = Prediction(0.0, 0.0, 0.0, "a replay")
    assert _outcome(nothing, measured, "") == (inside, "")


def test_where_no_law_answers_the_fix_of_a_finding_does() -> None:
    first = ComparedRun.of(offloaded().build())
    (rule, finding) = next(pair for pair in first.results.findings if pair[0].id == "GD001")
    value = 64
    fix = replace(
        finding.fixes[0], knob="train.lora_rank", after=value,
        spelling=first.view.spell("train.lora_rank", value) or "",
    )  # fmt: skip
    results = replace(first.results, findings=((rule, replace(finding, fixes=(fix,))),))
    comparison = {"train.lora_rank": (8, value), "offload.optimizer": (True, False)}
    patient = ComparedRun(first.view, results)
    assert fix.predicted is not None
    alone = _predicted(patient, {"train.lora_rank": comparison["train.lora_rank"]})
    assert alone is fix.predicted
    joint = _predicted(patient, comparison)
    # Both take the same transfers away: together no more than one.
    assert isinstance(joint, Prediction)
    assert joint.mid == pytest.approx(fix.predicted.mid)
    unknown = _predicted(patient, {**comparison, "run.collective_timeout_s": (1, 2)})
    assert isinstance(unknown, Withheld)
    assert "run.collective_timeout_s" in unknown.reason


FINDINGS = ("train.lora_rank", "checkpoint.save_steps")
LIMIT = {**SETTINGS, "rollout.max_completion_length": 100}


def with_fixes(trace: Trace, **halved: str) -> ComparedRun:
    """A run of which a finding says that a knob (dots spelled `__`) set to 64 halves a phase."""
    first = ComparedRun.of(trace)
    (rule, finding) = next(
        pair for pair in ComparedRun.of(offloaded().build()).results.findings if pair[1].fixes
    )
    fixes = []
    for name, phase in halved.items():
        knob, edits = name.replace("__", "."), (Edit((phase,), 0.5),)
        predicted = predict(ComparedRun.of(healthy()).view.model, edits, "so")
        assert isinstance(predicted, Prediction)
        spelling = first.view.spell(knob, 64) or ""
        fix = replace(finding.fixes[0], knob=knob, after=64, spelling=spelling)
        fixes.append(replace(fix, predicted=predicted))
    results = replace(first.results, findings=((rule, replace(finding, fixes=tuple(fixes))),))
    return ComparedRun(first.view, results)


def predicted_mid(patient: ComparedRun, *knobs: str) -> float | None:
    outcome = _predicted(patient, dict.fromkeys(knobs, (8, 64)))
    return outcome.mid if isinstance(outcome, Prediction) else None


def test_a_finding_answers_for_a_knob_whose_law_has_no_answer_here() -> None:
    patient = with_fixes(healthy(), train__lora_rank="train", checkpoint__save_steps="reward")
    rank, saved = (predicted_mid(patient, name) for name in FINDINGS)
    assert rank is not None
    assert saved is not None
    step_s = sum(HEALTHY.values())
    assert (rank, saved) == pytest.approx((-100 * 1.5 / step_s, -100 * 0.1 / step_s), rel=0.01)
    assert predicted_mid(patient, *FINDINGS) == pytest.approx(rank + saved)
    assert predicted_mid(patient, "run.collective_timeout_s") is None


def test_a_law_that_has_an_answer_counts_before_a_finding() -> None:
    length, build = "rollout.max_completion_length", run(knobs=LIMIT)
    for step in range(6):
        build.metrics(step, **{"completions/max_length": 50.0})
    patient = with_fixes(
        build.build(), rollout__max_completion_length="rollout", train__lora_rank="train"
    )
    # No completion is cut off at 64 tokens.
    assert predicted_mid(patient, length) == 0
    rank = predicted_mid(patient, "train.lora_rank")
    assert rank is not None
    assert predicted_mid(patient, length, "train.lora_rank") == pytest.approx(rank)


def test_of_a_run_that_can_not_be_replayed_no_finding_is_taken_at_its_word() -> None:
    patient = with_fixes(steps(2, 1.0).build(), train__lora_rank="train")
    outcome = _predicted(patient, {"train.lora_rank": (8, 64)})
    assert isinstance(outcome, Withheld)
    assert "at least 3 steps" in outcome.reason


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [({}, {"train.beta": 0.5}, True), ({"train.beta": 0.5}, {}, True), ({}, {}, False)],
)
def test_a_setting_that_one_run_alone_says_differs_from_a_default(
    before: dict[str, float], after: dict[str, float], shown: bool
) -> None:
    first, second = run(knobs=before, framework="trl"), run(knobs=after, framework="ms-swift")
    comparison = compared(first.build(), second.build())
    assert ("train.beta" in {row.name for row in comparison.settings}) is shown


@pytest.mark.parametrize(("dataload", "shown"), [(1.0, True), (0.99, False)])
def test_a_phase_of_a_thousandth_of_the_step_is_shown(dataload: float, shown: bool) -> None:
    build = TraceBuilder()
    for number in range(6):
        phases = {"dataload": dataload, "train": 1000.0 - dataload}
        build.step(0, number, 1000.0 * number, phases)
    comparison = compared(build.build(), build.build())
    assert ("dataload" in {phase.phase for phase in comparison.phases}) is shown


def test_a_fix_that_sets_more_than_this_knob_is_no_prediction_of_it() -> None:
    first = ComparedRun.of(offloaded().build())
    (rule, finding) = next(pair for pair in first.results.findings if pair[0].id == "GD001")
    more = replace(finding.fixes[0], spelling="--offload_optimizer false --offload_model false")
    results = replace(first.results, findings=((rule, replace(finding, fixes=(more,))),))
    assert _of_finding(first, more.knob or "", more.after) is not None
    assert _of_finding(ComparedRun(first.view, results), more.knob or "", more.after) is None


def uneven(ends: dict[int, float], *, ranks: int = 2, last_of: dict[int, int]) -> Trace:
    """Ten steps of a second but for those in `ends`; ranks in `last_of` end after that step."""
    build, now = TraceBuilder(ranks=ranks), 0.0
    for number in range(10):
        for rank in range(ranks):
            if number <= last_of.get(rank, 10):
                build.step(rank, number, now, {"train": ends.get(number, 1.0)})
        now += ends.get(number, 1.0)
    return build.build()


def test_ranks_that_stopped_early_or_never_began_are_named() -> None:
    step_s = uneven({}, last_of={})
    comparison = compared(step_s, uneven({}, last_of={1: 5}))
    assert (
        "the run after has 4 of 10 steps that did not end on all ranks; they are excluded"
        in comparison.cautions
    )
    silent = compared(uneven({}, last_of={1: -1}), step_s)
    assert "the run before has no steps on 1 of 2 ranks" in silent.cautions
    assert not compared(step_s, step_s).cautions


def test_a_step_in_which_the_clock_jumped_is_named_and_no_run_gains_more_than_all() -> None:
    comparison = compared(uneven({}, last_of={}), uneven({6: 3600.0}, last_of={}))
    assert any("3600 times as long as usual" in caution for caution in comparison.cautions)
    assert comparison.step_time.verdict == "no difference"
    low = comparison.step_time.low_pct
    assert low is not None
    assert low >= -100


def test_a_change_without_a_law_says_so() -> None:
    before = run(knobs={"run.collective_timeout_s": 100}).build()
    after = run(knobs={"run.collective_timeout_s": 200}).build()
    (fix,) = compared(before, after).fixes
    assert fix.predicted_mid_pct is None
    assert fix.note.startswith("not predicted: no model predicts")


def test_numbers_are_finite() -> None:
    before = steps(6, 1.0).metrics(0, reward=math.nan).metrics(1, reward=math.inf).build()
    compared(before, before)


def test_a_prediction_is_not_judged_where_another_option_changed_too() -> None:
    settings = {"offload.optimizer": True}
    before = run(
        phases={"rollout": 5.0, "offload": 2.0, "train": 3.0},
        knobs=settings,
        config={"reward_funcs": "a"},
    ).build()
    after = run(
        phases={"rollout": 5.0, "train": 3.0},
        knobs={"offload.optimizer": False},
        config={"reward_funcs": "b"},
    ).build()
    (fix,) = compared(before, after).fixes
    assert fix.inside is None
    assert fix.note.startswith("the option reward_funcs differs too")


def test_the_facts_of_a_side() -> None:
    trace = run(ranks=2).build()
    side = compared(trace, trace).before
    assert (side.gpus, side.steps, side.steps_total, side.set_apart) == (
        "2 x NVIDIA A100-SXM4-80GB",
        6,
        6,
        0,
    )
    assert side.tokens_per_step is None
    long_first = TraceBuilder()
    for number in range(6):
        long_first.step(0, number, 100.0 * number, {"train": 50.0 if number == 0 else 10.0})
    side = compared(trace, long_first.build()).after
    assert (side.gpus, side.steps, side.steps_total, side.set_apart) == ("no GPU sampled", 5, 6, 1)


@pytest.mark.parametrize(
    ("low", "high", "inside"),
    [(-22.0, -11.0, None), (-22.0, -11.1, False), (-7.0, 3.0, None), (-6.9, 3.0, False)],
)
def test_an_interval_that_touches_the_predicted_one_decides_nothing(
    low: float, high: float, inside: bool | None
) -> None:
    measured = structs.replace(CHANGE, change_pct=(low + high) / 2, low_pct=low, high_pct=high)
    assert _outcome(SAID, measured, "")[0] is inside


@pytest.mark.parametrize(
    ("change", "inside"), [(-7.0, True), (-6.94, None), (-11.04, True), (-11.06, None)]
)
def test_a_prediction_is_held_to_the_digit_that_is_shown(
    change: float, inside: bool | None
) -> None:
    measured = structs.replace(CHANGE, change_pct=change)
    assert _outcome(SAID, measured, "")[0] is inside
