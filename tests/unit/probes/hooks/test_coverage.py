"""What took effect in a process, as its rank file says it."""

from __future__ import annotations

from grpo_doctor_probes.hooks.coverage import Coverage, version_of
from grpo_doctor_probes.hooks.table import Adapter, Hook


def hook(span: str) -> Hook:
    return Hook("trl.trainer", "GRPOTrainer.work", span, "1.0-")


TRL, NUMPY = Adapter("no-such-trl", ()), Adapter("numpy", ())


def test_a_span_is_absent_where_none_of_its_functions_is_there() -> None:
    coverage = Coverage()
    for span, wrapped in (("rollout", True), ("train", False), ("sync", False), ("sync", True)):
        coverage.note_hook(TRL, hook(span), wrapped=wrapped)
    coverage.note_hook(NUMPY, hook("train"), wrapped=False)
    coverage.note_problem(TRL, "trl.trainer", ValueError("x" * 600))
    facts = coverage.facts()
    version = version_of("numpy")
    assert version is not None
    assert facts["packages"] == {
        "no-such-trl": {"version": None, "spans": ["rollout", "sync"], "absent": ["train"]},
        "numpy": {"version": version, "spans": [], "absent": ["train"]},
    }
    (problem,) = facts["problems"]
    assert problem.startswith("no-such-trl: trl.trainer: ValueError: xxx")
    assert len(problem) == 500
