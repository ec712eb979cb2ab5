"""An illness is told by one rule: which one, where two see it."""

from __future__ import annotations

import inspect
import re
from graphlib import TopologicalSorter
from types import ModuleType, SimpleNamespace
from typing import cast

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.engine import ask
from grpo_doctor.findings.rule import Passed
from grpo_doctor.findings.rules import (
    ALL,
    gd002_data_starvation,
    gd004_straggler_rank,
)
from grpo_doctor.findings.shared import DEFERS_TO
from grpo_doctor.findings.view import RuleFile
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run, straggling


def view_of(build: TraceBuilder) -> RunView:
    return RunView.of(build.build())


def test_a_rule_is_asked_after_those_that_it_defers_to_and_all_of_them_once() -> None:
    view, views = view_of(run()), []

    def check(view: RunView) -> Passed:
        views.append((view, set(view.answers)))
        return Passed("")

    rule = cast(RuleFile, SimpleNamespace(RULE=gd002_data_starvation.RULE, check=check))
    assert ask(rule, view) is ask(rule, view)
    assert run_rules(view, [rule]).passed == ((rule.RULE, Passed("")),)
    assert [(narrow.unrestricted, asked) for narrow, asked in views] == [(view, {"GD030"})]


def test_what_another_rule_finds_is_what_it_says_itself() -> None:
    view = view_of(straggling())
    assert view.found("GD004") is None
    ((_, finding),) = run_rules(view, [gd004_straggler_rank]).findings
    assert view.found("GD004") is finding


def test_a_rule_reads_only_those_that_it_defers_to_and_none_defers_back() -> None:
    for rule in ALL:
        source = inspect.getsource(cast(ModuleType, rule))
        read = set(re.findall(r'view\.found\("(GD\d{3})"\)', source))
        assert read == set(DEFERS_TO.get(rule.RULE.id, ())), rule.RULE.id
        assert "findings.rules" not in source
    graph = TopologicalSorter(DEFERS_TO)
    graph.prepare()  # raises where two defer to each other
