"""How the trainer ends: its exit code, and which rank says why."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from grpo_doctor_trainer import __main__ as program
from grpo_doctor_trainer import interrupts
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.interrupts import Interrupted


@pytest.fixture(autouse=True)
def _signals_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "_received", [])
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None, rank: int = 0, *flags: str
) -> int:
    """Runs a job that ends with an error, or well."""

    def job(_config: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(program, "_run", job)
    monkeypatch.setattr(sys, "argv", ["trainer", *flags])
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    return program.main()


def test_a_job_that_ends_well_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, None) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_mistake_that_one_rank_finds_is_said_by_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    assert exit_code(monkeypatch, CheckpointError("the disk is full"), rank) == 2
    assert capsys.readouterr().err == "error: the disk is full\n"


@pytest.mark.parametrize(("rank", "speaks", "waited"), [(0, True, []), (1, False, [2])])
def test_a_mistake_in_the_flags_is_said_once_and_the_others_wait_for_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int, speaks: bool,
    waited: list[float],
) -> None:  # fmt: skip
    naps: list[float] = []
    monkeypatch.setattr(time, "sleep", naps.append)
    assert exit_code(monkeypatch, None, rank, "--max_steps", "ten") == 2
    assert ("expected int, got" in capsys.readouterr().err) == speaks
    assert naps == waited


@pytest.mark.parametrize(("rank", "lines"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_was_stopped_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int, lines: int,
    number: signal.Signals,
) -> None:  # fmt: skip
    assert exit_code(monkeypatch, Interrupted(number), rank) == 128 + number
    assert capsys.readouterr().out.count(f"stopped by signal {int(number)}; ") == lines


def test_what_fails_because_of_a_stop_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts._received.append(signal.SIGTERM)
    assert exit_code(monkeypatch, RuntimeError("Connection reset by peer")) == 128 + 15


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="sizes differ"):
        exit_code(monkeypatch, RuntimeError("sizes differ"))
