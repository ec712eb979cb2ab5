from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from grpo_doctor.document.whatif import whatif_entry
from grpo_doctor.findings import Results, RunView
from grpo_doctor.findings.rule import Finding, Fix, Rule
from grpo_doctor.whatif import Prediction, Replay, Withheld, without
from grpo_doctor_reports.schema.findings import WhatifUnknown
from tests.build import TraceBuilder

PARTS = ("dataload", "rollout", "reward", "logprob", "train", "optimizer", "sync", "offload")


def view(steps: int = 6) -> RunView:
    build = TraceBuilder()
    for number in range(steps):
        build.step(0, number, 10.0 * number, dict.fromkeys(PARTS, 1.0))
    return RunView.of(build.build())


def results(run: RunView, *fixes: tuple[str | None, object, Prediction | None]) -> Results:
    """One finding per fix: its knob, the value, the prediction."""
    entry = []
    for number, (knob, value, predicted) in enumerate(fixes):
        rule = Rule(f"GD{number:03d}", "slug", f"Problem {number}", "system", ())
        unknown = "" if predicted else "nobody knows"
        fix = Fix(knob, None, value, f"--flag {number}", predicted, "same-math", "", unknown)
        entry.append(
            (
                rule,
                Finding(
                    severity="low", confidence=1.0, evidence=(), cause="", fixes=(fix,), cost=0.1
                ),
            )
        )
    return Results(tuple(entry), (), (), ())


def removal(run: RunView, part: str) -> Prediction:
    entry = run.gain(Replay((without(part),), f"without {part}"))
    assert not isinstance(entry, Withheld)
    return entry


def test_each_fix_alone_and_every_set_of_them() -> None:
    run = view()
    fixes = [(f"knob.{part}", 1, removal(run, part)) for part in PARTS[:3]]
    entry = whatif_entry(run, results(run, *fixes))
    assert [fix.finding for fix in entry.fixes] == ["GD000", "GD001", "GD002"]
    assert [fix.mid for fix in entry.fixes] == [-12.5] * 3
    sets = {tuple(joint.fixes): joint.mid for joint in entry.sets}
    assert set(sets) == {c for n in (1, 2, 3) for c in itertools.combinations(range(3), n)}
    assert sets[0, 1, 2] == -37.5
    assert entry.law_error_pct == 0
    assert entry.step_time_s == pytest.approx(8)


def test_the_same_change_in_two_findings_counts_once_together() -> None:
    run = view()
    removed = removal(run, "offload")
    entry = whatif_entry(
        run, results(run, (None, None, removed), ("offload.model", False, removed))
    )
    assert {tuple(joint.fixes): joint.mid for joint in entry.sets}[0, 1] == -12.5


def test_two_values_of_one_setting_exclude_each_other() -> None:
    run = view()
    joint = removal(run, "dataload")
    entry = whatif_entry(run, results(run, ("workers", 2, joint), ("workers", 4, joint)))
    assert [joint.fixes for joint in entry.sets] == [[0], [1]]


def test_values_of_different_settings_do_not() -> None:
    run = view()
    fixes = ("workers", 2, removal(run, "dataload")), ("offload.model", False, removal(run, "sync"))
    assert [joint.fixes for joint in whatif_entry(run, results(run, *fixes)).sets] == [
        [0],
        [1],
        [0, 1],
    ]
    words = (None, "a", removal(run, "dataload")), (None, "b", removal(run, "sync"))
    assert [joint.fixes for joint in whatif_entry(run, results(run, *words)).sets] == [
        [0],
        [1],
        [0, 1],
    ]


