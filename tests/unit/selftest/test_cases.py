from __future__ import annotations

from grpo_doctor.findings.rules import ALL
from grpo_doctor.selftest import CASES, Case, Outcome, judge
from grpo_doctor.selftest.actor import STEPS, metrics

ILL = Case("ill", "", frozenset({"GD001", "GD002"}), frozenset({"GD003"}))


def test_one_of_several_names_of_an_illness_is_enough() -> None:
    assert judge(ILL, ["GD002"], 1.0).right
    assert judge(ILL, ["GD003", "GD001"], 1.0).right


def test_what_follows_is_not_enough_and_what_is_not_so_is_wrong() -> None:
    assert judge(ILL, ["GD003"], 1.0).missed
    outcome = judge(ILL, ["GD001", "GD009"], 1.0)
    assert (outcome.wrong, outcome.right) == (("GD009",), False)
    assert not Outcome(ILL, ("GD001",), problem="it did not end").right


def test_a_healthy_job_must_stay_silent() -> None:
    healthy = Case("healthy", "")
    assert judge(healthy, [], 1.0).right
    assert not judge(healthy, ["GD001"], 1.0).right


def test_a_busy_machine_is_held_against_no_job() -> None:
    for case in CASES:
        assert judge(case, [*sorted(case.has)[:1], "GD023"], 1.0).right


def test_cases_name_rules_that_exist() -> None:
    rule_ids = {rule.RULE.id for rule in ALL}
    assert {i for case in CASES for i in case.has | case.may} <= rule_ids
    assert len({case.name for case in CASES}) == len(CASES)


def test_metrics_are_ill_in_one_way_each() -> None:
    assert metrics("cut-off", 3)["completions/clipped_ratio"] > 0.3
    assert metrics("collapse", STEPS)["entropy"] < 0.01 < metrics("healthy", STEPS)["entropy"]
    assert metrics("nan-reward", 3)["reward"] != metrics("nan-reward", 3)["reward"]
