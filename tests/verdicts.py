"""Verdicts on built jobs, as unit tests of causes expect them."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Diagnosis, Verdict
from grpo_doctor_probes.evidence import Evidence, FlightDump, Job
from tests.evidence import EvidenceBuilder, frames

REWARD = frames("check /home/me/rewards.py:31", "reward /home/me/train.py:40", "main t.py:9")


UPDATE = frames("clip /home/me/train.py:31", "update /home/me/train.py:40", "main t.py:9")


def verdict(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def of_dumps(files: Iterable[FlightDump], world: int | None = None) -> Verdict:
    """The verdict on flight-recorder files alone."""
    job = Job(host="a", members=(), world_size=world)
    return diagnose(Evidence(job, taken_unix_ns=0, dumps=tuple(files))).verdict


def expect(build: EvidenceBuilder, cause: str, *culprits: int, state: str = "stuck") -> Diagnosis:
    diagnosis = diagnose(build.build())
    ruling = diagnosis.verdict
    assert (ruling.state, ruling.cause, ruling.culprits) == (state, cause, culprits), ruling.summary
    return diagnosis


def healthy(build: EvidenceBuilder) -> None:
    """Most ranks of a healthy loop stand in the same collective at any time."""
    build.waited_s = 0.004
    for rank in range(build.world):
        process = build.rank(rank)
        process.cpu_share, process.wakes, process.still_s = 0.17, 145, 0.003
