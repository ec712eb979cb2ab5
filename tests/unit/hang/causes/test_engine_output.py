"""What comes out of a rollout engine that a rank waits for, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang.causes.engine import output
from grpo_doctor_probes.evidence import Blocked, Member
from tests.unit.hang.causes.doubles import activity, process

STALLED = "rollout-engine-stalled"
ASKS = Blocked(101, 101, "socket-receive", target="10.0.0.1:8000")


def counted(**more: Any) -> Any:
    defaults: dict[str, Any] = {
        "asked": True, "makes_progress": False, "counts_tokens": True, "asleep": False,
        "paused": False, "cache": None, "seconds": 1.5, "preempted": 0.0, "queued": 0.0,
        "running": 3.0, "text": lambda: "counts",
    }  # fmt: skip
    return SimpleNamespace(**{**defaults, **more})


def candidate_of(
    counters: Any = None,
    *,
    still_s: tuple[float, float, float] = (40.0, 40.0, 40.0),
    hold: Blocked | None = ASKS,
    purpose: str = "",
    children: tuple[Any, ...] = (),
    core: dict[str, Any] | None = None,
    framework: str = "trl",
    **more: Any,
) -> Any:
    """Of an engine with a front and two cores. `still_s`: of the rank and both cores."""
    rank = process(hold=hold, activity=activity(still_s=still_s[0]))
    rank.place.purpose = purpose
    member = Member(299, 1, 0, "server", "vllm", "vllm")
    front = process(pid=299, member=member, node="front")
    cores = [
        process(
            pid=300 + number,
            member=Member(300, 299, 0, "engine", "core", "core"),
            activity=activity(still_s=seconds),
            node="core",
            **(core or {} if not number else {}),
        )
        for number, seconds in enumerate(still_s[1:])
    ]
    engine: Any = SimpleNamespace(
        **{
            "parts": (front, *cores), "core": cores[0], "counted": counters, "last_words": (),
            "works": False, "starts": False, "takes_no_step": False, **more,
        }
    )  # fmt: skip
    view: Any = SimpleNamespace(
        by_pid={101: rank},
        children=lambda pid: children if pid == 300 else (),
        evidence=SimpleNamespace(job=SimpleNamespace(framework=framework)),
    )
    return output(view, rank, engine)


@pytest.mark.parametrize(
    ("case", "cause", "liveness", "words"),
    [
        ({"counters": counted()}, STALLED, "unseen", "generated no token in 1.5 s and has 3"),
        ({"counters": counted(), "works": True}, STALLED, "computing", "no token"),
        ({"counters": counted(counts_tokens=False)}, STALLED, "unseen", "makes no progress and"),
        (
            {"counters": counted(counts_tokens=False), "works": True},
            "",
            "computing",
            "works (counts)",
        ),
        ({"counters": counted(makes_progress=True)}, "", "computing", "works (counts)"),
        ({"counters": counted(makes_progress=True, asked=False)}, "", "computing", "which works"),
        ({"works": True}, "", "computing", "which works"),
        ({"starts": True}, "", "computing", "is still starting"),
        ({"counters": counted(asleep=True)}, STALLED, "never-wakes", "is asleep"),
        (
            {"counters": counted(), "purpose": "weight-sync"},
            "weight-sync-blocked",
            "unseen",
            "no token",
        ),
        ({}, STALLED, "unseen", "makes no progress"),
        ({"counters": counted(asked=False)}, STALLED, "unseen", "has no request"),
        ({"takes_no_step": True}, STALLED, "never-wakes", "runs no engine step"),
    ],
)
def test_what_an_engine_is_at(case: dict[str, Any], cause: str, liveness: str, words: str) -> None:
    candidate = candidate_of(**case)
    assert (candidate.cause, candidate.liveness) == (cause, liveness)
    assert words in candidate.reason


@pytest.mark.parametrize(
    ("preempted", "cache", "words"),
    [
        (
            2.0,
            0.97,
            ("keeps preempting requests, 97% of its cache used: 2 times and no token in 1.5 s"),
        ),
        (2.0, None, "keeps preempting requests: 2 times"),
        (1.0, 0.97, "generated no token"),
    ],
)
def test_an_engine_that_throws_its_work_away(
    preempted: float, cache: float | None, words: str
) -> None:
    candidate = candidate_of(counted(preempted=preempted, cache=cache, running=3.0, queued=4.0))
    assert words in candidate.reason
    values = {fix.knob: fix.text for fix in candidate.fixes}
    assert ("vllm.max_num_seqs" in values) is (preempted >= 2)
    if preempted >= 2:
        assert "--max-num-seqs 4)" in values["vllm.max_num_seqs"]  # half of what it has


@pytest.mark.parametrize(
    ("framework", "setting"), [("trl", "--vllm_gpu_memory_utilization 0.9"), ("unknown", None)]
)
def test_a_fix_is_spelled_for_a_framework_that_is_known(
    framework: str, setting: str | None
) -> None:
    fixes = candidate_of(counted(preempted=2.0), framework=framework).fixes
    spellings = {fix.knob: fix.spelling for fix in fixes}
    assert spellings["vllm.gpu_memory_utilization"] == setting


@pytest.mark.parametrize(
    ("queued", "running", "words"),
    [
        (2.0, 0.0, "runs none of 2 queued requests"),
        (2.0, 1.0, "no token"),
        (0.0, 0.0, "no token"),
    ],
)
def test_requests_that_wait(queued: float, running: float, words: str) -> None:
    assert words in candidate_of(counted(queued=queued, running=running)).reason


@pytest.mark.parametrize(
    ("still_s", "liveness"),
    [
        ((30.0, 30.0, 30.0), "never-wakes"),
        ((29.9, 30.0, 30.0), "unseen"),
        ((30.0, 29.9, 30.0), "unseen"),
        ((30.0, 30.0, 29.9), "unseen"),  # of every core
    ],
)
def test_a_pause_is_long_where_the_rank_and_all_cores_have_stood(
    still_s: tuple[float, float, float], liveness: str
) -> None:
    assert candidate_of(still_s=still_s, takes_no_step=True).liveness == liveness
    told = candidate_of(counted(paused=True), still_s=still_s)
    assert (told.cause, told.liveness) == ("rollout-engine-paused", liveness)
    queue = counted(queued=2.0, running=0.0)
    assert candidate_of(queue, still_s=still_s).liveness == liveness
    assert candidate_of(queue, still_s=still_s, works=True).liveness == "computing"


TOOL = process(pid=400, activity=activity("busy"))


@pytest.mark.parametrize(
    ("case", "liveness"),
    [
        ({"hold": None}, "unseen"),  # it polls, and may wait for something else
        ({"hold": Blocked(101, 101, "futex")}, "unseen"),
        ({"hold": Blocked(101, 101, "pipe-read")}, "never-wakes"),
        ({"children": (TOOL,)}, "computing"),
        ({"children": (process(pid=400),)}, "never-wakes"),
        ({"core": {"blocked": (ASKS,)}}, "computing"),  # it asks somebody who is not seen
    ],
)
def test_an_engine_that_is_paused(case: dict[str, Any], liveness: str) -> None:
    candidate = candidate_of(takes_no_step=True, **case)
    assert candidate.liveness == liveness
    assert any("/resume" in fix.text for fix in candidate.fixes)


@pytest.mark.parametrize(
    ("requests", "words"),
    [(2.0, "weights, with 2 requests, and no call"), (0.0, "weights, and no")],
)
@pytest.mark.parametrize("takes_no_step", [True, False])
def test_an_engine_that_says_that_it_is_paused(
    requests: float, words: str, takes_no_step: bool
) -> None:
    told = counted(paused=True, running=requests, asked=requests > 0)
    candidate = candidate_of(told, takes_no_step=takes_no_step)
    assert (candidate.cause, candidate.liveness) == ("rollout-engine-paused", "never-wakes")
    assert words in candidate.reason
    assert any("/resume" in fix.text for fix in candidate.fixes)
    works = candidate_of(counted(paused=True, makes_progress=True), takes_no_step=takes_no_step)
    assert works.cause != "rollout-engine-paused"
