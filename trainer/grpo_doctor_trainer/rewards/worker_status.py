"""What a worker leaves for its parent in a file without a name: how far it is, and its stack.

The parent reads it when the worker answers no more, also after a crash.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import re
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

StackLine = tuple[str, int, str]
"""File, line and function."""
ASK_SIGNAL = signal.SIGUSR1
_PROGRESS_BYTES = 8
_MOST_BYTES = 1 << 18
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_TASK = re.compile(r"^await (\S+) (\d+) (\S+) (.*)$", re.MULTILINE)


class WorkerStatus:
    """Both sides of the file, by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    # -- the worker's side

    def listen(self) -> None:
        """Writes the stack here on `ASK_SIGNAL`, and in a crash."""
        os.ftruncate(self.descriptor, _PROGRESS_BYTES)
        os.lseek(self.descriptor, _PROGRESS_BYTES, os.SEEK_SET)
        signal.signal(ASK_SIGNAL, self._write_tasks)
        # In this order: faulthandler needs no interpreter, so it answers even from within C code.
        faulthandler.register(ASK_SIGNAL, file=self.descriptor, all_threads=True, chain=True)
        faulthandler.enable(file=self.descriptor)

    def at_completion(self, index: int) -> None:
        """Notes which completion of the call is next."""
        os.pwrite(self.descriptor, index.to_bytes(_PROGRESS_BYTES, "little"), 0)

    def _write_tasks(self, _number: int, _frame: FrameType | None) -> None:
        # A coroutine that waits is on no thread's stack.
        try:
            tasks = asyncio.all_tasks()
        except RuntimeError:  # no loop runs
            return
        for task in tasks:
            for file, line, name in lines_of(task):
                text = f"\nawait {task.get_name()} {line} {name} {file}\n"
                os.write(self.descriptor, text.encode())

    # -- the parent's side

    def progress(self) -> int:
        """The index that was noted last."""
        return int.from_bytes(os.pread(self.descriptor, _PROGRESS_BYTES, 0), "little")

    def text(self) -> str:
        """What the worker wrote of its stack until now."""
        return os.pread(self.descriptor, _MOST_BYTES, _PROGRESS_BYTES).decode("utf-8", "replace")

    def stack(self, task: str) -> list[StackLine]:
        """File, line and function of what ran, innermost first; that of an async call by name."""
        text = self.text()
        awaited = [(file, int(line), name) for t, line, name, file in _TASK.findall(text)
                   if t == task]  # fmt: skip
        return awaited or [(file, int(line), name) for file, line, name in _FRAME.findall(text)]


def lines_of(task: asyncio.Task[Any]) -> list[StackLine]:
    """File, line and function of all that a task awaits, innermost first."""
    lines: list[StackLine] = []
    awaited: Any = task.get_coro()
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        lines.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        awaited = awaited.cr_await
    return lines[::-1]
