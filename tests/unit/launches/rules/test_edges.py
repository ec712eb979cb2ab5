"""Each sanity rule at the edge of its flaw: a number at its limit, one side of each condition."""

from __future__ import annotations

import pytest

from tests.unit.launches.rules.edges import EDGES, RECORDED, recorded
from tests.unit.launches.rules.edges.edge import RULES

HOW = "python -m tests.unit.launches.rules.edges"


@pytest.mark.parametrize("rule", RULES)
def test_a_flaw_begins_exactly_at_its_edge(rule: str) -> None:
    edges = [edge for edge in EDGES if edge.rule == rule]
    assert {edge.flawed for edge in edges} == {True, False}
    assert [edge.name for edge in edges if (edge.flaw() is not None) is not edge.flawed] == []


def test_flaws_are_told_in_the_words_that_were_written_down() -> None:
    assert list(recorded()) == RECORDED.read_text("utf-8").rstrip("\n").split("\n\n"), HOW


def test_every_edge_is_of_a_rule() -> None:
    assert {edge.rule for edge in EDGES} == set(RULES)
