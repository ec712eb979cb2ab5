"""What is said of a comparison, in the words of page and terminal."""
# ruff: noqa: RUF001 (the minus sign is what a report prints)

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports import compare as words
from grpo_doctor_reports.compare import comparison_page, comparison_text, curve_of
from grpo_doctor_reports.schema.compare import (
    Change,
    ComparisonDocument,
    FixResult,
    SettingChange,
    read_comparison,
)


def read(**parts: Any) -> ComparisonDocument:
    return read_comparison({"schema": 1, **parts})


def text(**parts: Any) -> str:
    return comparison_text({"schema": 1, **parts}, 100, color=False)


@pytest.mark.parametrize(("sources", "ids", "names"), [
    (("a", "b"), ("1", "1"), ["a", "b"]),
    (("trace.json", "trace.json"), ("1", "2"), ["1", "2"]),
    (("trace.json", ""), ("1", "2"), ["1", "2"]),
    (("trace.json", "trace.json"), ("1", "1"), ["before", "after"]),
])  # fmt: skip
def test_runs_are_called_by_what_tells_them_apart(
    sources: tuple[str, str], ids: tuple[str, str], names: list[str]
) -> None:
    before, after = ({"source": s, "id": i} for s, i in zip(sources, ids, strict=True))
    assert words.names(read(before=before, after=after)) == names


@pytest.mark.parametrize(("change", "sentence"), [
    (Change(change_pct=None, note="no step"), "no step"),
    (Change(change_pct=None), "unknown"),
    (Change(change_pct=5.0, low_pct=1.0, high_pct=9.0), "+5% (+1% to +9%)"),
    (Change(change_pct=-59.0, low_pct=-65.0, high_pct=-52.0), "2.4x as fast (2.1x to 2.9x)"),
    (Change(change_pct=140.0, low_pct=90.0, high_pct=190.0), "2.4x as long (1.9x to 2.9x)"),
    (Change(change_pct=-95.0, low_pct=-96.0, high_pct=-94.0), "20x as fast (17x to 25x)"),
    (Change(change_pct=50.0, low_pct=25.0, high_pct=75.0), "1.5x as long (1.2x to 1.8x)"),
    (Change(change_pct=49.0, low_pct=25.0, high_pct=75.0), "+49% (+25% to +75%)"),
    (Change(change_pct=100.0, low_pct=0.0, high_pct=200.0), "2.0x as long (1.0x to 3.0x)"),
    (Change(change_pct=100.0, low_pct=-1.0, high_pct=200.0), "+100% (−1% to +200%)"),
    (Change(change_pct=900.0, low_pct=850.0, high_pct=950.0), "10x as long (9.5x to 10x)"),
    (Change(change_pct=-33.0, low_pct=-38.0, high_pct=-28.0), "−33% (−38% to −28%)"),
    (Change(change_pct=-59.0, low_pct=-95.0, high_pct=9.0), "−59% (−95% to +9%)"),
    (Change(change_pct=-100.0, low_pct=-100.0, high_pct=-99.0), "−100% (−100% to −99%)"),
    (Change(change_pct=5.0, low_pct=1.0), "+5% (no interval)"),
    (Change(change_pct=5.0, high_pct=1.0, note="one step"), "+5% (one step)"),
])  # fmt: skip
def test_a_change_has_an_interval_or_the_reason_why_not(change: Change, sentence: str) -> None:
    assert words.change(change) == sentence


def test_whether_a_prediction_held() -> None:
    assert words.outcome(FixResult(inside=True)) == "as predicted"
    assert words.outcome(FixResult(inside=False)) == "not as predicted"
    missed = FixResult(predicted_mid_pct=-10.0, measured_pct=-44.0, inside=False)
    assert words.outcome(missed) == "not as predicted, 4.4 times the predicted change"
    assert words.outcome(FixResult(note="too few steps", predicted_mid_pct=-5.0)) == (
        "not evaluated: too few steps"
    )
    assert words.outcome(FixResult(predicted_mid_pct=-5.0)) == "not evaluated"


@pytest.mark.parametrize(("measured", "said"), [
    (-9.8, "as predicted"),
    (-13.0, "as predicted"),
    (-14.0, "within the predicted interval"),
    (-16.6, "at the edge of the predicted interval, 1.7 times the predicted change"),
    (-6.0, "as predicted"),
    (-2.1, "at the edge of the predicted interval, 0.2 times the predicted change"),
    (0.0, "at the edge of the predicted interval"),
])  # fmt: skip
def test_where_in_the_predicted_interval_a_change_lies(measured: float, said: str) -> None:
    fix = FixResult(
        predicted_low_pct=-17.0, predicted_mid_pct=-9.8, predicted_high_pct=-2.0,
        measured_pct=measured, inside=True,
    )  # fmt: skip
    assert words.outcome(fix) == said


