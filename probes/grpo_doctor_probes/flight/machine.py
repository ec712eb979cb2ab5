"""What a call into a thread needs to know of a processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

NT_PRSTATUS = 1  # the register set of the general registers
EINTR = 4
# What an interrupted call returns to the kernel: EINTR, ERESTARTSYS, ERESTARTNOINTR,
# ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
INTERRUPTED = frozenset((EINTR, 512, 513, 514, 516))
SCRATCH_BYTES = 64


@dataclass(frozen=True)
class Saved:
    """All that a call changes in a thread: registers, vector registers, signal mask.

    The registers are those of `Machine.again`. `blocked` has bit n-1 for signal n.
    """

    registers: bytes
    floats: bytes
    blocked: int


@dataclass(frozen=True)
class Call:
    """A C or C++ function to call. `result` is the address that an object is returned to.

    `scratch` is written where the thread has room for SCRATCH_BYTES, see `Machine.scratch`.
    """

    function: int
    arguments: Sequence[int] = ()
    result: int | None = None
    scratch: bytes = b""


@dataclass(frozen=True)
class Frame:
    """What to write at `address` of the thread's stack, and the registers to run with."""

    address: int
    data: bytes
    registers: bytes


class Machine(Protocol):
    """A processor. Everything but `system_call` is a pure function."""

    name: str
    floats: int  # number of the register set that holds them
    asleep_in: Mapping[int, str]  # system calls in which a thread may be borrowed
    futex: int  # numbers of system calls
    tgkill: int
    return_code: bytes  # the instructions that ask the kernel to restore a signal frame
    return_library: str  # where they are
    bare_return: bytes  # how `_fini` ends: it leaves 8 bytes of stack, and returns to the next 8

    def system_call(self, registers: bytes, code: bytes) -> int | None:
        """The call a stopped thread is in; `code` are the 4 bytes before its next and that one."""

    def again(self, registers: bytes) -> bytes:
        """The registers that make an interrupted system call anew, as if it had not begun."""

    def first_argument(self, registers: bytes) -> int:
        """The first argument of the system call it is in."""

    def stack(self, registers: bytes) -> int:
        """Where its stack ends."""

    def position(self, registers: bytes) -> int:
        """Where its next instruction is."""

    def scratch(self, registers: bytes) -> int:
        """The address of SCRATCH_BYTES below its stack, for results and arguments."""

    def frame(self, saved: Saved, call: Call, return_to: int, by: int = 0) -> Frame:
        """How to make the call and come back from it; with `by`, by a `bare_return` there."""
