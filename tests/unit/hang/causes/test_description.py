from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang.causes.description import (
    KernelSleep,
    activity_item,
    asleep_for,
    at_frame,
    doing,
    in_phase,
    is_blocked_in,
    kernel_item,
    kernel_sleep,
    others_wait,
    peers_seen,
    process_item,
    stack_item,
    still_item,
    title,
    working_class,
)
from grpo_doctor_probes.evidence import Blocked, Frame, Member
from tests.evidence import EvidenceBuilder, frames
from tests.unit.hang.causes.doubles import activity, place, process
from tests.verdicts import verdict

TIMED = frames(
    "check /home/me/rewards.py:31",
    "call /usr/lib/python3.11/site-packages/grpo_doctor_probes/decorate.py:35",
    "_calculate_rewards /usr/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py:1606",
)


def test_a_stack_in_evidence_has_none_of_the_frames_that_time_the_job() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, TIMED)
    process.blocks("lock")
    process.stack = TIMED
    stacks = [item.text for item in verdict(build).evidence if item.source == "stack"]
    (text,) = [stack for stack in stacks if "rewards.py:31" in stack]
    assert "decorate.py" not in text
    assert "grpo_trainer.py:1606" in text


MINE, INNER = frames("check /home/me/rewards.py:31", "recv /usr/lib/python3.11/socket.py:7")


@pytest.mark.parametrize(
    ("phase", "blocking_place", "stack", "text"),
    [
        (None, place(), place(), ""),
        ("reward", place(), place(), " in reward"),
        ("reward", place(), place(INNER), " in reward (socket.py:7, recv)"),
        (None, place(), place(INNER, MINE, user=MINE), " at rewards.py:31, check"),
        (None, place(INNER, MINE, user=MINE), place(INNER), " at rewards.py:31, check"),
        (None, place(MINE), place(INNER), " at socket.py:7, recv"),  # a thread without own code
    ],
)
def test_in_which_phase_and_line(
    phase: str | None, blocking_place: Any, stack: Any, text: str
) -> None:
    assert in_phase(process(phase=phase, blocking_place=blocking_place, place=stack)) == text


def test_a_line_of_code_in_a_sentence() -> None:
    assert (at_frame(MINE), at_frame(None)) == (" at rewards.py:31, check", "")


PIPE = Blocked(101, 101, "pipe-read", target="pipe:[7]")
LOCK = Blocked(101, 101, "file-lock")


@pytest.mark.parametrize(
    ("proc", "text"),
    [
        (
            process(ended_meanwhile=True, cannot_run=True, activity=activity("gone")),
            ("exited during the inspection"),
        ),
        (process(cannot_run=True, activity=activity("gone")), "is dead"),
        (process(cannot_run=True, activity=activity("stopped")), "is stopped"),
        (process(cannot_run=True, activity=activity("frozen")), "is frozen"),
        (process(activity=activity("busy", cpu_share=0.98)), "uses 98% of a core"),
        (
            process(activity=activity("working", cpu_share=0.5), blocking_place=place(MINE)),
            "uses 50% of a core at rewards.py:31, check",
        ),
        (process(), "makes no progress"),
        (process(blocking_place=place(MINE)), "makes no progress at rewards.py:31, check"),
        (process(hold=PIPE, blocked=(LOCK,)), "makes no progress (pipe read pipe:[7])"),
        (process(blocked=(LOCK, PIPE)), "makes no progress (file lock)"),
        (process(activity=activity("busy"), hold=PIPE), "uses 0% of a core"),
    ],
)
def test_what_a_process_is_at(proc: Any, text: str) -> None:
    assert doing(proc) == text
    assert process_item(proc).text == f"pid 101 (python w.py) {text}"


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("/v/bin/python sandbox.py --n 3", "x", "pid 101 (python sandbox.py --n 3)"),
        ("", "pt_main_thread", "pid 101 (pt_main_thread)"),
        ("", "", "pid 101"),
        (f"python {'x' * 60}", "", f"pid 101 (python {'x' * 53})"),
    ],
)
def test_a_process_by_its_command(command: str, name: str, text: str) -> None:
    assert title(process(member=Member(101, 1, 0, "rank", name, command))) == text


@pytest.mark.parametrize(
    ("phase", "share", "own", "label"),
    [
        ("reward", 0.3, False, "reward-busy"),
        ("reward", 0.29, False, "reward-blocked"),
        ("sync", 0.29, False, "weight-sync-blocked"),
        ("sync", 0.3, False, "user-code-busy"),
        (None, 0.0, False, "user-code-blocked"),
        ("dataload", 0.9, False, "dataload-blocked"),
        ("dataload", 0.9, True, "user-code-busy"),
        ("dataload", 0.1, True, "dataload-blocked"),
    ],
)
def test_a_class_by_phase_and_work(phase: str | None, share: float, own: bool, label: str) -> None:
    rank = process(phase=phase, activity=activity("busy", cpu_share=share))
    worker = rank if own else process(activity=activity("busy", cpu_share=share))
    assert working_class(rank, worker) == label


