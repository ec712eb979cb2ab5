"""Objects of libstdc++ and of torch's core in the memory of another process.

Every size is bounded: what is read may change meanwhile, or be no such object at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from grpo_doctor_probes.memory.access import Memory

_MOST_BYTES = 1 << 16
_MOST_NODES = 4096
_SHORT_AT = 16  # of a string: where a text of up to 15 bytes lies
_NODE = struct.Struct("<QQQQ")  # colour, parent, left, right
_WORDS = struct.Struct("<QQQ")
_SMALL = struct.Struct("<QII")  # of c10::SmallVector: begin, how many, room


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
        """Return the 8 bytes there."""
        return int.from_bytes(self.bytes_at(address, 8), "little")

    def string(self, address: int) -> str:
        """Return the text of a `std::string`."""
        begin, size = struct.unpack("<QQ", self.bytes_at(address, 16))
        if not begin:
            raise NotAnObjectError("a text that is nowhere")
        if begin == address + _SHORT_AT and size >= _SHORT_AT:
            raise NotAnObjectError("a short text of too many bytes")
        return self.bytes_at(begin, size).decode("utf-8", "replace")

    def vector(self, address: int, of: str) -> tuple[int, ...]:
        """Return the numbers of a `std::vector`; `of` is their letter in `struct`."""
        begin, end, room = _WORDS.unpack(self.bytes_at(address, _WORDS.size))
        if not begin <= end <= room:
            raise NotAnObjectError("a vector that ends before it begins")
        return self._numbers(begin, end - begin, of)

    def small_vector(self, address: int) -> tuple[int, ...]:
        """Return the numbers of a `c10::SmallVector<int64_t, N>`."""
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
        """Yield the addresses of the values of a `std::map`, in the order of their keys."""
        header = address + 8
        _, at, first, _ = _NODE.unpack(self.bytes_at(header, _NODE.size))
        count = self.word(header + _NODE.size)
        if count > _MOST_NODES:
            raise NotAnObjectError(f"a map of {count} values")
        if not at and first != header:
            raise NotAnObjectError("a map that was never made")
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
