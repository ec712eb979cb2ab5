"""Threads of libraries, which no Python stack shows, at work for a main thread that sleeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.process.proc import index
from grpo_doctor.hang.model.process.progress import Activity
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Evidence, Look, ProcessLook, PythonThread, Thread
from tests.evidence import BETWEEN_S, SECOND, EvidenceBuilder, frames

TOKENIZES = frames(
    "_batch_encode_plus /x/site-packages/transformers/tokenization_utils_fast.py:539",
    "build_prompts /home/me/train.py:12",
    "main /home/me/train.py:9",
)
RANK, THREADS = 1, 4


def with_threads(
    evidence: Evidence, pid: int, share: float, name: str = "python", *, delay_share: float = 0.0
) -> Evidence:
    """This process has threads without Python, each of which uses so much of a core."""

    def of(look: ProcessLook, number: int) -> ProcessLook:
        ticks = int(number * share * BETWEEN_S * 100)
        delay_ns = int(number * delay_share * BETWEEN_S * SECOND)
        more = (
            Thread(pid * 10 + n, name, "S", cpu_ticks=50 + ticks, run_delay_ns=delay_ns)
            for n in range(THREADS)
        )
        return replace(look, threads=(*look.threads, *more))

    def at(look: Look, number: int) -> Look:
        processes = (
            of(process_look, number) if process_look.pid == pid else process_look
            for process_look in look.processes
        )
        return replace(look, processes=tuple(processes))

    return replace(evidence, looks=tuple(at(each, n) for n, each in enumerate(evidence.looks)))


def tokenizing() -> EvidenceBuilder:
    build = EvidenceBuilder()
    build.elsewhere(RANK, TOKENIZES)
    return build


def verdict_with(build: EvidenceBuilder, share: float, name: str = "python") -> Verdict:
    return diagnose(with_threads(build.build(), 100 + RANK, share, name)).verdict


def activity(build: EvidenceBuilder, share: float, name: str = "python") -> Activity:
    return index(with_threads(build.build(), 100 + RANK, share, name))[100 + RANK].activity


def test_who_waits_for_threads_that_compute_is_not_stuck() -> None:
    outcome = verdict_with(tokenizing(), 0.9)
    assert (outcome.state, outcome.cause, outcome.culprits) == (
        "slow",
        "user-code-busy",
        (RANK,),
    ), outcome
    assert "train.py:12, build_prompts for library threads, which compute" in outcome.summary
    assert any("library threads used 360% of a core" in item.text for item in outcome.evidence)


def test_who_waits_for_an_answer_waits_for_that_whatever_its_threads_do() -> None:
    build = tokenizing()
    build.rank(RANK).blocks("socket-receive", "10.0.0.1:5 -> 10.0.0.9:443")
    outcome = verdict_with(build, 0.9)
    assert (outcome.state, outcome.cause) == ("slow", "user-code-blocked")
    assert "10.0.0.9:443" in outcome.summary


@pytest.mark.parametrize(
    "name", ["pt_nccl_watchdg", "NCCL Progress 4", "pt_gloo_runloop", "cuda-EvtHandlr"]
)
def test_threads_that_poll_for_others_are_no_work(name: str) -> None:
    assert activity(tokenizing(), 0.9, name).native_share == 0
    assert verdict_with(tokenizing(), 0.9, name).state == "stuck"


def test_the_share_is_of_all_such_threads() -> None:
    motion_of_rank = activity(tokenizing(), 0.5)
    assert motion_of_rank.kind == "still"
    assert motion_of_rank.native_share == pytest.approx(THREADS * 0.5)
    assert motion_of_rank.library_works


def test_threads_that_get_no_core_are_at_work_as_well() -> None:
    slower = with_threads(tokenizing().build(), 100 + RANK, 0.04)
    assert not index(slower)[100 + RANK].activity.library_works
    crowded = with_threads(tokenizing().build(), 100 + RANK, 0.04, delay_share=0.5)
    assert index(crowded)[100 + RANK].activity.library_works


def test_a_thread_that_runs_python_is_none_of_them() -> None:
    build = tokenizing()
    tid = (100 + RANK) * 10
    build.rank(RANK).threads = [
        (PythonThread(tid + n, "heartbeat", ()), Thread(tid + n, "python", "S"))
        for n in range(THREADS)
    ]
    assert activity(build, 0.9).native_share == 0


def test_without_a_stack_no_thread_is_known_to_be_of_a_library() -> None:
    evidence = replace(tokenizing().build(), stacks=())
    moved = index(with_threads(evidence, 100 + RANK, 0.9))[100 + RANK].activity
    assert not moved.library_works
