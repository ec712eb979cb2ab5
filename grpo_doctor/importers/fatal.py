"""Lines of a log that say that the job failed: time-outs, memory, exceptions, signals."""

from __future__ import annotations

import re
from pathlib import Path

from grpo_doctor.importers.text import lines, without_actor

_FATAL = re.compile(
    r"Watchdog caught collective operation timeout|CUDA out of memory|OutOfMemoryError"
    r"|CUDA error: |NCCL (?:error|failure)|ncclSystemError|ncclRemoteError|ncclUnhandledCudaError"
    r"|ChildFailedError|RayTaskError|RayActorError|ActorDiedError|OwnerDiedError"
    r"|exitcode {0,9}:? {0,9}-?[1-9]|Signal \d+ \(SIG\w+\) received|oom-kill|Out of memory: Killed"
    r"|Segmentation fault|Fatal Python error|terminate called after|\(core dumped\)"
    r"|^\s*(?:\S+: line \d+: +\d+ )?Killed\b"
)
_TRACEBACK = "Traceback (most recent call last)"
# What Python prints of an exception that it goes on after.
_IGNORED = "Exception ignored in"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Died)\b.*")
_RANK = re.compile(r"^\s*\[(?:rank)?\d+\]: ?")
_TABLE = re.compile(r"\s*[│┃|┏┡└├]")
_INTERRUPT = "KeyboardInterrupt"
_LONGEST = 160


class FatalLines:
    """The first fatal line after the last step, and how many steps followed earlier ones."""

    def __init__(self) -> None:
        self.text = ""
        self.number = 0
        self._in_traceback = self._ignored = False
        self._survived: list[int] = []

    def step(self) -> None:
        """A line of a step: what was fatal before it was not."""
        if self.text:
            self._survived.append(self.number)
        self.text, self._in_traceback = "", False

    def read(self, number: int, line: str) -> None:
        """A line that is not a step."""
        if self.text or _TABLE.match(line):
            return
        text = _RANK.sub("", without_actor(line)[1])
        if _TRACEBACK in text or _IGNORED in text:
            self._in_traceback = _IGNORED not in text and not self._ignored
            self._ignored = _IGNORED in text
        elif found := _FATAL.search(text):
            self._keep(number, text[found.start() :])
        elif self._in_traceback and (raised := _EXCEPTION.match(text)):
            self._keep(number, raised[0])

    def _keep(self, number: int, text: str) -> None:
        text = text.strip(" .")
        self.text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        self.number, self._in_traceback = number, False

    @property
    def interrupted(self) -> bool:
        """Whether somebody ended the job."""
        return self.text.startswith(_INTERRUPT)

    @property
    def sentence(self) -> str:
        """`Line 31 of the log: ...`; empty where the log has no such line after its last step."""
        return f"Line {self.number} of the log: {self.text}" if self.text else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Errors after which the job made further steps."""
        if not self._survived:
            return ()
        lines = ", ".join(map(str, self._survived[:8]))
        return (f"The log has errors after which the job made further steps: line {lines}.",)


def fatal_sentence(path: Path) -> str:
    """Return the first fatal line of a log that has no step; empty without one."""
    fatal = FatalLines()
    for number, line, _ in lines(path):
        fatal.read(number, line)
    return fatal.sentence
