from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_doctor.hang.collection.examine import ExamineOptions
from grpo_doctor.hang.verdict import Diagnosis
from grpo_doctor_probes.evidence import Evidence, Job, Stack
from tests.unit.cli.attached import Plays, diagnosis


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to work in, and no variable that says where the job runs."""
    for name in ("NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Makes finding, looking and reasoning give what the test wants; the wishes that were heard."""

    def play(
        *jobs: Job,
        verdict: Diagnosis | None = None,
        error: BaseException | None = None,
        says: str = "looking at 2 ranks",
        stacks: tuple[tuple[Stack, ...], ...] = (),
    ) -> list[ExamineOptions]:
        requests: list[ExamineOptions] = []

        def find_jobs(pids: object, **_: object) -> tuple[Job, ...]:
            if error:
                raise error
            return jobs

        def examine_job(
            target: Job, wishes: ExamineOptions, progress: Callable[[str], None]
        ) -> Evidence:
            requests.append(wishes)
            progress(says)
            return Evidence(target, 1_795_000_000_000_000_000, stacks=stacks)

        monkeypatch.setattr("grpo_doctor.cli.attach_evidence.discover.find_jobs", find_jobs)
        monkeypatch.setattr("grpo_doctor.cli.attach_evidence.examine_job", examine_job)
        monkeypatch.setattr(
            "grpo_doctor.hang.diagnose.diagnose_view", lambda target: verdict or diagnosis()
        )
        return requests

    return play
