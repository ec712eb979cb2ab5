"""Ctrl-C while a job is looked at, and what is said meanwhile."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.collection.examine import ExamineOptions, examine_job
from grpo_doctor_probes.evidence import Job, Look, Member


def job(ranks: int) -> Job:
    members = (Member(100 + rank, 1, 5, "rank", "python", "", rank=rank) for rank in range(ranks))
    return Job("node-1", tuple(members))


def nothing(words: str) -> None:
    """Says nothing."""


def test_before_the_first_look_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def processes(job: Job) -> Look:
        raise KeyboardInterrupt

    monkeypatch.setattr("grpo_doctor_probes.look.processes", processes)
    with pytest.raises(KeyboardInterrupt):
        examine_job(job(1), ExamineOptions(), nothing)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [(0, "inspecting a job without a rank on this host"), (1, "inspecting 1 rank"),
     (2, "inspecting 2 ranks")],
)  # fmt: skip
def test_what_is_looked_at(ranks: int, words: str) -> None:
    messages: list[str] = []

    def tell(words: str) -> None:
        messages.append(words)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examine_job(job(ranks), ExamineOptions(), tell)
    assert messages == [words]
