from __future__ import annotations

from collections.abc import Callable

import pytest

from grpo_doctor.hang.verdict import Diagnosis
from grpo_doctor_probes.evidence import Evidence, Job
from tests.unit.cli.attached import diagnosis


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes finding, looking and reasoning give what the test wants."""

    def play(*jobs: Job, verdict: Diagnosis | None = None, error: Exception | None = None) -> None:
        def find_jobs(pids: object) -> tuple[Job, ...]:
            if error:
                raise error
            return jobs

        def examine_job(target: Job, wishes: object, progress: Callable[[str], None]) -> Evidence:
            progress("looking at 2 ranks")
            return Evidence(target, 1_795_000_000_000_000_000)

        monkeypatch.setattr("grpo_doctor.cli.attach_evidence.discover.find_jobs", find_jobs)
        monkeypatch.setattr("grpo_doctor.cli.attach_evidence.examine_job", examine_job)
        monkeypatch.setattr(
            "grpo_doctor.hang.diagnose.diagnose_view", lambda target: verdict or diagnosis()
        )

    return play
