"""What the rules say changes only where that is meant."""

from __future__ import annotations

import pytest

from tests.unit.findings.answers import answers_of, recorded
from tests.unit.findings.registry import EXAMPLES

RECORDED = recorded()


@pytest.mark.parametrize("rule_id", EXAMPLES)
def test_a_rule_says_what_was_written_down(rule_id: str) -> None:
    assert answers_of(rule_id) == RECORDED[rule_id], "python -m tests.unit.findings.answers"
