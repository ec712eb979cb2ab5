"""A run of the bundled trainer through the tool, as a user has it: commands in processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.case_studies.commandline import spelled
from tests.faults.jobs import environment

PATIENCE_S = 500.0


@dataclass(frozen=True)
class Recorded:
    """A run and what `report --json` says of it."""

    folder: Path
    document: dict[str, Any]

    @property
    def step_s(self) -> float:
        """The mean step of the steady part."""
        return float(self.document["summary"]["step_time_s"])

    def phase_s(self, name: str) -> float:
        """What a phase takes of a step by itself, the mean of the ranks."""
        phase = self.document["summary"]["phases"].get(name)
        return float(phase["work_seconds"]) if phase else 0.0


class CommandFailedError(Exception):
    """A command that ended otherwise than it should have, with the end of what it said."""


def record(
    flags: Mapping[str, tuple[str, ...]], folder: Path, *, ranks: int = 2, expect: int = 0
) -> Recorded:
    """Runs the trainer with these flags under `grpo-doctor run`; its log is `<folder>.log`.

    Raises:
        CommandFailedError: it ended with another code than expected.
    """
    arguments = ["run", "-o", str(folder), "--nproc", str(ranks), "--", *spelled(flags)]
    output = tool(arguments, folder.parent, expect)
    folder.with_suffix(".log").write_text(output)
    return report(folder)


def report(folder: Path) -> Recorded:
    """Reads a recording by `grpo-doctor report --json`."""
    return Recorded(folder, json.loads(tool(["report", str(folder), "--json"], folder.parent)))


def tool(arguments: list[str], folder: Path, expect: int = 0) -> str:
    """Runs one command of the tool in `folder`; gives what it printed, or else what it said.

    Raises:
        CommandFailedError: it ended with another code than expected.
    """
    done = subprocess.run(
        [sys.executable, "-m", "grpo_doctor", *arguments], cwd=folder, env=environment(),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    if done.returncode != expect:
        raise CommandFailedError(
            f"grpo-doctor {' '.join(arguments)} ended with {done.returncode}, not {expect}:\n"
            f"{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout or done.stderr