def test_a_setting_says_where_its_value_comes_from() -> None:
    change = SettingChange(name="x", before=1, after=2, before_from="default", after_from="read")
    assert words.setting_change(change) == "x: 1 (default) → 2"
    off = SettingChange(name="x", before=None, after=2, before_from="without effect")
    assert words.setting_change(off) == "x: no effect → 2"


def test_a_prediction_or_none() -> None:
    fix = FixResult(predicted_low_pct=-9, predicted_mid_pct=-5, predicted_high_pct=0)
    assert words.prediction(fix) == "−5% (−9% to 0%)"
    assert words.predicted([FixResult(), fix]) == [fix]
    assert words.not_predicted([FixResult(unpredicted="no model")]) == (
        "No prediction for this change: no model."
    )
    assert words.not_predicted([fix]) == ""
    fixes = [
        FixResult(unpredicted="no model"),
        FixResult(),
        FixResult(predicted_mid_pct=-5, unpredicted="small"),
    ]
    assert words.not_predicted(fixes) == "No prediction for this change: no model."
    assert words.not_predicted([FixResult()]) == ""
    assert words.not_predicted([FixResult(unpredicted=why) for why in ("no model", "no step")]) == (
        "No prediction for this change: no model; no step."
    )


def metrics(*states: str) -> ComparisonDocument:
    return read(metrics=[{"name": f"m{i}", "state": state} for i, state in enumerate(states)])


@pytest.mark.parametrize(("states", "sentence"), [
    ([], "No training metric is in both runs."),
    (["identical"] * 2, "All 2 training metrics are bit-identical over the common steps."),
    (["not enough evidence"] * 2,
        "Too few common steps to say where training metrics diverge (2 compared)."),
    (["identical", "alike", "not enough evidence"],
        "No training metric diverges by more than its own noise (2 compared, 1 too short)."),
    (["alike", "parted"], "1 of 2 training metrics diverge: m1."),
    (["parted"] * 6, "6 of 6 training metrics diverge: m0, m1, m2, m3, m4, m5."),
    (["parted"] * 8, "8 of 8 training metrics diverge: m0, m1, m2, m3, m4, m5 and 2 more."),
])  # fmt: skip
def test_what_became_of_metrics(states: list[str], sentence: str) -> None:
    assert words.metrics_sentence(metrics(*states)) == sentence


def test_metrics_that_part_come_first_and_else_keep_their_order() -> None:
    ordered = words.metric_order(metrics("alike", "parted", "identical", "parted").metrics)
    assert [metric.name for metric in ordered] == ["m1", "m3", "m0", "m2"]


def test_points_without_a_step_or_a_time_are_left_out() -> None:
    steps = {"before": {"step": [1, None, 3, 4], "seconds": [1.0, 2.0, None, 4.0, 5.0]}}
    columns = read(steps=steps).steps
    assert curve_of(columns["before"]) == [(1, 1.0), (4, 4.0)]
    assert curve_of(columns.get("after", {})) == []


def test_settings_that_no_knob_stands_for_are_listed_too() -> None:
    settings = [
        {"name": "known", "knob": "train.lr", "before": 1, "after": 2},
        {"name": "own", "before": None, "after": "x"},
    ]
    alone = text(settings=settings)
    assert "known: 1 → 2" in alone
    assert "own: not set → x" in alone
    assert "own: x → not set" in text(settings=[{"name": "own", "before": "x", "after": None}])
    fix = {"knobs": {"train.lr": [1, None]}, "predicted_mid_pct": -5.0, "measured_pct": -4.0}
    beside = text(settings=settings, fixes=[fix])
    assert "known: 1 → 2" in beside
    assert "own: not set → x" in beside
    assert "predicted −5%" in beside
    assert "No difference among the settings that both runs recorded." in text()


def test_an_unnamed_tool_and_a_version() -> None:
    assert "Drawn by grpo-doctor ." in comparison_page({"schema": 1}).decode()
    assert "Drawn by mine ." in comparison_page({"schema": 1, "tool": {"name": "mine"}}).decode()
    side = read(before={"framework": "trl", "framework_version": "0.25", "steps": 1}).before
    assert words.side(side).startswith("trl 0.25 · 1 step of 0")


def test_names_stand_left_and_numbers_right() -> None:
    phases = [
        {"phase": "train", "before_s": 1.0, "after_s": 10.0},
        {"phase": "rollout", "before_s": 12.5, "after_s": 2.0},
    ]
    lines = text(phases=phases).splitlines()
    train, rollout = (next(line for line in lines if line.startswith(n)) for n in ("tr", "roll"))
    assert train.index("1 s") + 3 == rollout.index("12.5 s") + 6
    assert train.index("10 s") + 4 == rollout.index("2 s") + 3
