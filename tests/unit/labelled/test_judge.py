"""The bench's own arithmetic: a wrong score would make a table that means nothing."""

from __future__ import annotations

from grpo_doctor.findings.rules import ALL
from tests.labelled.case import ALWAYS_FAIR, Case, flags_of
from tests.labelled.judge import Outcome, score
from tests.labelled.registry import cases
from tests.labelled.table import section

ILL = Case("ill", has=frozenset({"GD001"}), may=frozenset({"GD002"}), strength="weak")
WELL = Case("healthy: one")


def outcome(case: Case, *rules: str, severity: str = "low") -> Outcome:
    return Outcome(case, dict.fromkeys(rules, severity), 1.0)


def test_recall_counts_ill_runs_and_precision_findings() -> None:
    total = score(
        [
            outcome(ILL, "GD001", "GD002"),
            outcome(ILL, "GD009"),
            outcome(WELL),
            outcome(WELL, "GD009"),
        ]
    )
    assert (total.ill, total.recalled, total.recall) == (2, 1, 0.5)
    assert (total.true_findings, total.false_findings, total.precision) == (2, 2, 0.5)


def test_a_grave_finding_on_a_healthy_run_is_an_alarm() -> None:
    assert score([outcome(WELL, "GD009", severity="high")]).healthy_alarms == 1
    assert score([outcome(ILL, "GD009", severity="high")]).healthy_alarms == 0


def test_a_run_that_failed_counts_nowhere_and_is_shown() -> None:
    failed = Outcome(ILL, {}, 1.0, failed="no port")
    assert score([failed]).runs == 0
    assert "not run: ill (weak): no port" in section([failed], "bench")


def test_a_case_overrides_flags_of_the_base() -> None:
    flags = flags_of(Case("x", ("--max_steps", "3", "--beta", "0")), "a model")
    assert flags.count("--max_steps") == 1
    assert flags[flags.index("--max_steps") + 1] == "3"
    assert "--output_dir" in flags


def test_the_set_is_large_enough_and_names_rules_that_exist() -> None:
    every = cases()
    rule_ids = {rule.RULE.id for rule in ALL}
    assert len(every) >= 60
    assert {i for case in every for i in case.has | case.may} | ALWAYS_FAIR <= rule_ids
    ill = {case.name for case in every if case.has}
    strengths = {name: {c.strength for c in every if c.name == name} for name in ill}
    assert all(levels == {"weak", "medium", "strong"} for levels in strengths.values())
    assert sum(not case.has for case in every) >= 10


def test_the_table_has_a_row_per_illness() -> None:
    page = section([outcome(ILL, "GD001"), outcome(WELL)], "bench")
    assert "| ill | GD001 | yes |" in page
    assert "| healthy | none | 1 of 1 |" in page
