"""A shared library as a file: its symbols, and what its code calls."""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM, _LOAD = 2, 11, 1
_CALL = b"\xe8"


class Binary:
    """An x86-64 library. `symbols`: the address of each name that is defined in it."""

    def __init__(self, path: Path) -> None:
        """Of the file at `path`, which is mapped and not loaded."""
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        segments, sections = struct.unpack_from("<QQ", self._data, 32)
        counts = struct.unpack_from("<HHHH", self._data, 54)
        table = self._data[segments : segments + _SEGMENT.size * counts[1]]
        self._segments = [s for s in _SEGMENT.iter_unpack(table) if s[0] == _LOAD]
        raw = self._data[sections : sections + _SECTION.size * counts[3]]
        self._sections = list(_SECTION.iter_unpack(raw))
        self.symbols: dict[str, int] = {}
        self._exported: list[str] = []
        self._imported: list[str] = []
        for section in self._sections:
            if section[1] in (_SYMTAB, _DYNSYM):
                self._add(section)
        self._names = {address: name for name, address in self.symbols.items()}

    def _add(self, section: tuple[int, ...]) -> None:
        """The symbols of one table."""
        names = self._sections[section[6]]
        strings = self._data[names[4] : names[4] + names[5]]
        table = self._data[section[4] : section[4] + section[5]]
        for at, _info, _other, section_index, address, _size in _SYMBOL.iter_unpack(table):
            name = strings[at : strings.index(b"\0", at)].decode()
            if section_index:
                self.symbols.setdefault(name, address)
            if section[1] == _DYNSYM:
                (self._exported if section_index else self._imported).append(name)

    def read(self, address: int, size: int) -> bytes:
        """Bytes at an address of its own, as `Memory.read`. Raises OSError."""
        for _kind, _flags, offset, start, _physical, in_file, _size, _align in self._segments:
            if start <= address < start + in_file:
                at = offset + address - start
                return self._data[at : at + size]
        raise OSError(f"nothing is loaded at {address:#x}")

    def exported(self, part: str) -> list[str]:
        """The names that other libraries can use and that contain `part`."""
        return [name for name in self._exported if part in name]

    def imports(self, name: str) -> bool:
        """Whether it needs `name` of another library."""
        return name in self._imported

    def only(self, *parts: str, start: str) -> int:
        """The address of the one symbol that begins and has parts so. Raises ValueError."""
        addresses = {
            address
            for name, address in self.symbols.items()
            if name.startswith(start) and all(part in name for part in parts)
        }
        (address,) = addresses
        return address

    def calls(self, function: int, size: int) -> list[str]:
        """The last name of each function that code at `function` calls directly, sorted.

        Bytes that look like a call and lead to no function's beginning are none.
        """
        code, callees = self.read(function, size), set()
        for at in range(len(code) - 5):
            if code[at : at + 1] == _CALL:
                target = function + at + 5 + struct.unpack_from("<i", code, at + 1)[0]
                if target in self._names:
                    callees.add(short(self._names[target]))
        return sorted(callees)

    def texts(self, pattern: re.Pattern[bytes]) -> set[str]:
        """The texts in it that match, less a closing null byte."""
        return {match[0].rstrip(b"\0").decode() for match in pattern.finditer(self._data)}


def short(name: str) -> str:
    """`get` of `_ZN4c10d14FlightRecorderIN3c104cuda9CUDAEventEE3getEv`: the last part."""
    nested = name.removeprefix("_ZN").partition("EE")
    text = nested[2] or nested[0]
    match = re.match(r"(\d+)(\w+)", text)
    return match[2][: int(match[1])] if match else name[:60]
