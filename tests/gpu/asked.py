"""`grpo-doctor attach --json` as a user has it, in a process of its own and under a limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Answer:
    """The verdict in short; `error` where there was none."""

    seconds: float
    state: str = ""
    cause: str = ""
    culprits: tuple[int, ...] = ()
    confidence: float = 0.0
    summary: str = ""
    error: str = ""

    @property
    def text(self) -> str:
        """In one line."""
        if self.error:
            return f"no verdict: {self.error}"
        ranks = ", ".join(map(str, self.culprits)) or "none"
        return (
            f"{self.state}, {self.cause or 'no class'}, ranks {ranks}, {self.confidence:.0%}, "
            f"{self.seconds:.1f} s: {self.summary}"
        )


def attach(pid: int, keep: Path | None = None) -> Answer:
    """What is said of the job that this process is of; the evidence is kept there, if asked."""
    command = [sys.executable, "-m", "grpo_doctor", "attach", "--json", str(pid)]
    if keep is not None:
        command += ["-o", str(keep)]
    environment = {n: v for n, v in os.environ.items() if not n.startswith("GRPO_DOCTOR")}
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer(PATIENCE_S, error=f"nothing in {PATIENCE_S:.0f} s")
    seconds = time.monotonic() - began
    try:
        verdict = json.loads(done.stdout)["verdict"]
    except (ValueError, KeyError):
        return Answer(seconds, error=(done.stderr or done.stdout).strip()[-600:])
    return Answer(
        seconds, verdict["state"], verdict["class"], tuple(verdict["culprits"]),
        verdict["confidence"], verdict["summary"],
    )  # fmt: skip
