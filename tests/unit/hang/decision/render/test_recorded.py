"""Recordings without processes and without a culprit: what may be said of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.decision.render.verdicts import without_culprit
from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.dumps.model import DumpProblem
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.matching.model import Matching, Wait
from grpo_doctor.hang.model.view import JobView, WaitHistory
from grpo_doctor_probes.evidence import Evidence, FlightDump, Job

WAITS = (Wait(0, "0", 7, "all_reduce", (3,), "missing"), Wait(1, "0", 7, "all_reduce", (3,), "p2p"))
SHORT, LONG = WaitHistory(1.0, 2.0), WaitHistory(60.0, 2.0)


def job(
    waits: tuple[Wait, ...] = (),
    history: WaitHistory = LONG,
    *,
    heard: tuple[int, ...] = (0, 1, 2),
    unusable: tuple[int, ...] = (),
    dumps: tuple[FlightDump, ...] = (),
) -> JobView:
    evidence = Evidence(Job("a", ()), taken_unix_ns=0)
    problems = tuple(DumpProblem("file:x", rank, "cut off", "") for rank in unusable)
    recordings = Recordings(tuple(map(Recording, heard)), problems)
    return replace(
        view.build(evidence),
        evidence=replace(evidence, dumps=dumps),
        recordings=recordings,
        matching=Matching(waits=waits, heard=heard),
        wait_history=history,
    )


@pytest.mark.parametrize(
    ("seen", "state", "cause", "words"),
    [
        (job(heard=()), "slow", "unknown", "No recording could be used"),
        (job(dumps=(FlightDump("a", 0, data=b"{}"),)), "slow", "unknown", "have no entries"),
        (job(), "healthy", "", "all ranks agree"),
        (job(WAITS, SHORT), "healthy", "", "(1.0 s; longest previous wait was 2.0 s)"),
        (job(WAITS), "stuck", "unknown", "Ranks 0, 1 wait for other ranks, and"),
        (job(WAITS[:1]), "stuck", "unknown", "Rank 0 waits for other ranks, and"),
        (job(WAITS, unusable=(3,)), "stuck", "unknown", "wait for rank 3, whose recording can't"),
        (job(WAITS, unusable=(4,)), "stuck", "unknown", "wait for other ranks"),
        (job(unusable=(3,)), "slow", "unknown", "no usable recording of rank 3; otherwise no rank"),
        (job(WAITS, SHORT, unusable=(3,)), "slow", "unknown", "otherwise ranks wait"),
    ],
)
def test_what_is_said_where_no_rank_is_to_blame(
    seen: JobView, state: str, cause: str, words: str
) -> None:
    verdict = without_culprit(seen)
    assert (verdict.state, verdict.cause, verdict.culprits) == (state, cause, ())
    assert words in verdict.summary
