"""A thread in a blocking call, as the functions that explain it need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.look.ends import end_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_probes.evidence import Thread
    from grpo_doctor_probes.evidence.looks import Blocking
    from grpo_doctor_probes.look.ends import Way
    from grpo_doctor_probes.look.hostview import HostView

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A thread in a blocking call."""

    view: HostView
    pid: int
    thread: Thread
    is_main: bool

    def argument(self, at: int) -> int:
        """An argument of the call, 0 where the kernel did not tell."""
        return self.thread.arguments[at] if at < len(self.thread.arguments) else 0

    def descriptor(self, at: int = 0) -> int:
        """An argument that is a descriptor: an int, whatever is above it in the register."""
        return self.argument(at) & 0xFFFFFFFF

    def in_memory(self, read: Callable[[], Value], otherwise: Value) -> Value:
        """What `read` finds in the memory of the process, `otherwise` where it can't.

        One that did not answer in time is not asked again: each of its threads would cost a second.
        """
        if self.pid in self.view.mute:
            return otherwise
        try:
            return read()
        except TimeoutError:
            self.view.mute.add(self.pid)
        except (OSError, ValueError):
            pass
        return otherwise

    def row(self, kind: Blocking, note: str = "", **values: object) -> Blocked:
        """A row of this thread."""
        return Blocked(self.pid, self.thread.tid, kind, note=note, **values)  # type: ignore[arg-type]

    def end(self, fd: int, way: Way) -> Blocked:
        """The row of a descriptor that it reads or writes."""
        return end_of(self.view, self.pid, self.thread.tid, fd, way)
