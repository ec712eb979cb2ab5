"""Where a C++ function keeps its static object, read out of its machine code.

Torch's recorder hangs on a pointer that is static in a function, which no library exports. What
compilers make of it is always the same: a guard byte is tested, then the 8 bytes behind the 8 bytes
of the guard are loaded. Read in torch 2.8.0, 2.13.0, 2.14.1 and 2.15.0 (`tests/torch_contract`).
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from typing import Protocol

_CODE_BYTES = 256  # of the function; of those that it calls a quarter
_CALLED_BYTES = 64
_CALLS_WITHIN = 160
_GUARD_BYTES = 8
# movzbl guard(%rip), %eax; test %al, %al, and mov pointer(%rip), to any register
_GUARD = re.compile(rb"\x0f\xb6\x05(.{4})\x84\xc0", re.DOTALL)
_LOAD = re.compile(rb"[\x48\x4c]\x8b[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4})", re.DOTALL)
_CALL = b"\xe8"
_RELATIVE = struct.Struct("<i")


class Code(Protocol):
    """Memory, or the file that it was loaded from."""

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`. Raises OSError."""


def static_pointer(memory: Code, function: int) -> int | None:
    """The address of the guard of the first static object that x86-64 code at `function` uses.

    Looks into the function and then into those that it calls at once. The pointer lies 8 bytes
    above it. None where there is none, or where the code is not understood. Raises OSError.
    """
    code = memory.read(function, _CODE_BYTES)
    for start, part in _parts(memory, function, code):
        for match in _GUARD.finditer(part):
            guard = _target(start, match)
            wanted = guard + _GUARD_BYTES
            if any(_target(start, load) == wanted for load in _LOAD.finditer(part)):
                return guard
    return None


def _parts(memory: Code, function: int, code: bytes) -> Iterator[tuple[int, bytes]]:
    """The code itself, then the first bytes of each function that it calls."""
    yield function, code
    at = code.find(_CALL, 0, _CALLS_WITHIN)
    while at >= 0:
        called = function + at + 5 + _RELATIVE.unpack_from(code, at + 1)[0]
        with contextlib.suppress(OSError):  # the byte was part of another instruction
            yield called, memory.read(called, _CALLED_BYTES)
        at = code.find(_CALL, at + 1, _CALLS_WITHIN)


def _target(start: int, match: re.Match[bytes]) -> int:
    """What the four bytes of a match point to: they count from the end of their instruction."""
    return start + match.end(1) + int(_RELATIVE.unpack(match[1])[0])
