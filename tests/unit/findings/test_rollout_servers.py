"""A server's own load and flags."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.rollout_servers import Load, Program, loads
from tests.build import TraceBuilder
from tests.unit.findings.rules.served import beside_servers, served

LOAD = Load("host-a", 700, None, 0.0, 0.0, 0.0, 0.0, None, None, None)
VIEW = RunView.of(TraceBuilder(framework="trl", framework_version="1.16.0").build())


def program(table: str, version: str | None = None) -> Program:
    return Program(table, version, {}, frozenset())


def of_program(table: str, version: str | None = None) -> Load:
    return replace(LOAD, program=program(table, version))


@pytest.mark.parametrize(("table", "version", "is_so"), [
    ("trl server", "1.16.0", True),
    ("trl server", "1.15.0", False),
    ("trl server", None, False),
    ("vllm", "0.10.0", False),
    ("ms-swift server", "4.6.0", False),
])  # fmt: skip
def test_newer_versions_of_trl_start_the_server_of_vllm(
    table: str, version: str | None, is_so: bool
) -> None:
    assert program(table, version).handed_over is is_so


@pytest.mark.parametrize(("load", "knob", "text"), [
    (of_program("vllm", "0.10.0"), "vllm.max_num_seqs", "--max-num-seqs 64"),
    (of_program("sglang", "0.5.0"), "vllm.max_num_seqs", "--max-running-requests 64"),
    (of_program("trl server", "1.16.0"), "vllm.max_num_seqs", "--max-num-seqs 64"),
    (of_program("trl server", "1.15.0"), "vllm.max_num_seqs", None),
    (of_program("sglang", "0.5.0"), "vllm.max_num_batched_tokens", None),
    (LOAD, "vllm.max_num_seqs", None),
])  # fmt: skip
def test_a_setting_is_spelled_for_the_command_of_the_server_or_not_given(
    load: Load, knob: str, text: str | None
) -> None:
    fix = load.setting(VIEW, knob, 64, reason="it was not tried", risk="")
    if text is None:
        assert fix is None
    else:
        assert fix is not None
        assert load.program is not None
        assert fix.typed == text
        assert fix.spelling == f"for {load.program.name}: {text}"
        assert (fix.knob, fix.after) == (knob, 64)
    assert load.spelled(VIEW, knob, 64) == text


@pytest.mark.parametrize(
    ("running", "waiting", "share"), [(0.0, 0.0, 0.0), (3.0, 1.0, 0.25), (0.0, 2.0, 1.0)]
)
def test_the_share_that_waits_is_of_all_requests(
    running: float, waiting: float, share: float
) -> None:
    assert replace(LOAD, running=running, waiting=waiting).queued_share == share


def test_a_server_is_told_by_its_program_host_and_process() -> None:
    assert replace(LOAD, pid=None).name == "the rollout server"
    assert LOAD.name == "the server on host-a, pid 700"
    assert of_program("vllm").name == "`vllm serve` on host-a, pid 700"


def test_each_server_has_what_it_said_itself() -> None:
    build = served(beside_servers(), pid=700, requests_running=8.0, requests_waiting=2.0)
    served(build, pid=701, requests_running=2.0, preemptions=3.0)
    first, second = loads(RunView.of(build.build()))
    assert [(load.pid, load.running_peak, load.waiting_peak) for load in (first, second)] == [
        (700, 8.0, 2.0),
        (701, 2.0, 0.0),
    ]
    assert first.running == pytest.approx(4 * second.running)
    assert first.queued_share == pytest.approx(0.2)
    assert (first.preemptions, first.tokens) == (None, None)
    # 3 per second in the five seconds of a rollout, which the mean step draws out by 1%.
    assert second.preemptions == pytest.approx(15.0, rel=0.02)