def test_of_fixes_without_a_prediction_those_that_have_a_reason_are_told() -> None:
    run = view()
    base = results(run, ("a.knob", 1, removal(run, "sync")), ("b.knob", 1, None))
    silent = results(run, ("c.knob", 1, None))
    (rule, finding), *_ = silent.findings
    finding = replace(finding, fixes=(replace(finding.fixes[0], unpredicted=""),))
    entry = whatif_entry(run, replace(base, findings=(*base.findings, (rule, finding))))
    assert [(fix.finding, fix.reason) for fix in entry.unknown] == [("GD001", "nobody knows")]


def test_of_eight_fixes_the_seven_that_gain_most_are_kept() -> None:
    run = view()
    fixes = [(f"knob.{part}", 1, removal(run, part)) for part in PARTS[:7]]
    small = run.gain(Replay((without("nothing"),), "so"))
    assert not isinstance(small, Withheld)
    entry = whatif_entry(run, results(run, *fixes, ("knob.none", 1, small)))
    assert [fix.finding for fix in entry.fixes] == [f"GD{n:03d}" for n in range(7)]
    assert len(entry.sets) == 127


def test_what_the_headline_names_is_kept_and_chosen_however_little_it_gains() -> None:
    run = view()
    small = run.gain(Replay((without("nothing"),), "so"))
    assert not isinstance(small, Withheld)
    fixes = [(f"knob.{part}", 1, removal(run, part)) for part in PARTS[:7]]
    entry = whatif_entry(run, results(run, ("knob.none", 1, small), *fixes))
    assert entry.fixes[0].finding == "GD000"
    assert entry.chosen == [0]


def test_a_next_step_can_be_ticked_and_counts_in_the_sum_of_grave_findings() -> None:
    run = view()
    found = results(run, ("a", 1, removal(run, "sync")), (None, None, removal(run, "reward")))
    advice = replace(found.findings[1][1].fixes[0], form="words")
    severe = [replace(finding, severity="medium") for _, finding in found.findings]
    severe[1] = replace(severe[1], fixes=(advice,))
    rules = [rule for rule, _ in found.findings]
    entry = whatif_entry(run, replace(found, findings=tuple(zip(rules, severe, strict=True))))
    offered = [(fix.next_step, fix.spelling) for fix in entry.fixes]
    assert offered == [(False, "--flag 0"), (True, "")]
    assert entry.chosen == [0]
    assert entry.together == [0, 1]


def test_a_fix_without_a_prediction_has_its_reason() -> None:
    run = view()
    entry = whatif_entry(run, results(run, ("knob", 1, None)))
    assert entry.unknown == [
        WhatifUnknown(finding="GD000", label="Problem 0", reason="nobody knows")
    ]


def test_fixes_of_one_finding_are_told_apart_by_what_they_set() -> None:
    run, rule = view(), Rule("GD009", "slug", "Problem", "system", ())
    unknown = "nobody knows"
    fixes = (
        Fix("a.knob", None, 1, "--a 1", None, "same-math", "", unknown),
        Fix("b.knob", None, 2, "--b 2", None, "same-math", "", unknown),
        Fix("b.knob", None, True, "--b 4", None, "same-math", "", unknown),
        Fix(None, None, None, "buy a faster disk", None, "same-math", "", unknown),
        Fix("c.knob", None, 1, "--c 1", removal(run, "sync"), "same-math", ""),
    )
    finding = Finding(severity="low", confidence=1.0, evidence=(), cause="", fixes=fixes, cost=0.1)
    entry = whatif_entry(run, Results(((rule, finding),), (), (), ()))
    assert [joint.label for joint in entry.unknown] == [
        "Problem: a.knob", "Problem: b.knob 2", "Problem: b.knob true",
        "Problem: buy a faster disk",
    ]  # fmt: skip
    assert [joint.label for joint in entry.fixes] == ["Problem: c.knob"]


def test_a_run_without_steps_has_nothing_and_says_why() -> None:
    run = view(steps=0)
    entry = whatif_entry(run, results(run))
    assert (entry.fixes, entry.sets, entry.law_error_pct) == ([], [], None)
    assert "at least 3 steps" in entry.note
