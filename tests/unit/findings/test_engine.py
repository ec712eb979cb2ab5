from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor import findings
from grpo_doctor.findings import RunView, run_rules, signals
from grpo_doctor.findings.rule import Answer, Finding, Passed, Rule, RuleError
from grpo_doctor.findings.shared import severity_of
from grpo_doctor.findings.signals import Signal
from grpo_doctor.whatif import Prediction
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import healthy, run

EVERY = (
    signals.STEPS, signals.PHASES, signals.COLLECTIVES, signals.GPU_MEMORY, signals.SETTINGS,
)  # fmt: skip


class Fake:
    """A rule made in a test."""

    def __init__(
        self, answer: Answer | Exception, *, name: str = "GD900", needs: tuple[Signal, ...] = ()
    ) -> None:
        self.RULE = Rule(id=name, slug="fake", title="Fake", family="data", needs=needs)
        self.answer = answer

    def check(self, view: RunView) -> Answer:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def of_cost(share: float) -> Finding:
    return Finding(
        severity=severity_of(share), confidence=1.0, evidence=(), cause="", fixes=(), cost=share
    )


def test_a_rule_that_fails_is_an_entry_and_the_others_go_on() -> None:
    rules = [Fake(ValueError("boom")), Fake(Passed("fine"), name="GD901")]
    results = run_rules(RunView.of(healthy()), rules)
    ((rule, entry),) = results.errors
    assert rule.id == "GD900"
    assert entry == RuleError("ValueError", "boom")
    assert results.not_run == ()
    assert [r.id for r, _ in results.passed] == ["GD901"]


def test_a_rule_of_an_engine_does_not_apply_to_a_rollout_without_one() -> None:
    needs = (signals.sampled("engine/prompt_tokens", "vLLM 0.12 counts it"),)
    rules = [Fake(Passed("fine"), needs=needs)]
    without = run_rules(RunView.of(run(knobs={"vllm.use": False}).build()), rules)
    assert [entry.reason for _, entry in without.not_applicable] == [
        "the rollout runs without an engine"
    ]
    assert run_rules(RunView.of(run(knobs={"vllm.use": True}).build()), rules).not_run


def test_missing_signals_are_named_with_what_to_do() -> None:
    build = TraceBuilder(ranks=2)
    build.step(0, 0, 0.0, {"train": 1.0})
    build.step(1, 0, 0.0, {"train": 1.0})
    results = run_rules(RunView.of(build.build()), [Fake(of_cost(0.5), needs=EVERY)])
    ((_, entry),) = results.not_run
    steps, collectives, memory, settings = entry.missing
    assert steps.startswith("at least 3 steps")
    assert collectives.startswith("collectives of several ranks")
    assert memory.startswith("GPU memory")
    assert "settings" in settings


def test_findings_are_sorted_by_gravity_then_cost() -> None:
    rules = [
        Fake(of_cost(0.03), name="A"),
        Fake(of_cost(0.09), name="B"),
        Fake(of_cost(0.50), name="C"),
        Fake(of_cost(0.15), name="D"),
    ]
    results = run_rules(RunView.of(healthy()), rules)
    assert [r.id for r, _ in results.findings] == ["C", "D", "B", "A"]
    assert [f.severity for _, f in results.findings] == ["high", "medium", "medium", "low"]


def test_what_ended_a_run_comes_before_what_is_graver() -> None:
    rules = [Fake(of_cost(0.5), name="A"), Fake(of_cost(0.01), name="GD074"), Fake(of_cost(0.5))]
    results = run_rules(RunView.of(healthy()), rules)
    assert [r.id for r, _ in results.findings] == ["GD074", "A", "GD900"]


def test_one_rank_has_no_straggler() -> None:
    results = run_rules(RunView.of(run(ranks=1).build()))
    reasons = {r.id: n.reason for r, n in results.not_applicable}
    assert reasons["GD004"] == "the run has 1 rank"


def test_a_recording_without_anything_runs_no_rule() -> None:
    results = run_rules(RunView.of(TraceBuilder(ranks=0).build()))
    assert results.findings == ()
    assert results.passed == ()
    assert results.errors == ()


def test_the_largest_predicted_gain_counts() -> None:
    assert of_cost(0.1).gain == 0
    assert Prediction(-20, -15, -10, "").mid == -15


class Reader(Fake):
    """A rule that reads something."""

    def __init__(self, read: Callable[[RunView], object], **declared: Any) -> None:
        super().__init__(Passed(""))
        self.RULE = dataclasses.replace(self.RULE, **declared)
        self.read = read

    def check(self, view: RunView) -> Answer:
        self.read(view)
        return self.answer if isinstance(self.answer, Passed) else Passed("")


READS: dict[str, tuple[Callable[[RunView], object], str]] = {
    "series": (lambda view: view.series("gpu.power"), "gpu.power"),
    "names": (lambda view: view.series_names("engine/*"), "engine/*"),
    "counted": (lambda view: view.counted("gc/seconds"), "gc/seconds"),
    "counted mean": (lambda view: view.counted_mean("gc/seconds"), "gc/seconds"),
    "counter sum": (lambda view: view.counter_sum("gc/seconds"), "gc/seconds"),
    "metric": (lambda view: view.metric("kl"), "kl"),
    "metric by key": (lambda view: view.metric_called("x/y"), "x/y"),
    "metric values": (lambda view: view.metric_values("x/y"), "x/y"),
    "components": (lambda view: view.reward_components(), "rewards/*"),
    "GPU memory": (lambda view: view.gpu_memory, "GPU memory"),
    "waits": (lambda view: view.waits, "collectives"),
    "blame": (lambda view: view.blame, "collectives"),
    "waited": (lambda view: view.used_waited, "collectives"),
}


@pytest.mark.parametrize("part", READS)
def test_a_rule_reads_only_what_it_declares(part: str) -> None:
    read, name = READS[part]
    view = RunView.of(healthy())
    ((_, error),) = run_rules(view, [Reader(read)]).errors
    assert error.exception == "UndeclaredError"
    assert repr(name) in error.message
    assert run_rules(RunView.of(healthy()), [Reader(read, uses=(name,))]).errors == ()
    needed = Signal("", lambda _: True, (name,))
    assert run_rules(RunView.of(healthy()), [Reader(read, needs=(needed,))]).errors == ()


def test_a_declared_pattern_opens_all_names_that_match() -> None:
    reader = Reader(lambda view: view.series("engine/steps"), uses=("engine/*",))
    assert run_rules(RunView.of(healthy()), [reader]).errors == ()
    other = Reader(lambda view: view.series("rollout/tokens"), uses=("engine/*",))
    assert len(run_rules(RunView.of(healthy()), [other]).errors) == 1


READERS = {
    "series_named", "counted", "counted_mean", "counter_sum", "curve", "curve_of_key", "components",
}  # fmt: skip
OPEN = re.compile(r"\banalysis\.(gpu_memory|blame|waits|used_waited)\b|\btrace\.(series|metrics)\b")


def test_no_rule_reads_past_its_view() -> None:
    folder = Path(findings.__file__).parent
    shared = [path for path in folder.glob("*.py") if path.stem not in ("readings", "view")]
    for path in [*shared, *(folder / "rules").glob("gd*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            if "view" not in {argument.arg for argument in node.args.args}:
                continue
            called = {
                call.func.id
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            }
            assert not called & READERS, f"{path.name}: {node.name}"
            assert not OPEN.search(ast.unparse(node)), f"{path.name}: {node.name}"
