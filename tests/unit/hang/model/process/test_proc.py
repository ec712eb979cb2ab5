"""What is read off one process: its name, its main thread, its phase and its quota."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model.nodes import Node, ProcessNode, RankNode
from grpo_doctor.hang.model.process.stacks import Place
from grpo_doctor_probes.evidence import Frame, Limits, OpenSpanSeen, Role
from tests.evidence import TORCH, frames
from tests.unit.hang.model.process.procs import JOIN, OTHER, PID, of, proc, span, subject, thread
from tests.verdicts import REWARD, UPDATE


@pytest.mark.parametrize(
    ("role", "rank", "node"),
    [
        ("rank", 1, RankNode(1)),
        ("rank", None, ProcessNode(PID)),
        ("helper", 1, ProcessNode(PID)),
        ("ray", None, ProcessNode(PID)),
    ],
)
def test_a_rank_is_known_by_its_number_and_all_others_by_their_process(
    role: Role, rank: int | None, node: Node
) -> None:
    build, process = subject()
    process.member = replace(process.member, role=role, rank=rank)
    assert proc(build).node == node


@pytest.mark.parametrize("how", ["not seen", "without threads", "seen"])
def test_the_main_thread_is_there_where_the_last_look_has_it(how: str) -> None:
    build, _ = subject()
    evidence = build.build()
    rows = tuple(
        replace(process, threads=()) if how == "without threads" and process.pid == PID else process
        for process in evidence.looks[1].processes
        if how != "not seen" or process.pid != PID
    )
    main = of(
        replace(evidence, looks=(evidence.looks[0], replace(evidence.looks[1], processes=rows)))
    ).main
    assert (main.tid if main is not None else None) == (PID if how == "seen" else None)


@pytest.mark.parametrize(
    ("spans", "phase"),
    [
        ((), "reward"),
        ((span("rollout", 5.0),), "rollout"),
        ((span("rollout", 5.0), span("sync", 2.0)), "sync"),  # the innermost
        ((span("sync", 2.0), span("rollout", 5.0)), "sync"),
        ((span("rollout", 5.0), span("my own", 2.0)), "rollout"),
        ((span("rollout", 5.0), span("sync", 2.0, collective=True)), "rollout"),
        ((span("sync", 2.0, collective=True),), "reward"),
        ((span("my own", 2.0),), "reward"),
    ],
)
def test_the_phase_is_that_of_its_innermost_span_or_of_its_stack(
    spans: tuple[OpenSpanSeen, ...], phase: str
) -> None:
    assert proc(subject(REWARD)[0], spans=spans).phase == phase


@pytest.mark.parametrize(
    ("main", "beside", "phase"),
    [(JOIN, REWARD, "reward"), (JOIN, UPDATE, None), (REWARD, UPDATE, "reward")],
)
def test_or_that_of_the_thread_that_it_waits_for(
    main: tuple[Frame, ...], beside: tuple[Frame, ...], phase: str | None
) -> None:
    build, process = subject(main)
    thread(process, OTHER, beside)
    assert proc(build).phase == phase


@pytest.mark.parametrize(
    ("throttled_ns", "share"), [((500, 500), 0.0), ((10**9, 16 * 10**8), 0.5), ((10**9,), 0.0)]
)
def test_how_long_its_quota_held_it_back(throttled_ns: tuple[int, ...], share: float) -> None:
    build, _ = subject()
    limits = tuple((Limits(PID, throttled_ns=each),) for each in throttled_ns)
    assert proc(build, limits=limits).throttled_share == pytest.approx(share)


def test_over_no_time_no_quota_holds_back() -> None:
    build, _ = subject()
    evidence = build.build()
    first = tuple(process for process in evidence.looks[0].processes if process.pid != PID)
    looks = (replace(evidence.looks[0], processes=first), evidence.looks[1])
    limits = ((Limits(PID),), (Limits(PID, throttled_ns=10**9),))
    assert of(replace(evidence, looks=looks, limits=limits)).throttled_share == 0.0


def test_the_main_thread_is_known_by_its_number_wherever_it_stands_in_a_stack() -> None:
    build, process = subject()
    thread(process, OTHER, REWARD)
    evidence = build.build()
    turned = tuple(
        replace(stack, threads=tuple(reversed(stack.threads))) if stack.pid == PID else stack
        for stack in evidence.stacks[1]
    )
    observed = of(replace(evidence, stacks=(evidence.stacks[0], turned)))
    assert (observed.tid, observed.place.user) == (PID, UPDATE[0])
    only = tuple(
        replace(stack, threads=stack.threads[1:]) if stack.pid == PID else stack
        for stack in evidence.stacks[1]
    )
    assert of(replace(evidence, stacks=(evidence.stacks[0], only))).place.user == REWARD[0]


def test_a_process_without_a_stack_is_its_main_thread_and_stands_nowhere() -> None:
    build, _ = subject()
    evidence = build.build()
    none = tuple(
        replace(stack, threads=()) if stack.pid == PID else stack for stack in evidence.stacks[1]
    )
    observed = of(replace(evidence, stacks=(none, none)))
    assert (observed.tid, observed.place, observed.blocking_place) == (PID, Place(), Place())


def test_in_a_source_checkout_of_torch_its_calls_are_known_too() -> None:
    build, _ = subject(frames("all_reduce /src/torch/distributed/c10d.py:3", "main /x/t.py:9"))
    assert proc(build).place.call == "collective"
    build, _ = subject(frames(f"barrier {TORCH}/c10d.py:3"))
    assert proc(build).place.call == "collective"
