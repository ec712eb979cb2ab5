"""What a change was predicted to bring, and whether the run after bears it out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.compare.fixes import _of_finding, _outcome, _predicted
from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.trace.model import Trace
from grpo_doctor.whatif import Edit, Effect, Prediction, Withheld, predict
from grpo_doctor_reports.schema.compare import Change
from tests.unit.compare.runs import compared, steps
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, healthy, offloaded, run


def test_a_fix_is_measured_beside_its_prediction() -> None:
    comparison = compared(offloaded().build(), healthy())
    assert comparison.step_time.verdict == "faster"
    assert comparison.verdict.startswith("AFTER takes 17% less time per step")
    (fix,) = comparison.fixes
    assert fix.knobs == {"offload.optimizer": [True, False]}
    assert fix.findings == ["GD001"]
    assert fix.inside is True
    assert fix.measured_pct == pytest.approx(fix.predicted_mid_pct, abs=0.5)
    (phase,) = [p for p in comparison.phases if p.verdict != "no difference"]
    assert (phase.phase, phase.verdict) == ("offload", "faster")
    assert phase.change_s == pytest.approx(-2.02)
    assert {f.id: f.state for f in comparison.findings}["GD001"] == "gone"


PREDICTION = Prediction(-11.0, -9.0, -7.0, "a replay")
NOTHING = Prediction(0.0, 0.0, 0.0, "a replay")


@pytest.mark.parametrize(("prediction", "measured", "seconds", "inside"), [
    (PREDICTION, (-10.0, -12.0, -8.0), "", True),
    (PREDICTION, (-10.0, -12.0, -8.0), "the framework", None),
    (PREDICTION, (-10.0, None, None), "", None),
    (PREDICTION, (-20.0, -22.0, -18.0), "", False),
    (PREDICTION, (-20.0, -60.0, 20.0), "", None),
    # an interval that touches the predicted one decides nothing
    (PREDICTION, (-16.5, -22.0, -11.0), "", None),
    (PREDICTION, (-16.55, -22.0, -11.1), "", False),
    (PREDICTION, (-2.0, -7.0, 3.0), "", None),
    (PREDICTION, (-1.95, -6.9, 3.0), "", False),
    # held to the digit that is shown
    (PREDICTION, (-7.0, -12.0, -8.0), "", True),
    (PREDICTION, (-6.94, -12.0, -8.0), "", None),
    (PREDICTION, (-11.04, -12.0, -8.0), "", True),
    (PREDICTION, (-11.06, -12.0, -8.0), "", None),
    # no change is held to what two runs of the same settings are taken to differ by
    (NOTHING, (-0.5, -2.0, 1.0), "", True),
    (NOTHING, (1.5, 1.0, 2.0), "", True),
    (NOTHING, (2.0, 1.0, 3.0), "", True),
    (NOTHING, (2.01, 1.0, 3.0), "", False),
    (NOTHING, (-9.0, -10.0, -8.0), "", False),
])  # fmt: skip
def test_a_prediction_holds_fails_or_can_not_be_judged(
    prediction: Prediction,
    measured: tuple[float, float | None, float | None],
    seconds: str,
    inside: bool | None,
) -> None:
    outcome, note = _outcome(prediction, Change(1.0, 0.9, *measured, verdict="faster"), seconds)
    assert outcome is inside
    assert bool(note) == (inside is None)


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
        predicted = predict(ComparedRun.of(healthy()).view.model, Effect(edits), "so")
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


def test_a_fix_that_sets_more_than_this_knob_is_no_prediction_of_it() -> None:
    first = ComparedRun.of(offloaded().build())
    (rule, finding) = next(pair for pair in first.results.findings if pair[0].id == "GD001")
    more = replace(finding.fixes[0], spelling="--offload_optimizer false --offload_model false")
    results = replace(first.results, findings=((rule, replace(finding, fixes=(more,))),))
    assert _of_finding(first, more.knob or "", more.after) is not None
    assert _of_finding(ComparedRun(first.view, results), more.knob or "", more.after) is None


def test_a_change_without_a_law_says_so() -> None:
    before = run(knobs={"train.weight_decay": 0.1}).build()
    after = run(knobs={"train.weight_decay": 0.2}).build()
    (fix,) = compared(before, after).fixes
    assert fix.predicted_mid_pct is None
    assert fix.note.startswith("not predicted: no model predicts")


@pytest.mark.parametrize("more", [
    ({"train.max_steps": 30}, {"train.max_steps": 20}),
    ({"checkpoint.directory": "a"}, {"checkpoint.directory": "b"}),
    ({"model.name": "/a/tiny.bin"}, {"model.name": "/b/tiny.bin"}),
])  # fmt: skip
def test_what_can_not_change_a_step_leaves_the_prediction_to_be_judged(
    more: tuple[dict[str, object], dict[str, object]],
) -> None:
    knobs = [{**SETTINGS, "offload.optimizer": on, **own} for on, own in zip((1, 0), more)]
    before = run(
        phases={"rollout": 5.0, "offload": 2.0, "train": 3.0},
        knobs={**knobs[0], "offload.optimizer": True},
    ).build()
    after = run(
        phases={"rollout": 5.0, "train": 3.0}, knobs={**knobs[1], "offload.optimizer": False}
    ).build()
    (fix,) = compared(before, after).fixes
    assert (list(fix.knobs), fix.inside) == (["offload.optimizer"], True)


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
