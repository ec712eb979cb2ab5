"""py-spy as it behaves, played by a script."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.look import pyspy
from grpo_doctor_probes.look import stackreading as stacks
from grpo_doctor_probes.look.pyspy import safe_values

ME = os.getpid()
FRAME = {"name": "f\x1b[1m", "filename": "/a\nb.py", "line": 3}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a script in place of py-spy, or one that prints these threads."""

    def install(body: str | list[dict[str, Any]]) -> None:
        script, printed = tmp_path / "py-spy", tmp_path / "answer.json"
        printed.write_text(json.dumps(body))
        words = body if isinstance(body, str) else f"cat {printed}"
        script.write_text(f"#!/bin/sh\n{words}\n")
        script.chmod(0o755)
        monkeypatch.setattr(pyspy, "binary", lambda: str(script))

    return install


def test_a_refusal_says_what_to_do(play: Any) -> None:
    play("echo 'Error: Failed to suspend: EPERM: Operation not permitted' >&2; exit 1")
    (stack,) = stacks.stacks([ME], at_most_s=10)
    assert stack.problem.startswith(f"no right to read the memory of process {ME}: ")
    assert len(stack.problem) > 60


def test_a_thread_without_a_number_is_the_main_one_by_its_name(play: Any) -> None:
    """As of Pythons in which py-spy cannot tell them."""
    threads = [
        {"pid": ME, "thread_name": "worker", "frames": [FRAME]},
        {"pid": ME, "thread_name": None, "frames": None},
        {"pid": ME, "thread_name": "MainThread", "frames": [FRAME]},
    ]
    play(threads)
    (stack,) = stacks.stacks([ME], at_most_s=10)
    rows = [(thread.tid, thread.name, len(thread.frames)) for thread in stack.threads]
    assert rows == [(ME, "MainThread", 1), (0, "worker", 1), (0, "", 0)]


LOCALS = [{"name": "step", "addr": 1, "repr": "3"}]


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([{**FRAME, "locals": LOCALS}], ""),
        ([FRAME], ""),
        ([{**FRAME, "locals": None}], ""),
        ([], "its main thread has no Python frames"),
        (None, "its main thread has no Python frames"),
    ],
)
def test_a_digest_is_of_the_main_thread(
    play: Any, frames: list[dict[str, Any]] | None, problem: str
) -> None:
    helper = {"pid": ME, "os_thread_id": 5, "frames": [FRAME]}
    main = {"pid": ME, "os_thread_id": ME, "frames": frames}
    play([helper, main])
    (digest,) = pyspy.locals_digests([ME], at_most_s=10)
    assert (digest.pid, digest.problem) == (ME, problem)
    assert digest.digest == ("" if problem else pyspy.digest_of(frames or []))
    play([helper])
    (digest,) = pyspy.locals_digests([ME], at_most_s=10)
    assert digest.problem == "its main thread has no Python frames"


def test_a_digest_changes_with_places_and_variables() -> None:
    digests = [
        pyspy.digest_of([{**FRAME, "line": line, "locals": variables}])
        for line in (3, 4)
        for variables in ([], LOCALS, [{**LOCALS[0], "repr": "4"}], [{**LOCALS[0], "addr": 2}])
    ]
    assert len(set(digests)) == len(digests)
    assert pyspy.digest_of([FRAME]) == pyspy.digest_of([{**FRAME, "locals": []}])


