"""A setting that the run does not say is asserted nowhere: over every rule and example run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.findings.engine import run_rules
from grpo_doctor.findings.rule import Finding
from grpo_doctor.findings.view import RunView
from grpo_doctor.trace.model import Trace
from tests.unit.findings.registry import EXAMPLES

DEFAULT = knobs.default


def another_default(framework: str, version: str | None, knob: str) -> Any:
    """Of frameworks whose every number and length is another one where nothing is said."""
    value = DEFAULT(framework, version, knob)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return 3 * value + 1 if is_number else value


def stripped(trace: Trace) -> Trace:
    """The same recording of a job that said none of its settings but its model."""
    run = replace(trace.run, knobs={"model.name": "Qwen/Qwen2.5-7B"}, config={})
    return replace(trace, run=run)


def asserted(trace: Trace) -> dict[str, tuple[Any, ...]]:
    """What each finding says; its fixes may start from a default, which they mark, or from what a
    server was given, where they go."""
    view = RunView.of(trace)
    found: dict[str, Finding] = {rule.id: each for rule, each in run_rules(view).findings}
    for finding in found.values():
        for fix in finding.fixes:
            marked = str(fix.before).endswith(" (default)")
            assert marked or fix.before is None or fix.where, fix
    return {name: (f.cause, f.headline, f.evidence) for name, f in found.items()}


@pytest.mark.parametrize("rule_id", EXAMPLES)
@pytest.mark.parametrize("patient", ["sick", "well"])
def test_no_sentence_depends_on_a_default(
    rule_id: str, patient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = EXAMPLES[rule_id][patient == "well"]
    trace = stripped(build().build())
    before = asserted(trace)
    monkeypatch.setattr(knobs, "default", another_default)
    after = asserted(trace)
    common = before.keys() & after.keys()
    assert {name: before[name] for name in common} == {name: after[name] for name in common}
