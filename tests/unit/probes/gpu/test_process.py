"""A module in a process of its own: its lines, its silence and its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.gpu.process import Child, EndedError

MODULE = """
import sys, os
def main(arguments):
    for line in sys.stdin:
        if line == "end\\n":
            sys.exit(3)
        print(line.strip(), *arguments, os.getsid(0) == os.getpid(), flush=True)
"""


def test_a_child_answers_lines_and_its_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answering.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    child = Child("answering", "a", "b")
    try:
        assert child.line(0.0) is None
        child.ask("one")
        assert child.line(60.0) == "one a b True"
        assert child.line(0.0) is None
        assert child.state() in ("R", "S", "D")
        assert child.pid != os.getpid()
        child.ask("end")
        with pytest.raises(EndedError, match="its process ended"):
            child.line(60.0)
        assert child._process.wait(60.0) == 3
        with pytest.raises(EndedError, match="its process ended with 3"):
            child.ask("two")
    finally:
        child.leave()
    assert child.state() == ""


@pytest.mark.parametrize(("state", "is_killed"), [("S", True), ("D", False)])
def test_who_is_left_is_ended_but_in_a_driver(
    state: str, *, is_killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deaf.py").write_text("import signal\ndef main(_): signal.pause()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(Child, "state", lambda _: state)
    child = Child("deaf")
    process = child._process
    child.leave()
    if not is_killed:
        assert process.poll() is None
        process.kill()
    assert process.wait(60.0) == -9
