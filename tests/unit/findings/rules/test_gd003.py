"""A rollout without vLLM at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

from tests.unit.findings.rules.saying import (
    counted,
    even,
    finding_in,
    not_applicable,
    passed,
    run,
    value,
)

WITHOUT = {"vllm.use": False}


def test_three_tenths_of_the_step_are_enough() -> None:
    assert finding_in(even({"rollout": 3.0}, knobs=WITHOUT), "GD003").cost == 0.3
    assert passed(even({"rollout": 2.9}, knobs=WITHOUT), "GD003") == (
        "the rollout takes 29% of the step"
    )
    assert not_applicable(even({"rollout": 9.0}), "GD003") == "vLLM is in use"


def test_the_speed_of_generating_is_shown_where_tokens_were_counted() -> None:
    build = counted(run(knobs=WITHOUT), {"rollout/tokens": 505.0})
    # 505 tokens on each of four ranks in a rollout of 5.05 s.
    assert value(finding_in(build, "GD003"), "tokens generated per second") == 400.0
    texts = [e.text for e in finding_in(run(knobs=WITHOUT), "GD003").evidence]
    assert not any("tokens" in text for text in texts)
