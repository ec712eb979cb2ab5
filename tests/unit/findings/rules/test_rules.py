"""Every rule: registered, documented, and right about two runs."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import random
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np
import pytest

from grpo_doctor.findings import RunView, docs, rules, run_rules
from grpo_doctor.findings.engine import Results, ask
from grpo_doctor.findings.rule import Finding
from grpo_doctor.findings.view import RuleFile
from grpo_doctor.trace.columns import in_order
from grpo_doctor.trace.model import Trace
from tests.unit.findings.example_runs import healthy
from tests.unit.findings.registry import EXAMPLES

FOLDER = Path(rules.__file__).parent
BY_ID = {rule.RULE.id: rule for rule in rules.ALL}


def judge(trace: Trace) -> Results:
    return run_rules(RunView.of(trace))


@cache  # three tests ask
def sick(rule: str) -> tuple[Trace, Results]:
    """The example run that has this rule's finding, with what is said of it."""
    trace = EXAMPLES[rule][0]().build()
    return trace, judge(trace)


def finding_in(results: Results, rule: str) -> Finding | None:
    return next((f for r, f in results.findings if r.id == rule), None)


def test_every_file_is_registered_once_and_named_by_its_id() -> None:
    files = sorted(p.stem for p in FOLDER.glob("gd*.py"))
    registered = [Path(inspect.getfile(rule)).stem for rule in rules.ALL]  # type: ignore[arg-type]
    assert sorted(registered) == files
    assert sorted(BY_ID) == [name.partition("_")[0].upper() for name in files]
    assert len({rule.RULE.slug for rule in rules.ALL}) == len(files)


def test_every_rule_has_patients() -> None:
    assert set(EXAMPLES) == set(BY_ID)


@pytest.mark.parametrize("rule", rules.ALL, ids=list(BY_ID))
def test_every_rule_is_documented(rule: RuleFile) -> None:
    text = docs.text_of(rule.RULE)
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == list(docs.SECTIONS)
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        _, _, body = text.partition(f"## {heading}\n")
        section = body.partition(f"## {following}\n")[0] if following else body
        assert len(section.split()) >= (1 if heading == "References" else 12), heading


@pytest.mark.parametrize("rule", rules.ALL, ids=list(BY_ID))
def test_a_reason_not_to_judge_is_the_one_that_holds(rule: RuleFile) -> None:
    for call in ast.walk(ast.parse(inspect.getsource(cast(ModuleType, rule)))):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("NotApplicable", "Passed"):
            words = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant)]
            assert not any(", or " in str(word) for word in words), ast.unparse(call)


@pytest.mark.parametrize("rule", EXAMPLES)
def test_the_sick_run_has_it_and_the_other_has_not(rule: str) -> None:
    other = EXAMPLES[rule][1]
    finding = finding_in(sick(rule)[1], rule)
    assert finding is not None
    assert finding.evidence
    assert finding.fixes
    assert any(e.value for e in finding.evidence)
    assert finding_in(judge(other().build()), rule) is None


@pytest.mark.parametrize("rule", EXAMPLES)
def test_what_is_pasted_can_be_and_advice_names_no_process(rule: str) -> None:
    trace, results = sick(rule)
    finding = finding_in(results, rule)
    assert finding is not None
    assert all(fix in (*finding.to_paste, *finding.next_steps) for fix in finding.fixes)
    for fix in finding.to_paste:
        assert re.search(r"-[a-z]|=|\(|\": ", fix.spelling), fix.spelling
        assert "no flag known" not in fix.spelling
    for step in finding.next_steps:
        numbers = set(re.findall(r"\d+", step.spelling))
        assert not numbers & {str(process.os_pid) for process in trace.processes}


def test_a_healthy_run_has_no_finding() -> None:
    results = judge(healthy())
    assert results.findings == ()
    assert results.errors == ()


def shuffled(trace: Trace, seed: int) -> tuple[Trace, dict[int, int]]:
    """The same run with its ranks renumbered: old rank to new one."""
    order = [p.rank for p in trace.processes]
    random.Random(seed).shuffle(order)
    moved = dict(zip([p.rank for p in trace.processes], order, strict=True))
    old_by_new = np.argsort([moved[p.rank] for p in trace.processes])
    position = np.argsort(old_by_new).astype(np.int32)
    spans = in_order(dataclasses.replace(trace.spans, process=position[trace.spans.process]))
    processes = tuple(
        dataclasses.replace(trace.processes[old], index=new, rank=moved[trace.processes[old].rank])
        for new, old in enumerate(old_by_new)
    )
    series = tuple(
        s if s.rank is None else dataclasses.replace(s, rank=moved[s.rank]) for s in trace.series
    )
    return dataclasses.replace(trace, spans=spans, processes=processes, series=series), moved


@pytest.mark.slow
@pytest.mark.parametrize("rule", EXAMPLES)
def test_the_order_of_ranks_changes_no_verdict(rule: str) -> None:
    trace, before = sick(rule)
    # Two ranks have two orders: none is judged again, nor the one that is `before`.
    shuffles = [shuffled(trace, seed) for seed in range(5)]
    orders = {tuple(moved.items()): (again, moved) for again, moved in shuffles}
    orders.pop(tuple((p.rank, p.rank) for p in trace.processes), None)
    for again, moved in orders.values():
        after = judge(again)
        assert [r.id for r, _ in after.findings] == [r.id for r, _ in before.findings]
        for (_, old), (_, new) in zip(before.findings, after.findings, strict=True):
            assert [moved[rank] for rank in old.ranks] == list(new.ranks)
            assert new.severity == old.severity
            assert new.gain == pytest.approx(old.gain, abs=1e-6)


@pytest.mark.parametrize("rule", EXAMPLES)
def test_predictions_are_intervals_of_a_replay(rule: str) -> None:
    finding = ask(BY_ID[rule], RunView.of(sick(rule)[0]))
    assert isinstance(finding, Finding)
    for fix in finding.fixes:
        if fix.predicted is None:
            assert "Gain not predicted: " in fix.risk
            continue
        assert fix.predicted.low <= fix.predicted.mid <= fix.predicted.high <= 0
        assert "replay of this run" in fix.predicted.basis
