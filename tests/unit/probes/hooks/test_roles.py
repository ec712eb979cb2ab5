"""Roles of processes, and when those without steps look whether CUDA is in use."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.hooks.roles import with_gpu_times, with_role
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.conftest import Recorded


@pytest.fixture(autouse=True)
def _without_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROLE, "_name", None)
    monkeypatch.setattr(ROLE, "_pid", 0)


def test_a_process_has_the_role_of_the_first_object_that_gives_one() -> None:
    def init(value: int) -> tuple[int, str | None]:
        return value, ROLE.of_this_process()

    async def init_later() -> str | None:
        return ROLE.of_this_process()

    made = with_role("actor")(init)
    assert ROLE.of_this_process() is None
    assert made(7) == (7, "actor")
    assert asyncio.run(with_role("reward")(init_later)()) == "actor"


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often torch was asked whether CUDA is in use."""
    calls: list[str] = []

    def is_initialized() -> bool:
        calls.append("asked")
        return False

    cuda = SimpleNamespace(is_initialized=is_initialized)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return calls


def triple(value: int) -> int:
    return 3 * value


def test_what_works_on_the_gpu_looks_whether_cuda_is_in_use(
    recording: Recorded, queries: list[str]
) -> None:
    work: Callable[[int], int] = with_gpu_times(triple)
    assert (work(2), queries) == (6, ["asked"])
    assert (work(3), queries) == (9, ["asked", "asked"])
    assert recording.header.errors == 0


def test_without_a_recording_nothing_is_asked(queries: list[str]) -> None:
    assert (with_gpu_times(triple)(2), queries) == (6, [])


def test_recording_may_begin_with_the_first_work_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: list[str]
) -> None:
    monkeypatch.setenv("GRPO_DOCTOR_RUN_DIR", str(tmp_path))
    assert (with_gpu_times(triple)(2), queries) == (6, ["asked"])


def test_an_error_in_the_look_is_counted(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("a torch from tomorrow")

    monkeypatch.setattr(recorder.Recorder, "watch_cuda", fail)
    assert with_gpu_times(triple)(2) == 6
    assert recording.header.errors == 1
