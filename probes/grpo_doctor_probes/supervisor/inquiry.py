"""One closer look: `grpo-doctor attach` as a child process that the job never waits for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

# 64 ranks on 2 cores take 15 s; a host that swaps, several times that.
AT_MOST_S = 120.0
ATTACH = (sys.executable, "-m", "grpo_doctor", "attach")
_NO_PERMISSION, _NO_JOB = 4, 5
_SAID_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        state: `healthy`, `slow`, `stuck` or `dead` as in the verdict; `unknown` when it could not
            tell; `gone` when there was no job any more; `refused` without the right to look;
            `failed` when the look itself went wrong.
        summary: one line in words.
        document: what `attach --json` printed; empty without a verdict.
        folder: where the bundle is.
    """

    state: str
    summary: str
    document: Mapping[str, Any]
    folder: Path

    @property
    def hangs(self) -> bool:
        """Whether the job will not go on by itself."""
        return self.state in ("stuck", "dead")


class Inquiry:
    """Starts the look at `pids`; `poll` until it has answered.

    Args:
        pids: ranks of the job.
        folder: is made for the bundle; beside it `<folder>.json` and `<folder>.log`.
        command: what to run (tests give their own).
        at_most_s: after this the look is given up.

    Raises:
        OSError: it can't be started.
    """

    def __init__(
        self,
        pids: Sequence[int],
        folder: Path,
        *,
        command: Sequence[str] = ATTACH,
        at_most_s: float = AT_MOST_S,
    ) -> None:
        self._folder, self._at_most_s = folder, at_most_s
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._begun = time.monotonic()
        words = [*command, *map(str, pids), "--out", str(folder), "--json"]
        with _private(self._output) as output, _private(self._log) as log:
            # A session of its own: a Ctrl-C is for the job, and the look ends with us by `cancel`.
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=log, start_new_session=True
            )

    def poll(self) -> Answer | None:
        """The answer, once there is one."""
        code = self._process.poll()
        if code is not None:
            return self._answer(code)
        if time.monotonic() - self._begun <= self._at_most_s:
            return None
        self.cancel()
        text = f"the look at the job took more than {self._at_most_s:.0f} s"
        return Answer("failed", text, {}, self._folder)

    def wait(self, at_most_s: float) -> Answer | None:
        """Waits for the answer; None if there is none in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(at_most_s)
        return self.poll()

    def cancel(self) -> None:
        """Ends it and what it started, but for a py-spy, which ends by itself and must: killed, it
        would leave a rank stopped."""
        if self._process.poll() is None:  # else the number may be another group's by now
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def discard(self) -> None:
        """Removes what it left: a look at a healthy job is not worth its room."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for path in (self._output, self._log):
            path.unlink(missing_ok=True)

    @property
    def _output(self) -> Path:
        return self._folder.with_suffix(".json")

    @property
    def _log(self) -> Path:
        return self._folder.with_suffix(".log")

    def _answer(self, code: int) -> Answer:
        document = _read_document(self._output)
        if document:
            verdict = document["verdict"]
            state = _state(str(verdict.get("state")), str(verdict.get("class")))
            return Answer(state, one_line(str(verdict.get("summary"))), document, self._folder)
        said = _last_line(self._log) or f"`grpo-doctor attach` ended with {code}"
        state = {_NO_PERMISSION: "refused", _NO_JOB: "gone"}.get(code, "failed")
        return Answer(state, said, {}, self._folder)


def _state(state: str, cause: str) -> str:
    """A job that is not known to be stuck, and for no known cause slow, is not known to be well."""
    if state in ("slow", "healthy") and cause == "unknown":
        return "unknown"
    return state if state in ("healthy", "slow", "stuck", "dead") else "unknown"


def _read_document(path: Path) -> dict[str, Any]:
    """What `attach --json` printed; empty where that is not a document with a verdict."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if isinstance(document, dict) and isinstance(document.get("verdict"), dict):
        return document
    return {}


def _last_line(path: Path) -> str:
    try:
        lines = path.read_bytes()[-_SAID_BYTES:].decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = [line for line in lines if line.strip()]
    return one_line(said[-1]).removeprefix("grpo-doctor: ") if said else ""


def one_line(text: str) -> str:
    """Fit for a terminal: names of processes and files in it may hold anything."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def _private(path: Path) -> BinaryIO:
    """A new file that the user alone can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
