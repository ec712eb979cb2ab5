"""A job of two ranks, and what `attach` says of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from grpo_doctor.hang.collection.examine import ExamineOptions
from grpo_doctor.hang.verdict import SCHEMA, Cost, Diagnosis, JobSeen, RankState, State, Verdict
from grpo_doctor_probes.evidence import Job, Member

Captured = pytest.CaptureFixture[str]
Plays = Callable[..., list[ExamineOptions]]
SUMMARY = "Rank 1 is stopped by a signal; rank 0 waits for it in all_reduce."


def job(first_pid: int = 4_700, command: str = "python train.py") -> Job:
    members = (
        Member(first_pid + rank, 1, 100, "rank", "python", command, rank=rank) for rank in (0, 1)
    )
    return Job("node-7", tuple(members), 2)


def diagnosis(state: State = "stuck", **fields: object) -> Diagnosis:
    cause = "" if state == "healthy" else "rank-stopped"
    verdict = Verdict(
        state=state, cause=cause, culprits=(1,), victims=(0,), confidence=0.9, summary=SUMMARY
    )
    ranks = (RankState(1, 4_701, "rank", "stopped", "train.py:3", ""),)
    default = Diagnosis(
        schema=SCHEMA,
        job=JobSeen(host="node-7", framework="unknown", world_size=2, ranks_seen=(0, 1)),
        verdict=verdict, ranks=ranks, cost=Cost(seconds=2.0, max_pause_ms=0.5),
    )  # fmt: skip
    return msgspec.structs.replace(default, **fields)
