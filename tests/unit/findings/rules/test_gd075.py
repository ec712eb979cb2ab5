"""A run that marked nothing says what was seen of it, and what brings phases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.document import build_document
from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Finding, NotApplicable
from grpo_doctor.findings.rules import gd075_no_phases
from grpo_doctor.trace.model import Exit, Trace, Unhooked
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run


def sick() -> TraceBuilder:
    build = TraceBuilder(ranks=0, framework="unknown", framework_version=None, hosts=["host-a"])
    build.series("job.cpu", "%", [0, 10, 20], [90.0, 100.0, 110.0])
    build.series("job.rss", "bytes", [0, 10, 20], [1e9, 3e9, 2e9])
    build.series("job.processes", "count", [0, 10, 20], [1, 3, 3])
    return build.series("host.cpu", "%", [0, 10, 20], [40.0, 50.0, 60.0])


def well() -> TraceBuilder:
    return run()


def started(*command: str) -> Trace:
    trace = sick().build()
    return replace(trace, run=replace(trace.run, command=command))


def finding_in(trace: Trace) -> Finding:
    results = run_rules(RunView.of(trace))
    return next(f for rule, f in results.findings if rule.id == "GD075")


def test_what_was_seen_of_a_plain_script_is_said() -> None:
    finding = finding_in(started("python3", "plain.py"))
    values = {e.source: e.value for e in finding.evidence}
    assert values == {
        "job.processes": 3.0, "job.rss": 3e9, "job.cpu": 100.0, "host.cpu": 50.0,
        "run.json": "python3 plain.py",
    }  # fmt: skip
    (fix,) = finding.to_paste
    assert fix.spelling.count("\n") == 4
    assert 'with phase("rollout")' in fix.spelling


def test_what_a_job_of_seconds_used_at_most_was_not_sampled() -> None:
    build = TraceBuilder(ranks=0, framework="unknown", framework_version=None, hosts=["host-a"])
    build.series("job.rss", "bytes", [0, 0.5, 4.9], [4e5, 3e6, 3e6])
    build.series("host.cpu", "%", [0, 5.0], [40.0, 50.0])
    assert [e.source for e in finding_in(build.build()).evidence] == ["host.cpu", "run.json"]


def test_a_known_framework_is_named_with_its_prefix() -> None:
    finding = finding_in(started("swift", "rlhf", "--rlhf_type", "grpo"))
    assert finding.headline == "ms-swift ran without its phases"
    (fix,) = finding.to_paste
    assert fix.spelling == "grpo-doctor run -- swift rlhf --rlhf_type grpo"
    assert "--no-hooks" in fix.risk


@pytest.mark.parametrize(("framework", "state", "answer"), [
    ("swift", "failed", NotApplicable),
    ("swift", "killed", NotApplicable),
    ("swift", "finished", Finding),
    ("swift", "interrupted", Finding),
    ("unknown", "failed", NotApplicable),
    ("unknown", "killed", Finding),
])  # fmt: skip
def test_a_run_that_failed_is_not_told_to_mark_phases(
    framework: str, state: str, answer: type
) -> None:
    trace = started("swift", "rlhf", "--rlhf_type", "grpo")
    run = replace(trace.run, framework=framework, exit=Exit(state=state, code=1))
    assert isinstance(gd075_no_phases.check(RunView.of(replace(trace, run=run))), answer)


LOST = Unhooked("PYTHONPATH was replaced by /src", "Keep `:$PYTHONPATH`", 7, 1, "python train.py")


@pytest.mark.parametrize("state", ["finished", "failed", "killed", "interrupted"])
@pytest.mark.parametrize(
    "command", ["python3 plain.py", "bash run.sh", "swift rlhf --rlhf_type grpo",
                "python3 -m verl.trainer.main_ppo", "python3 -m openrlhf.cli.train_ppo_ray"],
)  # fmt: skip
def test_lost_hooks_are_the_cause_whatever_was_started_and_however_it_ended(
    command: str, state: str
) -> None:
    trace = started(*command.split())
    lost = replace(trace.run, unhooked=(LOST, replace(LOST, pid=8, rank=0)), exit=Exit(state, 1))
    finding = finding_in(replace(trace, run=lost))
    assert finding.headline == "PYTHONPATH was replaced by /src"
    verdict = build_document(replace(trace, run=lost)).summary.verdict
    assert "No phase data: this" not in verdict
    assert ("PYTHONPATH was replaced" in verdict) == (state in ("finished", "interrupted"))
    assert (finding.ranks, finding.evidence[0].value) == ((0, 1), "rank 1, rank 0")
    assert [fix.spelling for fix in finding.fixes] == ["Keep `:$PYTHONPATH`"]


@pytest.mark.parametrize("framework", ["trl", "ms-swift", "verl", "openrlhf"])
@pytest.mark.parametrize("note", ["", "phase `train` is not seen in this version of x 9"])
def test_users_of_a_framework_are_never_told_to_mark_phases(framework: str, note: str) -> None:
    trace = started("torchrun", "train.py")
    run = replace(trace.run, framework=framework)
    loss = replace(trace.loss, notes=(note,) if note else ())
    finding = finding_in(replace(trace, run=run, loss=loss))
    assert not any("with phase" in fix.spelling for fix in finding.fixes)
    assert ("other names in this version" in finding.cause) == bool(note)


def test_nobody_is_told_to_record_what_was_just_recorded() -> None:
    document = build_document(started("python3", "plain.py"))
    texts = [text for rule in document.not_run for text in rule.signals]
    assert not [text for text in texts if "record with" in text]
    assert "steps and phases: none were recorded, see GD075" in texts
    assert not any("mark them" in text for text in texts)
    expected = "No phase data: this script marks no phases, so only system metrics were recorded."
    assert document.summary.verdict == expected


def test_the_libraries_that_it_loads_come_first() -> None:
    trace = started("python3", "a.py")
    assert finding_in(trace).evidence[0].value != "NumPy, torch"
    loads = replace(trace, run=replace(trace.run, libraries=("NumPy", "torch")))
    assert finding_in(loads).evidence[0].value == "NumPy, torch"
