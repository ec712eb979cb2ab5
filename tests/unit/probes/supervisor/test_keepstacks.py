"""Stacks of processes as text, one file each; where there are none, why."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.look import pyspy
from grpo_doctor_probes.supervisor.keepstacks import keep_stacks

SCRIPT = '#!/bin/sh\n[ "$4" = 5 ] && { echo "stack of $4 by $1 $2"; exit 0; }\necho gone >&2\n'


def test_each_process_has_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "spy"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setattr(pyspy, "binary", lambda: str(program))
    keep_stacks(tmp_path / "stacks", [5, 6])
    assert (tmp_path / "stacks" / "5.txt").read_text() == "stack of 5 by dump --nonblocking\n"
    assert (tmp_path / "stacks" / "6.txt").read_text() == "no stack: gone\n"


def test_without_the_program_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    keep_stacks(tmp_path, [5])
    text = (tmp_path / "5.txt").read_text()
    assert text.startswith("no stack: ")
    assert "'py-spy'" in text
