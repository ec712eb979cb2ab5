"""Adapters of frameworks on modules of their shape, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.hooks import boot, describing
from grpo_doctor_probes.hooks.adapters import openrlhf, swift, vllm
from grpo_doctor_probes.hooks.coverage import Coverage
from grpo_doctor_probes.hooks.spans import _OPEN, STEPS, LongSpan
from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.conftest import Recorded
from tests.unit.probes.hooks.adapters.framework import Job


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("_name", None), ("_pid", 0)):
        monkeypatch.setattr(ROLE, name, value)
    for name, start in (("number", 1), ("is_due", True)):
        monkeypatch.setattr(openrlhf._Loop, name, start)
    for span in ("_BUSY", "_PAUSED"):
        monkeypatch.setattr(vllm, span, LongSpan(getattr(vllm, span)._name))
    parsed: dict[str, Any] = {}  # one for both, as in the job
    for module in (swift, describing):
        monkeypatch.setattr(module, "PARSED", parsed)
    monkeypatch.setattr(boot, "COVERAGE", Coverage())
    yield
    STEPS.drop()
    _OPEN.names.clear()


@pytest.fixture
def job(recording: Recorded) -> Job:
    """A recorded process of a job."""
    return Job(Path(recording.run_dir), recording)
