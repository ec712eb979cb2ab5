"""Where a library has an object that is static in a function, by the code that uses it.

No library exports such an object. What compilers make of it is always the same: a guard byte is
tested, then the pointer in the 8 bytes behind the 8 bytes of the guard is loaded. Held against the
symbol tables of torch's wheels from 2.8 to 2.15 (`tests/torch_contract`).
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
# x86-64: movzbl guard(%rip), %eax; test %al, %al, and mov pointer(%rip), to any register
_GUARD = re.compile(rb"\x0f\xb6\x05(.{4})\x84\xc0", re.DOTALL)
_LOAD = re.compile(rb"[\x48\x4c]\x8b[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4})", re.DOTALL)
_CALL = b"\xe8"
_RELATIVE = struct.Struct("<i")
# aarch64: bits of an instruction that say what it is, and what they are then
_ADRP = (0x9F000000, 0x90000000)  # a register := the page that lies so far away
_ADD = (0xFFC00000, 0x91000000)  # a register := another one and a number
_ACQUIRE = ((0xFFFFFC00, 0xC8DFFC00), (0xFFFFFC00, 0x08DFFC00))  # load a guard, 8 bytes or one
_LDR = (0xFFC00000, 0xF9400000)  # load 8 bytes
_BL = (0xFC000000, 0x94000000)  # call
_BLR = (0xFFFFFC1F, 0xD63F0000)  # call by a register
_KEPT_FROM = 19  # registers that a call leaves as they are
_PAGE_BYTES = 4096


class Code(Protocol):
    """Memory, or the file that it was loaded from."""

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`. Raises OSError."""


def static_pointer(memory: Code, function: int, machine: str) -> int | None:
    """Return the address of the guard of the first static pointer that code at `function` uses.

    Looks into the function and then into those that it calls at once. The pointer lies 8 bytes
    above the guard. None where there is none, or where the code is not understood. Raises OSError.
    """
    calls, guard_in = {"x86_64": (_calls, _guard), "aarch64": (_arm_calls, _arm_guard)}[machine]
    code = memory.read(function, _CODE_BYTES)
    guard = guard_in(function, code)
    for called in calls(function, code[:_CALLS_WITHIN]) if guard is None else ():
        with contextlib.suppress(OSError):  # the bytes were part of another instruction
            guard = guard_in(called, memory.read(called, _CALLED_BYTES))
        if guard is not None:
            break
    return guard


def _calls(start: int, code: bytes) -> Iterator[int]:
    """The functions that x86-64 code may call; bytes of other instructions can look like a call."""
    at = code.find(_CALL)
    while 0 <= at <= len(code) - 5:
        yield start + at + 5 + _RELATIVE.unpack_from(code, at + 1)[0]
        at = code.find(_CALL, at + 1)


def _guard(start: int, code: bytes) -> int | None:
    loads = {_target(start, load) for load in _LOAD.finditer(code)}
    guards = (_target(start, match) for match in _GUARD.finditer(code))
    return next((guard for guard in guards if guard + _GUARD_BYTES in loads), None)


def _target(start: int, match: re.Match[bytes]) -> int:
    """What the four bytes of a match point to: they count from the end of their instruction."""
    return start + match.end(1) + int(_RELATIVE.unpack(match[1])[0])


def _instructions(start: int, code: bytes) -> Iterator[tuple[int, int]]:
    """Yield the address and the bits of each instruction of aarch64 code."""
    for number, (bits,) in enumerate(struct.iter_unpack("<I", code[: len(code) & ~3])):
        yield start + 4 * number, bits


def _is(bits: int, kind: tuple[int, int]) -> bool:
    mask, value = kind
    return bits & mask == value


def _signed(value: int, width: int) -> int:
    return value - ((value >> (width - 1)) << width)


def _arm_calls(start: int, code: bytes) -> Iterator[int]:
    for at, bits in _instructions(start, code):
        if _is(bits, _BL):
            yield at + 4 * _signed(bits & 0x3FFFFFF, 26)


def _arm_guard(start: int, code: bytes) -> int | None:
    """What is loaded with acquire semantics is a guard, if the 8 bytes behind it are loaded too."""
    registers: dict[int, int] = {}
    guards: list[int] = []
    loads: set[int] = set()
    for at, bits in _instructions(start, code):
        to, base, number = bits & 31, bits >> 5 & 31, bits >> 10 & 0xFFF
        if _is(bits, _ADRP):
            pages = _signed((bits >> 5 & 0x7FFFF) << 2 | bits >> 29 & 3, 21)
            registers[to] = (at & -_PAGE_BYTES) + pages * _PAGE_BYTES
        elif _is(bits, _BL) or _is(bits, _BLR):
            registers = {kept: value for kept, value in registers.items() if kept >= _KEPT_FROM}
        elif base not in registers:
            continue
        elif _is(bits, _ADD):
            registers[to] = registers[base] + number
        elif _is(bits, _ACQUIRE[0]) or _is(bits, _ACQUIRE[1]):
            guards.append(registers[base])
        elif _is(bits, _LDR):
            loads.add(registers[base] + 8 * number)
            registers.pop(to, None)
    return next((guard for guard in guards if guard + _GUARD_BYTES in loads), None)
