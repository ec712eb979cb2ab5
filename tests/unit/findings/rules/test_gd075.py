"""A run that marked nothing says what was seen of it, and what brings phases."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.document import build_document
from grpo_doctor.trace.model import Exit, Loss, Unhooked
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.rules.saying import finding_in, rows


def sick() -> TraceBuilder:
    build = TraceBuilder(ranks=0, framework="unknown", framework_version=None, hosts=["host-a"])
    build.series("job.cpu", "%", [0, 10, 20], [90.0, 100.0, 110.0])
    build.series("job.rss", "bytes", [0, 10, 20], [1e9, 3e9, 2e9])
    build.series("job.processes", "count", [0, 10, 20], [1, 3, 3])
    return build.series("host.cpu", "%", [0, 10, 20], [40.0, 50.0, 60.0])


def well() -> TraceBuilder:
    return run()


def started(command: str, note: str = "", framework: str = "unknown", **facts: Any) -> TraceBuilder:
    build = sick()
    build.framework, build.exit = framework, facts.pop("exit", build.exit)
    build.loss = Loss(notes=(note,) if note else ())
    build.run_facts = {"command": tuple(command.split()), **facts}
    return build


def what_a_job_of_seconds_used_at_most_was_not_sampled() -> TraceBuilder:
    build = TraceBuilder(ranks=0, framework="unknown", framework_version=None, hosts=["host-a"])
    build.series("job.rss", "bytes", [0, 0.5, 4.9], [4e5, 3e6, 3e6])
    return build.series("host.cpu", "%", [0, 5.0], [40.0, 50.0])


def a_plain_script_and_its_libraries() -> TraceBuilder:
    return started("python3 plain.py", libraries=("NumPy", "torch"))


SWIFT = "swift rlhf --rlhf_type grpo"
RUNS = {
    "a known framework is named with its prefix": lambda: started(SWIFT),
    **rows("a run that failed is not told to mark phases",
        lambda framework, state: started(SWIFT, framework=framework, exit=Exit(state, 1)),
        ("swift", "failed"), ("swift", "killed"), ("swift", "finished"), ("swift", "interrupted"),
        ("unknown", "failed"), ("unknown", "killed")),
    **rows("users of a framework are never told to mark phases",
        lambda framework, note: started("torchrun train.py", note, framework),
        *itertools.product(("trl", "ms-swift", "verl", "openrlhf"),
            ("", "phase `train` is not seen in this version of x 9"))),
}  # fmt: skip


LOST = Unhooked("PYTHONPATH was replaced by /src", "Keep `:$PYTHONPATH`", 7, 1, "python train.py")


@pytest.mark.parametrize("state", ["finished", "failed", "killed", "interrupted"])
@pytest.mark.parametrize(
    "command", ["python3 plain.py", "bash run.sh", "swift rlhf --rlhf_type grpo",
                "python3 -m verl.trainer.main_ppo", "python3 -m openrlhf.cli.train_ppo_ray"],
)  # fmt: skip
def test_lost_hooks_are_the_cause_whatever_was_started_and_however_it_ended(
    command: str, state: str
) -> None:
    unhooked = (LOST, replace(LOST, pid=8, rank=0))
    build = started(command, unhooked=unhooked, exit=Exit(state, 1))
    finding = finding_in(build, "GD075")
    assert finding.headline == "PYTHONPATH was replaced by /src"
    verdict = build_document(build.build()).summary.verdict
    assert "No phase data: this" not in verdict
    assert ("PYTHONPATH was replaced" in verdict) == (state in ("finished", "interrupted"))
    assert (finding.ranks, finding.evidence[0].value) == ((0, 1), "rank 1, rank 0")
    assert [fix.spelling for fix in finding.fixes] == ["Keep `:$PYTHONPATH`"]


def test_nobody_is_told_to_record_what_was_just_recorded() -> None:
    document = build_document(started("python3 plain.py").build())
    texts = [text for rule in document.not_run for text in rule.signals]
    assert not [text for text in texts if "record with" in text]
    assert "steps and phases: none were recorded, see GD075" in texts
    assert not any("mark them" in text for text in texts)
    expected = "No phase data: this script marks no phases, so only system metrics were recorded."
    assert document.summary.verdict == expected
