"""An error that leaves a phase is noted once, where it left, and nothing else is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from grpo_doctor.trace.jsonfile import read_lines
from grpo_doctor_probes import phase, step
from grpo_doctor_probes.record import failures
from tests.unit.probes.conftest import Recorded


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures._Noted, "count", 0)
    monkeypatch.setattr(failures._Noted, "cuts", 0)
    monkeypatch.setattr(failures._Noted, "last", 0)


def noted(recording: Recorded) -> list[str]:
    return [name for name in recording.names if name.startswith(failures.PREFIX)]


def fail(error: Exception) -> None:
    raise error


def test_the_innermost_phase_is_named_once(recording: Recorded) -> None:
    with pytest.raises(RuntimeError), phase("train"), phase("reward/judge"):
        fail(RuntimeError("two devices\nsecond line"))
    assert noted(recording) == ["error/reward/RuntimeError: two devices"]


REMOTE = 'ray::main()\n  File "/x/train.py", line 3, in main\nValueError: boom\n'


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two devices\nsecond line"), "ValueError: two devices"),
        (RuntimeError(REMOTE), "ValueError: boom"),
        (KeyError("image"), "KeyError: 'image'"),
        (OSError(), "OSError: "),
        (ValueError("\x80" * 500), "ValueError: " + "\x80" * 148),
    ],
)
def test_the_error_that_ends_a_process_is_one_line_in_the_run_directory(
    error: Exception, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    failures.note_uncaught(error, str(tmp_path))
    (row,), problem = read_lines(tmp_path / "errors.jsonl")
    assert (row["text"], row["rank"], row["pid"], problem) == (text, 3, os.getpid(), None)


def test_what_steers_a_program_is_no_failure(recording: Recorded) -> None:
    for steering in (StopIteration(), KeyboardInterrupt(), SystemExit(1)):
        with pytest.raises(type(steering)), phase("dataload"):
            raise steering
    assert noted(recording) == []


@pytest.mark.parametrize(
    ("error", "cut"),
    [
        (KeyboardInterrupt(), ["cut/KeyboardInterrupt"]),
        (SystemExit(1), ["cut/SystemExit"]),
        (ValueError("no"), ["cut/ValueError"]),
        (StopIteration(), []),  # it steers
    ],
)
def test_a_step_that_an_exception_leaves_was_cut(
    recording: Recorded, error: BaseException, cut: list[str]
) -> None:
    with step(1):
        pass
    with pytest.raises(type(error)), step(4):
        raise error
    assert [name for name in recording.names if name.startswith(failures.CUT)] == cut


def test_secrets_are_taken_out(recording: Recorded) -> None:
    with pytest.raises(OSError, match="401"), phase("reward"):
        fail(OSError("401 for https://judge/?token=abcdef123"))
    assert "abcdef123" not in noted(recording)[0]


def test_errors_without_end_are_noted_a_few_times(recording: Recorded) -> None:
    errors = [ValueError(f"row {number}") for number in range(40)]
    for error in errors:
        with pytest.raises(ValueError, match="row"), step(1), phase("dataload"):
            fail(error)
    assert len(noted(recording)) == recording.names.count("cut/ValueError") == 16


class WordlessError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def test_an_error_that_has_no_words_harms_nobody(recording: Recorded) -> None:
    with pytest.raises(WordlessError), phase("train"):
        fail(WordlessError())
    assert recording.header.errors == 1


def test_a_host_gets_its_own_error_though_noting_it_fails(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    unimportable = "grpo_doctor_probes.record.failures"
    monkeypatch.setitem(sys.modules, unimportable, None)
    error = ValueError("the host's own")
    with pytest.raises(ValueError, match="the host's own") as caught, phase("train"):
        raise error
    assert caught.value is error
    assert recording.names == ["train"]
    assert (recording.header.errors, recording.header.open_spans) == (1, ())
