"""py-spy as it behaves, played by a script."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.look import pyspy
from grpo_doctor_probes.look import stackreading as stacks
from grpo_doctor_probes.look.pyspy import safe_values

ME = os.getpid()
FRAME = {"name": "f\x1b[1m", "filename": "/a\nb.py", "line": 3}
THREADS: list[dict[str, Any]] = [
    {"pid": ME, "os_thread_id": 5, "thread_name": "helper", "frames": [FRAME], "active": True},
    {"pid": ME, "os_thread_id": ME, "thread_name": "MainThread", "frames": [], "owns_gil": True},
    {"pid": ME + 1, "os_thread_id": 9, "thread_name": "of a child", "frames": []},
]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a script in place of py-spy; returns how often it was run."""

    def place(body: str) -> Any:
        script, runs = tmp_path / "py-spy", tmp_path / "runs"
        script.write_text(f"#!/bin/sh\necho run >> {runs}\n{body}\n")
        script.chmod(0o755)
        monkeypatch.setattr(pyspy, "binary", lambda: str(script))
        return lambda: len(runs.read_text().split())

    return place


def printing(tmp_path: Path) -> str:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(THREADS))
    return f"cat {path}"


def test_the_main_thread_comes_first_and_texts_are_harmless(play: Any, tmp_path: Path) -> None:
    play(printing(tmp_path))
    (found,) = stacks.stacks([ME], at_most_s=10)
    assert [thread.tid for thread in found.threads] == [ME, 5]
    assert (found.threads[0].owns_gil, found.threads[1].active) == (True, True)
    (frame,) = found.threads[1].frames
    assert (frame.function, frame.file, frame.line) == ("f?[1m", "/a?b.py", 3)


def test_a_running_process_that_could_not_be_read_is_tried_again(play: Any, tmp_path: Path) -> None:
    flag = tmp_path / "second"
    runs = play(f"if [ -e {flag} ]; then {printing(tmp_path)}; else touch {flag}; exit 1; fi")
    (found,) = stacks.stacks([ME], at_most_s=10)
    assert found.problem == ""
    assert len(found.threads) == 2
    assert runs() == 2


def test_what_fails_twice_has_a_reason(play: Any) -> None:
    runs = play(
        "echo 'Error: Failed to find \x1b[1m python' >&2; echo 'Stack backtrace:' >&2; exit 1"
    )
    (found,) = stacks.stacks([ME], at_most_s=10)
    assert (found.threads, found.problem) == ((), "py-spy: Failed to find ?[1m python")
    assert runs() == 2


def test_a_refusal_says_what_to_do(play: Any) -> None:
    play("echo 'Error: Failed to suspend: EPERM: Operation not permitted' >&2; exit 1")
    (found,) = stacks.stacks([ME], at_most_s=10)
    assert found.problem.startswith(f"no right to read the memory of process {ME}: ")
    assert len(found.problem) > 60


def test_it_is_ended_when_time_is_up(play: Any) -> None:
    play("exec sleep 60")
    (found,) = stacks.stacks([ME], at_most_s=0.3)
    assert "no answer within 0." in found.problem or "no time was left" in found.problem


def test_no_json_is_an_old_version(play: Any) -> None:
    play("echo Process 1")
    (found,) = stacks.stacks([ME], at_most_s=10)
    assert "pip install -U py-spy" in found.problem


def test_without_py_spy_the_problem_is_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "binary", lambda: None)
    (found,) = stacks.stacks([ME], at_most_s=10)
    assert found.problem == pyspy.NOT_INSTALLED
    assert "pip install" in found.problem


def test_the_one_beside_this_python_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("own", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "py-spy").write_text("#!/bin/sh\n")
        (tmp_path / folder / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "own" / "python"))
    assert pyspy.binary() == str(tmp_path / "own" / "py-spy")
    (tmp_path / "own" / "py-spy").unlink()
    assert pyspy.binary() == str(tmp_path / "path" / "py-spy")
    (tmp_path / "path" / "py-spy").unlink()
    assert pyspy.binary() is None


def test_a_thread_in_uninterruptible_sleep_is_never_traced(
    play: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = play(printing(tmp_path))
    (tmp_path / "runs").touch()
    monkeypatch.setattr(stacks, "thread_states", lambda _: ["S", "D"])
    (found,) = stacks.native_stacks([ME], at_most_s=10)
    assert "uninterruptible sleep" in found.problem
    assert runs() == 0
    monkeypatch.setattr(stacks, "thread_states", lambda _: ["S"])
    monkeypatch.setattr(stacks, "frozen", lambda _: "/sys/fs/cgroup/x/cgroup.freeze")
    (found,) = stacks.native_stacks([ME], at_most_s=10)
    assert "frozen" in found.problem
    assert runs() == 0


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("src", "3", True),
        ("group_dst", "None", True),
        ("tag", "-1", True),
        ("src", "'a prompt'", False),
        ("src", "12345678901234567890", False),
        ("prompt", "3", False),
        ("self", "<Trainer at 0x7f>", False),
        ("key", "'default_pg/0//worker/1'", True),
        ("key", "'what is the answer?'", False),
        ("key", "'" + "a" * 80 + "'", False),
        ("global_ranks_in_group", "[0, 1, 12]", True),
        ("ranks", "[0, 1, ...]", True),
        ("ranks", "['a prompt']", False),
        ("prompts", "[0, 1]", False),
    ],
)
def test_only_small_numbers_and_names_of_libraries_are_shown(
    name: str, value: str, shown: bool
) -> None:
    found = safe_values([{"name": name, "repr": value}])
    assert found == ({name: value.strip("'")} if shown else {})


def test_a_key_that_is_a_secret_is_hidden() -> None:
    found = safe_values([{"name": "key", "repr": "'hf_abcdefghijklmnopqrstuvwx'"}])
    assert found == {"key": "[redacted]"}
