"""The tool as a user has it: a command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.faults.jobs import ROOT, environment
from tests.faults.score import Answer

PATIENCE_S = 90.0


def attach(*arguments: str) -> Answer:
    """Runs `grpo-doctor attach --json` and reads what it says."""
    code, out, err, seconds = command("attach", "--json", *arguments)
    try:
        document = json.loads(out)
    except ValueError:
        return Answer(code, seconds, error=(err or out).strip()[-600:])
    return Answer.from_document(document, code, seconds)


def command(*arguments: str) -> tuple[int, str, str, float]:
    """Exit code, standard output, standard error and seconds of one command."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "grpo_doctor", *arguments], cwd=ROOT, env=environment(),
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, "", f"no answer in {PATIENCE_S:.0f} s", PATIENCE_S
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def pids(numbers: Sequence[int]) -> list[str]:
    return [str(pid) for pid in numbers]
