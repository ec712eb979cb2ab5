"""An illness is told by one rule: which one, where two see it."""

from __future__ import annotations

import inspect
import re
from graphlib import TopologicalSorter
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.engine import ask
from grpo_doctor.findings.rule import Finding, Passed
from grpo_doctor.findings.rules import (
    ALL,
    gd002_data_starvation,
    gd004_straggler_rank,
    gd033_slow_reward,
)
from grpo_doctor.findings.shared import DEFERS_TO
from grpo_doctor.findings.view import RuleFile
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run, straggling
from tests.unit.findings.recorded import count, inside, judged
from tests.unit.findings.rules.saying import counted, finding_in, passed, step_s
from tests.unit.findings.rules.test_gd023 import TIMES
from tests.unit.findings.rules.test_gd030 import RESTARTS, loads


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


def test_waits_in_bursts_are_not_told_as_too_few_processes() -> None:
    assert "in bursts: see GD030" in passed(loads(RESTARTS), "GD002")


@pytest.mark.parametrize(("effort_s", "silent"), [(1.0, True), (30.0, False)])
def test_processes_that_have_time_are_not_what_is_waited_for(effort_s: float, silent: bool) -> None:
    build = run({**HEALTHY, "dataload": 0.6}, knobs={**SETTINGS, "dataload.num_workers": 1})
    count(build, "dataload/read_s", effort_s)
    answer = judged(gd002_data_starvation, build)
    assert ("time to spare" in getattr(answer, "note", "")) is silent


def test_an_offload_that_only_collects_garbage_is_the_collectors_rule() -> None:
    knobs = {**SETTINGS, "offload.optimizer": True, "offload.gc_collect": True}
    build = run({**HEALTHY, "offload": 2.0}, knobs=knobs, memory_gib=None)
    for rank, start in _phase_starts(build, "offload"):
        build.span(rank, "offload/collect", start, start + 1.9, depth=2)
    assert "see GD011" in passed(build, "GD001")
    assert finding_in(build, "GD011").fixes[0].knob == "offload.gc_collect"


def test_what_a_collection_stands_in_line_is_not_held_against_it() -> None:
    pauses = {"gc/seconds": 2.4, "gc/longest_s": 2.0}  # of steps of 9.85 s
    assert finding_in(counted(run(), pauses), "GD024").severity == "high"
    build = counted(run(), pauses)
    build.series("host.cpu", "%", TIMES, [99.0, 99.0])
    for rank in range(4):
        build.series("rank.cpu_wait", "%", TIMES, [30.0, 30.0], scope="rank", rank=rank)
    answer = finding_in(build, "GD024")
    assert answer.severity == "medium"
    assert answer.cost == pytest.approx(2.4 / step_s(), rel=0.01)


def test_scoring_that_mostly_collects_garbage_is_the_collectors_rule() -> None:
    build = run({**HEALTHY, "reward": 12.0})
    inside(build, "reward/judge", 11.9)
    assert isinstance(judged(gd033_slow_reward, build), Finding)
    build = counted(run({**HEALTHY, "reward": 12.0}), {"gc/seconds": 16.5, "gc/longest_s": 2.0})
    inside(build, "reward/judge", 11.9)
    answer = judged(gd033_slow_reward, build)
    assert isinstance(answer, Passed)
    assert "see GD024" in answer.note


def test_a_rank_that_is_late_by_chance_is_not_the_straggler() -> None:
    build = TraceBuilder(ranks=2)
    now = 0.0
    for step, extra in enumerate([0.2, 0.2, 0.2, 3.0, 0.2, 0.2, 0.2, 3.0, 0.2]):
        end = now + 4.1 + extra
        for rank, train in ((0, 4.0), (1, 4.0 + extra)):
            build.span(rank, "train", now, end)
            build.collective(rank, step, now + train, end)
            build.step(rank, step, now, {}, end_s=end)
        now = end
    assert "not consistently longer" in passed(build, "GD004")


def _phase_starts(build: TraceBuilder, phase: str) -> list[tuple[int, float]]:
    names = list(build._names.names)
    return [
        (build._rows["process"][i], build._rows["start_ns"][i] / 1e9)
        for i, name in enumerate(build._rows["name"])
        if names[name] == phase
    ]