def thread(state: str = "S", wchan: str = "") -> Any:
    return SimpleNamespace(state=state, wchan=wchan)


@pytest.mark.parametrize(
    ("blocking_thread", "kind"),
    [
        (None, ""),
        (thread("S", ""), ""),
        (thread("S", "futex_do_wait"), ""),
        (thread("D", "do_swap_page"), "memory"),
        (thread("S", "mem_cgroup_handle_over_high"), "memory"),
        (thread("S", "kernel_clone"), "vfork"),
        (thread("D", "nv_wait"), "gpu"),
        (thread("D", "wait_nv_"), ""),
        (thread("R", "uvm_fault"), ""),  # it runs again
    ],
)
def test_what_a_thread_sleeps_for_in_the_kernel(blocking_thread: Any, kind: KernelSleep) -> None:
    proc = process(blocking_thread=blocking_thread)
    assert kernel_sleep(proc) == kind
    cannot_run = process(blocking_thread=blocking_thread, cannot_run=True)
    works = process(blocking_thread=blocking_thread, activity=activity("working"))
    busy = process(blocking_thread=blocking_thread, activity=activity("busy"))
    if kind:
        assert list(asleep_for(kind, [cannot_run, proc, works, busy])) == [proc, busy]
        assert not list(asleep_for("vfork" if kind == "gpu" else "gpu", [proc]))


def test_the_kernel_function_in_words() -> None:
    assert kernel_item(process(blocking_thread=thread("D", "nv_wait"))).text == "state D in nv_wait"
    assert kernel_item(process(blocking_thread=thread("D"))).text == "state D in the kernel"
    assert kernel_item(process()).text == "state ? in the kernel"


@pytest.mark.parametrize(
    ("main", "moved", "text"),
    [
        (None, activity(seconds=0.19), "pid 101: no threads"),
        (thread("S"), activity(seconds=0.19), "pid 101: state S"),
        (thread("D", "nv_wait"), activity(seconds=0.1), "pid 101: state D, in nv_wait"),
        (thread("S"), activity(seconds=0.1, still_s=7.0), "pid 101: state S, last ran 7.0 s ago"),
    ],
)
def test_that_it_did_not_run(main: Any, moved: Any, text: str) -> None:
    proc = process(main=main, activity=moved)
    assert still_item(proc).text == activity_item(proc).text == text


def test_over_two_tenths_of_a_second_there_are_rates() -> None:
    proc = process(main=thread("S"), activity=activity(seconds=0.2, cpu_share=0.25, wakes=3))
    assert still_item(proc).text.startswith("pid 101: state S, 25% of a core in ")
    assert activity_item(proc).text.startswith("pid 101 still: 25% of a core, woke 3 times, 0 B")
    assert not still_item(process(activity=activity(seconds=0.2))).text.endswith("ago")


def test_a_stack_has_four_lines_and_none_without_frames() -> None:
    proc = process(place=place(*(Frame("f", "/x/a.py", line) for line in range(6))))
    assert stack_item(proc).text == "a.py:0, f < a.py:1, f < a.py:2, f < a.py:3, f"
    assert stack_item(process()).text == "no Python stack"


@pytest.mark.parametrize(
    ("hold", "kinds", "inside"),
    [(PIPE, ("pipe-read",), True), (PIPE, ("lock", "file"), False), (None, ("pipe-read",), False)],
)
def test_the_kind_of_a_blocked_call(
    hold: Blocked | None, kinds: tuple[str, ...], inside: bool
) -> None:
    assert is_blocked_in(process(hold=hold), *kinds) is inside


@pytest.mark.parametrize(
    ("waiting", "rank", "all_others"),
    [
        ((True, True, True), 1, True),
        ((True, False, True), 1, True),
        ((True, False, False), 1, False),
        ((True, False, True), None, False),
        ((False,), 0, False),  # there are no others
    ],
)
def test_whether_all_others_wait(
    waiting: tuple[bool, ...], rank: int | None, all_others: bool
) -> None:
    by_rank: Any = {number: process(waits=waits) for number, waits in enumerate(waiting)}
    view: Any = SimpleNamespace(by_rank=by_rank, by_pid={300: "peer"})
    assert others_wait(view, rank) is all_others
    assert [*map(str, peers_seen(view, replace(PIPE, peers=(300, 301))))] == ["peer"]
