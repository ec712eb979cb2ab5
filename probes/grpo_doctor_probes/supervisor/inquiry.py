"""One closer look: `grpo-doctor attach` as a child process that the job never waits for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from grpo_doctor_probes.procs.printable import MESSAGE_LIMIT, printable
from grpo_doctor_probes.record.rundir import make_private

# A bundle takes under 1 MB a rank, and is written beside the one it replaces.
_PER_RANK_BYTES = 2 << 20
# 64 ranks on 2 cores take 15 s; a host that swaps, several times that.
AT_MOST_S = 120.0
ATTACH = (sys.executable, "-m", "grpo_doctor", "attach")
_NO_PERMISSION = _NOT_WRITTEN = 4
_NO_JOB = 5
_ERRORS_BYTES = 4096


def made_with_room(folder: Path, ranks: int) -> Path | None:
    """Make `folder`, or one among temporary files where its disk has no room for a bundle of so
    many ranks; None where those have none either. The user alone may read it."""
    with contextlib.suppress(OSError):
        make_private(str(folder))
        if _has_room(folder, ranks):
            return folder
        folder.rmdir()  # kept where something is in it
    with contextlib.suppress(OSError):
        if _has_room(Path(tempfile.gettempdir()), ranks):
            return Path(tempfile.mkdtemp(prefix="grpo-doctor-hang-"))
    return None


def _has_room(folder: Path, ranks: int) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= ranks * _PER_RANK_BYTES


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        state: `healthy`, `slow`, `stuck` or `dead` as in the verdict; `unknown` without a result;
        `gone` when there was no job any more; `refused` without the permission;
            `failed` when the inspection itself went wrong.
        summary: one line in words.
        document: what `attach --json` printed; empty without a verdict.
        folder: where the bundle is.
        not_kept: why there is no bundle; empty where there is one.
    """

    state: str
    summary: str
    document: Mapping[str, Any]
    folder: Path
    not_kept: str = ""

    @property
    def hangs(self) -> bool:
        """Whether the job will not resume by itself."""
        return self.state in ("stuck", "dead")

    @property
    def cause(self) -> tuple[object, tuple[int, ...]]:
        """The class of the verdict, and the ranks that it names."""
        return self.document.get("verdict", {}).get("class"), self.culprits

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that hold the job up, as far as they are known."""
        ranks = self.document.get("verdict", {}).get("culprits")
        return tuple(r for r in ranks if isinstance(r, int)) if isinstance(ranks, list) else ()


class Inquiry:
    """Starts the look at `pids`; `poll` until it has answered.

    What it prints stays in memory: a job may well hang because the disk is full.

    Args:
        pids: ranks of the job.
        folder: is made for the bundle, or one among temporary files where it has no room.
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
        self._at_most_s, self._begin_s = at_most_s, time.monotonic()
        self._folder = made_with_room(folder, len(pids))
        keep = ["-o", str(self._folder)] if self._folder else []
        self._requested = folder
        self._printed, self._errors = _in_memory("printed"), _in_memory("errors")
        try:
            # A session of its own: a Ctrl-C is for the job, and the look ends with us by `cancel`.
            self._process = subprocess.Popen(
                [*command, *map(str, pids), *keep, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError:
            self.discard()
            raise

    def poll(self) -> Answer | None:
        """Return the answer, once there is one."""
        code = self._process.poll()
        if code is not None:
            return self._answer(code)
        if time.monotonic() - self._begin_s <= self._at_most_s:
            return None
        self.cancel()
        text = f"the inspection of the job took more than {self._at_most_s:.0f} s"
        return Answer("failed", text, {}, self._folder or self._requested)

    def wait(self, at_most_s: float) -> Answer | None:
        """Wait for the answer; None if there is none in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(at_most_s)
        return self.poll()

    def cancel(self) -> None:
        """End it and what it started, but for a py-spy, which ends by itself and must: killed, it
        would leave a rank stopped."""
        if self._process.poll() is None:  # else the number may be another group's by now
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def discard(self) -> None:
        """Remove what it left: an inspection of a healthy job is not worth its space."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Let go of what it printed. More than once does no harm."""
        self._printed.close()
        self._errors.close()

    def _answer(self, code: int) -> Answer:
        message = _last_line(_content(self._errors)) or f"`grpo-doctor attach` ended with {code}"
        document = _document(_content(self._printed))
        folder = self._folder or self._requested
        if not document:
            state = {_NO_PERMISSION: "refused", _NO_JOB: "gone"}.get(code, "failed")
            return Answer(state, message, {}, folder)
        verdict = document["verdict"]
        state = _state(str(verdict.get("state")), str(verdict.get("class")))
        summary = printable(str(verdict.get("summary")), MESSAGE_LIMIT)
        not_kept = message if code == _NOT_WRITTEN else ""
        if self._folder is None:
            not_kept = f"there is no space in {self._requested.parent} nor among temporary files"
        return Answer(state, summary, document, folder, not_kept)


def _state(state: str, cause: str) -> str:
    """A job that is not known to be stuck, and for no known cause slow, is not known to be well."""
    if state in ("slow", "healthy") and cause == "unknown":
        return "unknown"
    if state == "dead" and not cause:  # all of it ended meanwhile
        return "gone"
    return state if state in ("healthy", "slow", "stuck", "dead") else "unknown"


def _document(printed: bytes) -> dict[str, Any]:
    """Return what `attach --json` printed; empty where that is not a document with a verdict."""
    with contextlib.suppress(ValueError):
        document = json.loads(printed[printed.find(b"{") :])
        if isinstance(document, dict) and isinstance(document.get("verdict"), dict):
            return document
    return {}


def _last_line(text: bytes) -> str:
    lines = text[-_ERRORS_BYTES:].decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return printable(last, MESSAGE_LIMIT).removeprefix("grpo-doctor: ")


def _in_memory(name: str) -> IO[bytes]:
    """A file without a disk."""
    return os.fdopen(os.memfd_create(f"grpo-doctor-{name}"), "w+b", buffering=0)


def _content(file: IO[bytes]) -> bytes:
    """Return all of it. The child has the same file, and the same position in it."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
