"""Without the right to read stacks (Kubernetes without SYS_PTRACE) what spins is never healthy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.evidence import Evidence
from tests.corpus import store
from tests.corpus.score import evidence_of
from tests.evidence import EvidenceBuilder, frames

REFUSED = "the stack of the process can't be read: this container lacks the right to trace"


def without_stacks(evidence: Evidence) -> Evidence:
    """The same as who may not trace has seen it."""
    looks = tuple(
        replace(
            look,
            processes=tuple(
                replace(
                    process, threads=tuple(replace(thread, wchan="") for thread in process.threads)
                )
                for process in look.processes
            ),
        )
        for look in evidence.looks
    )
    return replace(
        evidence,
        looks=looks,
        stacks=tuple(
            tuple(replace(stack, threads=(), problem=REFUSED) for stack in look)
            for look in evidence.stacks
        ),
        positions=(),
        locals_seen=(),
        arguments=(),
        blocked=(),
        dumps=(),
    )


def spinning(*ranks: int) -> Evidence:
    build = EvidenceBuilder(ranks=4, recorded=False)
    for rank in ranks:
        build.rank(rank).works(frames("synchronize /torch/cuda.py:9"), share=1.0, moves=False)
    return without_stacks(build.build())


def test_all_that_spin_are_unknown_with_what_to_enable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = spinning(0, 1, 2, 3)
    bundle.write(tmp_path / "hang", evidence, diagnose(evidence))
    assert main(["attach", "--json", "--replay", str(tmp_path / "hang")]) == 4
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert (verdict["state"], verdict["class"], verdict["culprits"]) == ("slow", "unknown", [])
    assert any("SYS_PTRACE" in fix["text"] for fix in verdict["fixes"])


@pytest.mark.parametrize("ranks", [(), (0,), (1, 2, 3)])
def test_neither_are_those_of_which_some_sleep_healthy(ranks: tuple[int, ...]) -> None:
    assert diagnose(spinning(*ranks)).verdict.state != "healthy"


def test_no_recorded_job_that_stood_is_called_healthy_without_its_stacks() -> None:
    archives = [archive for archive in store.archives() if "spinning" in archive.name]
    stood = [
        item
        for archive in archives
        for item in store.items_of(archive)
        if item.truth.states and not {"healthy", "slow"} & set(item.truth.states)
    ]
    states = {diagnose(without_stacks(evidence_of(item))).verdict.state for item in stood[::6]}
    assert states
    assert "healthy" not in states