def test_each_process_gets_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more than its own share of it."""
    allowed: dict[int, float] = {}

    def dump(pid: int, *_: str, at_most_s: float) -> list[dict[str, Any]]:
        allowed[pid] = at_most_s
        raise pyspy.PySpyError("too slow")

    monkeypatch.setattr(pyspy, "dump", dump)
    digests = pyspy.locals_digests([1, 2], at_most_s=60)
    assert [(row.pid, row.problem) for row in digests] == [(1, "too slow"), (2, "too slow")]
    assert set(allowed.values()) == {3.0}
    pyspy.locals_digests([3], at_most_s=2)
    assert 0 < allowed[3] <= 2
    monkeypatch.setattr(stacks, "refusal", lambda _: "")
    (native,) = stacks.native_stacks([ME], at_most_s=50)
    assert (native.native, native.threads, native.problem) == (True, (), "too slow")
    assert 3 < allowed[ME] <= 50
    stacks.stacks([ME], at_most_s=50)
    assert allowed[ME] == 5.0


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
    monkeypatch.setattr(sys, "path", [""])
    assert pyspy.binary() is None


@pytest.mark.parametrize(
    "packages", ["target", "user/lib/python3.12/site-packages"], ids=["--target", "--user"]
)
def test_what_pip_put_beside_the_packages_needs_no_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packages: str
) -> None:
    folder = tmp_path / packages
    program = tmp_path / packages.partition("/")[0] / "bin" / "py-spy"
    for parent in (folder, program.parent):
        parent.mkdir(parents=True, exist_ok=True)
    program.touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "none"), str(folder)])
    assert pyspy.binary() is None, "of no package"
    (folder / "py_spy-0.4.3.dist-info").mkdir()
    assert pyspy.binary() == str(program)


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([], "it has ended"),
        (["Z"], "it has ended"),
        (["Z", "S"], ""),
        (["S", "D", "T"], "a thread of it is in uninterruptible sleep: a tracer would hang on it"),
        (["S", "T"], "it is stopped or traced by somebody else"),
        (["t"], "it is stopped or traced by somebody else"),
    ],
)
def test_which_processes_must_not_be_traced(
    monkeypatch: pytest.MonkeyPatch, states: list[str], reason: str
) -> None:
    monkeypatch.setattr(stacks, "numbers", lambda _: range(len(states)))
    monkeypatch.setattr(stacks, "state_of", lambda path: states[int(path.rsplit("/", 1)[1])])
    monkeypatch.setattr(stacks, "status", lambda _: {"TracerPid": "0"})
    monkeypatch.setattr(stacks, "frozen", lambda _: "")
    monkeypatch.setattr(stacks, "why_not_process", lambda _: "")
    assert stacks.refusal(ME) == reason
    monkeypatch.setattr(stacks, "status", lambda _: {"TracerPid": "7"})
    assert stacks.refusal(ME) == (reason or "it is stopped or traced by somebody else")


@pytest.mark.parametrize(
    ("letters", "continued"),
    [("tttT", True), ("T", True), ("S", False), ("tttS", False), ("R", False), ("t", False)],
)
def test_who_was_left_stopped_by_a_killed_tracer_is_continued(
    monkeypatch: pytest.MonkeyPatch, letters: str, *, continued: bool
) -> None:
    monkeypatch.setattr(stacks, "_SETTLES_S", 0.02 if letters == "t" else 60.0)
    sent: list[int] = []
    states = list(letters)  # one after the other, then it stays
    monkeypatch.setattr(
        stacks, "state_of", lambda _: states.pop(0) if len(states) > 1 else states[0]
    )
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    stacks.leave_running(ME)
    assert sent == [signal.SIGCONT] * continued


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("src", "3", {"src": "3"}),
        ("tag", "-1", {"tag": "-1"}),
        ("src", "'a prompt'", {}),
        ("prompt", "3", {}),
        ("key", "'default_pg/0//worker/1'", {"key": "default_pg/0//worker/1"}),
        ("key", "'what is the answer?'", {}),
        ("key", "'" + "a" * 80 + "'", {}),
        ("key", "'hf_abcdefghijklmnopqrstuvwx'", {"key": "[redacted]"}),
        ("global_ranks_in_group", "[0, 1, 12]", {"global_ranks_in_group": "[0, 1, 12]"}),
        ("ranks", "['a prompt']", {}),
        ("prompts", "[0, 1]", {}),
        ("lock_filename", "'/data/hub.lock'", {"path": "/data/hub.lock"}),
        ("canonical_path", '"/data/hub.lock"', {"path": "/data/hub.lock"}),
        ("build_directory", "'/ext/cpu_adam'", {"path": "/ext/cpu_adam/lock"}),
        ("lock_file", "'hub.lock'", {}),
        ("lock_file", "'/data/what is the answer'", {}),
        ("lock_path", "'/" + "a" * 300 + "'", {}),
        ("prompt", "'/data/hub.lock'", {}),
    ],
)
def test_only_small_numbers_names_of_libraries_and_paths_of_locks_are_shown(
    name: str, value: str, shown: dict[str, str]
) -> None:
    assert safe_values([{"name": name, "repr": value}]) == shown
