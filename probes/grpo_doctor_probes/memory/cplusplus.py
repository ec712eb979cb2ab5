"""Objects of libstdc++ and of torch's core in the memory of another process, static ones included.

Every size is bounded: what is read may change meanwhile, or be no such object at all.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from typing import Protocol

from grpo_doctor_probes.memory.access import Memory

_MOST_BYTES = 1 << 16
_MOST_NODES = 4096
_SHORT_AT = 16  # of a string: where a text of up to 15 bytes lies
_NODE = struct.Struct("<QQQQ")  # colour, parent, left, right
_WORDS = struct.Struct("<QQQ")
_SMALL = struct.Struct("<QII")  # of c10::SmallVector: begin, how many, room
_CODE_BYTES = 256  # of the function; of those that it calls a quarter
_CALLED_BYTES = 64
_CALLS_WITHIN = 160
_GUARD_BYTES = 8
# movzbl guard(%rip), %eax; test %al, %al, and mov pointer(%rip), to any register
_GUARD = re.compile(rb"\x0f\xb6\x05(.{4})\x84\xc0", re.DOTALL)
_LOAD = re.compile(rb"[\x48\x4c]\x8b[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4})", re.DOTALL)
_CALL = b"\xe8"
_RELATIVE = struct.Struct("<i")


class NotAnObjectError(Exception):
    """What is there can't be such an object."""


class Reader:
    """Objects in a memory. Methods raise NotAnObjectError, and OSError where nothing is.

    `content` is a part of the memory that was read before, at `start`: what lies in it is not read
    again.
    """

    def __init__(self, memory: Memory, start: int = 0, content: bytes = b"") -> None:
        """Of the memory of a process."""
        self._memory, self._start, self._content = memory, start, content

    def bytes_at(self, address: int, size: int) -> bytes:
        """`size` bytes, at most 64 KiB."""
        if not 0 <= size <= _MOST_BYTES:
            raise NotAnObjectError(f"an object of {size} bytes")
        offset = address - self._start
        if 0 <= offset <= len(self._content) - size:
            return self._content[offset : offset + size]
        return self._memory.read(address, size)

    def word(self, address: int) -> int:
        """The 8 bytes there."""
        return int.from_bytes(self.bytes_at(address, 8), "little")

    def string(self, address: int) -> str:
        """The text of a `std::string`."""
        begin, size = struct.unpack("<QQ", self.bytes_at(address, 16))
        if begin == address + _SHORT_AT and size >= _SHORT_AT:
            raise NotAnObjectError("a short text of too many bytes")
        return self.bytes_at(begin, size).decode("utf-8", "replace")

    def vector(self, address: int, of: str) -> tuple[int, ...]:
        """The numbers of a `std::vector`; `of` is their letter in `struct`."""
        begin, end, room = _WORDS.unpack(self.bytes_at(address, _WORDS.size))
        if not begin <= end <= room:
            raise NotAnObjectError("a vector that ends before it begins")
        return self._numbers(begin, end - begin, of)

    def small_vector(self, address: int) -> tuple[int, ...]:
        """The numbers of a `c10::SmallVector<int64_t, N>`."""
        begin, count, room = _SMALL.unpack(self.bytes_at(address, _SMALL.size))
        if count > room:
            raise NotAnObjectError("a vector with more than it has room for")
        return self._numbers(begin, 8 * count, "q")

    def _numbers(self, begin: int, size: int, of: str) -> tuple[int, ...]:
        if size % struct.calcsize(f"<{of}"):
            raise NotAnObjectError("a part of a number")
        count = size // struct.calcsize(f"<{of}")
        return struct.unpack(f"<{count}{of}", self.bytes_at(begin, size)) if count else ()

    def nodes(self, address: int) -> Iterator[int]:
        """The addresses of the values of a `std::map`, in the order of their keys."""
        header = address + 8
        _, at, _, _ = _NODE.unpack(self.bytes_at(header, _NODE.size))
        count = self.word(header + _NODE.size)
        if count > _MOST_NODES:
            raise NotAnObjectError(f"a map of {count} values")
        above: list[tuple[int, int]] = []
        walked = 0
        while at or above:
            while at:
                if len(above) > count:
                    raise NotAnObjectError("a map without an end")
                _, _, left, right = _NODE.unpack(self.bytes_at(at, _NODE.size))
                above.append((at, right))
                at = left
            node, at = above.pop()
            walked += 1
            if walked > count:
                raise NotAnObjectError("a map with more values than it says")
            yield node + _NODE.size
        if walked != count:
            raise NotAnObjectError("a map with fewer values than it says")


class Code(Protocol):
    """Memory, or the file that it was loaded from."""

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`. Raises OSError."""


def static_pointer(memory: Code, function: int) -> int | None:
    """The address of the guard of the first static object that x86-64 code at `function` uses.

    Looks into the function and then into those that it calls at once. The pointer lies 8 bytes
    above it. None where there is none, or where the code is not understood. Raises OSError.

    Torch's recorder hangs on a pointer that is static in a function, which no library exports. What
    compilers make of it is always the same: a guard byte is tested, then the 8 bytes behind the 8
    bytes of the guard are loaded. Read in torch 2.8.0, 2.13.0, 2.14.1 and 2.15.0
    (`tests/torch_contract`).
    """
    code = memory.read(function, _CODE_BYTES)
    for start, part in _code_blocks(memory, function, code):
        for match in _GUARD.finditer(part):
            guard = _target(start, match)
            pointer = guard + _GUARD_BYTES
            if any(_target(start, load) == pointer for load in _LOAD.finditer(part)):
                return guard
    return None


def _code_blocks(memory: Code, function: int, code: bytes) -> Iterator[tuple[int, bytes]]:
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
