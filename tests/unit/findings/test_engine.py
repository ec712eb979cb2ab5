from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.findings import RunView, run_rules, signals
from grpo_doctor.findings.rule import Answer, Finding, Passed, Rule, RuleError, severity_of
from grpo_doctor.findings.signals import Signal
from grpo_doctor.whatif import Edit, Prediction
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

    def counterfactual(self, view: RunView) -> Sequence[Edit]:
        return ()


def found(share: float) -> Finding:
    return Finding(severity_of(share), 1.0, share, (), (), (), "", ())


def test_a_rule_that_fails_is_an_entry_and_the_others_go_on() -> None:
    rules = [Fake(ValueError("boom")), Fake(Passed("fine"), name="GD901")]
    results = run_rules(RunView.of(healthy()), rules)
    ((rule, entry),) = results.errors
    assert rule.id == "GD900"
    assert entry == RuleError("ValueError", "boom")
    assert results.not_run == ()
    assert [r.id for r, _ in results.passed] == ["GD901"]


def test_missing_signals_are_named_with_what_to_do() -> None:
    build = TraceBuilder(ranks=2)
    build.step(0, 0, 0.0, {"train": 1.0})
    build.step(1, 0, 0.0, {"train": 1.0})
    results = run_rules(RunView.of(build.build()), [Fake(found(0.5), needs=EVERY)])
    ((_, entry),) = results.not_run
    steps, collectives, memory, settings = entry.missing
    assert steps.startswith("at least 3 steps")
    assert collectives.startswith("collectives of several ranks")
    assert memory.startswith("GPU memory")
    assert "settings" in settings


def test_findings_are_sorted_by_gravity_then_cost() -> None:
    rules = [
        Fake(found(0.03), name="A"),
        Fake(found(0.09), name="B"),
        Fake(found(0.50), name="C"),
        Fake(found(0.15), name="D"),
    ]
    results = run_rules(RunView.of(healthy()), rules)
    assert [r.id for r, _ in results.findings] == ["C", "D", "B", "A"]
    assert [f.severity for _, f in results.findings] == ["high", "medium", "medium", "low"]


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
    assert found(0.1).gain == 0
    assert Prediction(-20, -15, -10, "").mid == -15
