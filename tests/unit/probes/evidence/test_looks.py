"""Processes at one moment."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import Look, ProcessLook


@pytest.mark.parametrize(("pid", "state"), [(3, "S"), (4, "R"), (5, None)])
def test_the_look_at_one_process(pid: int, state: str | None) -> None:
    process = Look(1, (ProcessLook(3, 1, "S"), ProcessLook(4, 2, "R"))).of(pid)
    assert (None if process is None else process.state) == state
