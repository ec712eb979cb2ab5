"""Each sanity rule at the edge of its flaw: a number at its limit, one side of each condition."""

from __future__ import annotations

import pytest

from tests.unit.launches.rules.edges import EDGES, RECORDED, recorded
from tests.unit.launches.rules.edges.edge import RULES, Edge

HOW = "python -m tests.unit.launches.rules.edges"


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)
def test_a_flaw_begins_exactly_at_its_edge(edge: Edge) -> None:
    assert (edge.flaw() is not None) is edge.flawed


def test_flaws_are_told_in_the_words_that_were_written_down() -> None:
    assert list(recorded()) == RECORDED.read_text("utf-8").rstrip("\n").split("\n\n"), HOW


def test_every_rule_has_both_sides_of_an_edge() -> None:
    for flawed in (True, False):
        rules = {edge.rule for edge in EDGES if edge.flawed is flawed}
        assert rules == set(RULES)
