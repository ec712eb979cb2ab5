"""What findings say in sentences agrees with their evidence, and no reason is left open."""

from __future__ import annotations

import itertools
import re

import pytest

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.engine import ask
from grpo_doctor.findings.rule import Finding
from grpo_doctor.findings.rules import ALL
from tests.unit.findings.registry import EXAMPLES, runs_of

PART = re.compile(r"(\d+(?:\.\d+)?)% of (?:it|that|that time)\b")
HEDGED = re.compile(
    r", or | or (?:they|it|the \w+) (?:is|are|was|were) not (?:known|recorded|seen)"
)
BY_ID = {rule.RULE.id: rule for rule in ALL}


def shares(finding: Finding) -> list[float]:
    """All percentages that the evidence can mean: as they are, and of one number in another."""
    rows = [e for e in finding.evidence if isinstance(e.value, int | float) and e.value]
    stated = [float(e.value) for e in rows if e.unit.startswith("%")]
    pairs = itertools.permutations(rows, 2)
    return stated + [100 * float(a.value) / float(b.value) for a, b in pairs if a.unit == b.unit]


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_part_is_a_part_of_what_the_sentence_names(rule: str) -> None:
    for build in runs_of(rule).values():
        answer = ask(BY_ID[rule], RunView.of(build().build()))
        if isinstance(answer, Finding):
            for number in map(float, PART.findall(answer.cause)):
                assert number <= 100
                assert any(abs(number - share) <= 1 for share in shares(answer)), answer.cause


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_reason_is_the_one_that_holds(rule: str) -> None:
    for build in runs_of(rule).values():
        results = run_rules(RunView.of(build().build()))
        for _, answer in results.not_applicable:
            assert not HEDGED.search(answer.reason), answer.reason
        for _, passed in results.passed:
            assert not HEDGED.search(passed.note), passed.note
