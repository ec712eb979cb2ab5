"""A shared library as a file: its symbols, its code, and texts in it."""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM, _LOAD = 2, 11, 1


class Binary:
    """A library. `symbols`: the address of each name that is defined in it; `machine`: its ELF
    number."""

    def __init__(self, path: Path) -> None:
        """Of the file at `path`, which is mapped and not loaded."""
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        (self.machine,) = struct.unpack_from("<H", self._data, 18)
        segments, sections = struct.unpack_from("<QQ", self._data, 32)
        counts = struct.unpack_from("<HHHH", self._data, 54)
        table = self._data[segments : segments + _SEGMENT.size * counts[1]]
        self._segments = [s for s in _SEGMENT.iter_unpack(table) if s[0] == _LOAD]
        raw = self._data[sections : sections + _SECTION.size * counts[3]]
        self._sections = list(_SECTION.iter_unpack(raw))
        self.symbols: dict[str, int] = {}
        for section in self._sections:
            if section[1] in (_SYMTAB, _DYNSYM):
                self._add(section)

    def _add(self, section: tuple[int, ...]) -> None:
        """The symbols of one table."""
        names = self._sections[section[6]]
        strings = self._data[names[4] : names[4] + names[5]]
        table = self._data[section[4] : section[4] + section[5]]
        for at, _info, _other, section_index, address, _size in _SYMBOL.iter_unpack(table):
            name = strings[at : strings.index(b"\0", at)].decode()
            if section_index:
                self.symbols.setdefault(name, address)

    def read(self, address: int, size: int) -> bytes:
        """Bytes at an address of its own, as `Memory.read`. Raises OSError."""
        for _kind, _flags, offset, start, _physical, in_file, _size, _align in self._segments:
            if start <= address < start + in_file:
                at = offset + address - start
                return self._data[at : at + size]
        raise OSError(f"nothing is loaded at {address:#x}")

    def texts(self, pattern: re.Pattern[bytes]) -> set[str]:
        """The texts in it that match, less a closing null byte."""
        return {match[0].rstrip(b"\0").decode() for match in pattern.finditer(self._data)}
