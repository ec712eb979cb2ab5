"""One rank of two, of which nothing was recorded, with the stacks that tests give it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.process.proc import Process
from grpo_doctor_probes.evidence import Evidence, Frame, OpenSpanSeen
from tests.evidence import EvidenceBuilder, FakeProcess
from tests.verdicts import UPDATE

PID, OTHER = 101, 901


def subject(stack: tuple[Frame, ...] = UPDATE, **more: Any) -> tuple[EvidenceBuilder, FakeProcess]:
    """Rank 1 of two, of which nothing was recorded."""
    build = EvidenceBuilder(ranks=2, recorded=False)
    process = build.elsewhere(1, stack)
    for name, value in more.items():
        setattr(process, name, value)
    return build, process


def proc(build: EvidenceBuilder, **more: Any) -> Process:
    return of(replace(build.build(), **more))


def of(evidence: Evidence) -> Process:
    return view.build(evidence).by_pid[PID]


def span(name: str, age_s: float, *, collective: bool = False) -> OpenSpanSeen:
    return OpenSpanSeen(PID, 1, name, age_s, collective)
