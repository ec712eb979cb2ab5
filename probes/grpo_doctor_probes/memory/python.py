"""Objects of CPython 3.10 to 3.13, read out of the memory of a process that need not stop for it.

What a type is called distinguishes objects, and `sys.modules` is found from `_PyRuntime`, which
every build exports. Offsets are those of the headers of each version, as py-spy has them, and what
does not fit raises: the interpreter may free an object while it is read. `tests/unit/probes/memory`
reads processes of each version that is installed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grpo_doctor_probes.memory.access import Mapping, Memory
from grpo_doctor_probes.memory.elf import ElfError, library

Version = tuple[int, int]
_MOST_ENTRIES = 1 << 20
_MOST_TEXT = 2000
_PAGE_BYTES = 4096
_MOST_BASES = 8
_MOST_CONTAINED = 64
_DELETED = (1 << 64) - 1  # the hash of an entry that a set had
_OB_TYPE, _TP_NAME, _TP_BASICSIZE, _TP_FLAGS, _TP_BASE, _TP_DICTOFFSET = 8, 24, 32, 168, 256, 288
_INLINE_VALUES = 1 << 2
_MANAGED_DICT = 1 << 4
_HEADER = 16  # what each object begins with: references, type
_SUSPENDED, _EXECUTING = -1, 0


class UnknownPythonError(Exception):
    """The process has no Python that this can read."""


class NoObjectError(Exception):
    """What is at an address is not the expected object."""


@dataclass(frozen=True)
class Layout:
    """Offsets in bytes. `frame` is of a frame in its coroutine; of 3.10, of the pointer to it."""

    interpreters: int
    modules: int
    text: int
    wide_text: int
    cached_keys: int
    frame: int
    frame_state: int
    code: int
    instruction: int
    stack_top: int
    locals: int
    first_line: int
    file: int
    name: int
    lines: int
    instructions: int


LAYOUTS: dict[Version, Layout] = {
    (3, 10): Layout(32, 856, 48, 72, 872, 16, 108, 32, 96, 80, 352, 40, 104, 112, 120, 48),
    (3, 11): Layout(40, 888, 48, 72, 872, 80, 75, 32, 56, 64, 72, 72, 112, 128, 136, 184),
    (3, 12): Layout(40, 944, 40, 56, 880, 72, 67, 0, 56, 64, 72, 68, 112, 128, 136, 192),
    (3, 13): Layout(632, 7656, 40, 56, 880, 72, 67, 0, 56, 64, 72, 68, 112, 128, 136, 200),
}


class Objects:
    """The objects of one interpreter. All methods raise NoObjectError or OSError."""

    def __init__(self, memory: Memory, maps: Sequence[Mapping]) -> None:
        """Find the interpreter. Raises UnknownPythonError."""
        self._memory = _Pages(memory)
        self._names: dict[int, str] = {}
        self._bases: dict[int, frozenset[str]] = {}
        runtime, self.version = _runtime(memory, maps)
        self.layout = LAYOUTS[self.version]
        if self.version >= (3, 13) and self.word(runtime + 16):
            raise UnknownPythonError("its Python has no GIL")
        interpreter = self.word(runtime + self.layout.interpreters)
        self._modules = self.word(interpreter + self.layout.modules)
        if self.type_name(self._modules) != "dict":
            raise UnknownPythonError("its Python is of another build than those of python.org")

    def word(self, at: int) -> int:
        """Return the 8 bytes at `at`."""
        return int.from_bytes(self._memory.read(at, 8), "little")

    def words(self, at: int, count: int) -> tuple[int, ...]:
        """Return `count` words from `at` on."""
        if not 0 <= count <= _MOST_ENTRIES:
            raise NoObjectError(f"{count} words")
        return struct.unpack(f"<{count}Q", self._memory.read(at, 8 * count))

    def number(self, at: int, form: str = "<i") -> int:
        """Return a number of another size than a word."""
        return int(struct.unpack(form, self._memory.read(at, struct.calcsize(form)))[0])

    def type_name(self, obj: int) -> str:
        """`dict`, `_asyncio.Task`, `Semaphore`: what the type of an object is called."""
        return self._called(self.word(obj + _OB_TYPE))

    def _called(self, kind: int) -> str:
        if kind not in self._names:
            text, at = b"", self.word(kind + _TP_NAME)
            while b"\0" not in text and len(text) < 80:
                size = 16 - (at + len(text)) % 16  # never into a page behind it
                text += self._memory.read(at + len(text), size)
            self._names[kind] = text.partition(b"\0")[0].decode("ascii", "replace")
        return self._names[kind]

    def is_a(self, obj: int, name: str) -> bool:
        """Return whether the type of an object, or one that it is derived from, has this name."""
        kind = self.word(obj + _OB_TYPE)
        if kind not in self._bases:
            bases = [kind]
            while len(bases) < _MOST_BASES and (base := self.word(bases[-1] + _TP_BASE)):
                bases.append(base)
            self._bases[kind] = frozenset(map(self._called, bases))
        return name in self._bases[kind]

    def contained(self, obj: int) -> tuple[int, ...]:
        """Return what a tuple or list holds; of others the words behind their header."""
        name = self.type_name(obj)
        if name == "tuple":
            return self.words(obj + _HEADER + 8, min(self.word(obj + _HEADER), _MOST_CONTAINED))
        if name == "list":
            return self.words(self.word(obj + 24), min(self.word(obj + _HEADER), _MOST_CONTAINED))
        size = self.word(self.word(obj + _OB_TYPE) + _TP_BASICSIZE)
        return self.words(obj + _HEADER, min(max(size - _HEADER, 0) // 8, _MOST_CONTAINED))

    def text(self, obj: int) -> str:
        """Return a `str`."""
        if self.type_name(obj) != "str":
            raise NoObjectError(f"{obj:#x} is no str")
        length, state = self.word(obj + 16), self.number(obj + 32, "<I")
        width, compact, ascii_ = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if not compact or width not in (1, 2, 4) or length > _MOST_TEXT:
            raise NoObjectError(f"{obj:#x} is no short str")
        start = obj + (self.layout.text if ascii_ else self.layout.wide_text)
        encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width]
        return self._memory.read(start, length * width).decode(encoding, "replace")

    def members(self, obj: int) -> Iterator[int]:
        """Yield what a `set` holds."""
        table = self.words(self.word(obj + 40), 2 * (self.word(obj + 32) + 1))
        yield from (
            key for key, hashed in zip(table[::2], table[1::2]) if key and hashed != _DELETED
        )

    def items(self, obj: int) -> dict[str, int]:
        """Return the entries of a `dict` whose keys are `str`."""
        keys, values = self.words(obj + 32, 2)
        if not values:
            return {
                self.text(key): value
                for key, value in self._table(keys)
                if key and value and self.type_name(key) == "str"
            }
        return self._split(keys, values + (8 if self.version >= (3, 13) else 0))

    def _split(self, keys: int, values: int) -> dict[str, int]:
        names = [key for key, _ in self._table(keys)]
        pairs = zip(names, self.words(values, len(names)))
        return {self.text(name): value for name, value in pairs if name and value}

    def _table(self, keys: int) -> Iterator[tuple[int, int]]:
        """Yield the keys and values of a table of keys, in their order; 0 where one was deleted."""
        if self.version < (3, 11):
            size, count, start = self.word(keys + 8), self.word(keys + 32), keys + 40
            width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4
            start, step = start + size * width, 3
        else:
            bits, kind = self.number(keys + 9, "B"), self.number(keys + 10, "B")
            if bits > 30:
                raise NoObjectError("a table of 2 to the 30 keys")
            start, count, step = keys + 32 + (1 << bits), self.word(keys + 24), 2 if kind else 3
        table = self.words(start, count * step)
        yield from zip(table[step - 2 :: step], table[step - 1 :: step])

    def attributes(self, obj: int) -> dict[str, int]:
        """Return what an instance of a class has in its `__dict__`."""
        kind = self.word(obj + _OB_TYPE)
        flags, keys = self.word(kind + _TP_FLAGS), kind + self.layout.cached_keys
        at = self.number(kind + _TP_DICTOFFSET, "<q")
        if self.version >= (3, 11) and flags & _MANAGED_DICT:
            if self.version >= (3, 13) and flags & _INLINE_VALUES and self.number(obj + 19, "B"):
                return self._split(self.word(keys), obj + 24)
            if self.version == (3, 12) and (values := self.word(obj - 24)) & 1:
                return self._split(self.word(keys), values + 1)
            if self.version == (3, 11) and (values := self.word(obj - 32)):
                return self._split(self.word(keys), values)
            at = -24
        elif at <= 0:
            return {}
        found = self.word(obj + at)
        return self.items(found) if found else {}

    def module(self, name: str) -> dict[str, int]:
        """Return the names of an imported module, empty where it was not imported."""
        modules = self.items(self._modules)
        return self.items(self.word(modules[name] + _HEADER)) if name in modules else {}

    def suspended(self, coroutine: int) -> Suspended | None:
        """Return where a coroutine or generator is suspended; None where it is not."""
        own, frame = self.layout, coroutine + self.layout.frame
        if self.version < (3, 11):
            frame = self.word(frame)
        state_at = (frame if self.version < (3, 11) else coroutine) + own.frame_state
        least = _SUSPENDED - (self.version >= (3, 13))
        if not frame or not _EXECUTING > self.number(state_at, "b") >= least:
            return None
        code, instruction = self.word(frame + own.code), self.word(frame + own.instruction)
        if self.type_name(code) != "code":
            raise NoObjectError("a frame without code")
        top = self.number(frame + own.stack_top)
        if self.version < (3, 11):
            at, stack = 2 * (instruction & 0xFFFFFFFF), self.word(frame + 64)
        else:
            at, stack = instruction - code - own.instructions, frame + own.locals
        table = self.word(code + own.lines)
        if self.type_name(table) != "bytes" or (length := self.word(table + 16)) > _MOST_ENTRIES:
            raise NoObjectError("code without lines")
        lines = self._memory.read(table + 32, length)
        line_of = line_of_310 if self.version < (3, 11) else line_of_311
        return Suspended(
            function=self.text(self.word(code + own.name)),
            file=self.text(self.word(code + own.file)),
            line=line_of(lines, self.number(code + own.first_line), at),
            locals=frame + own.locals,
            awaits=self.word(stack + 8 * (top - 1)) if 0 < top < _MOST_TEXT else 0,
        )

    def local(self, suspended: Suspended, number: int) -> int:
        """Return the variable with this number, its arguments first; 0 where it has no value."""
        value = self.word(suspended.locals + 8 * number)
        return self.word(value + _HEADER) if value and self.type_name(value) == "cell" else value


@dataclass(frozen=True, slots=True)
class Suspended:
    """Where a coroutine is. `locals` and `awaits` are addresses, of variables and of an object."""

    function: str
    file: str
    line: int
    locals: int
    awaits: int


class _Pages:
    """Memory read by the page, each once: a thousand tasks are a hundred thousand words."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._pages: dict[int, bytes] = {}

    def read(self, at: int, size: int) -> bytes:
        """`size` bytes from `at`. Raises OSError where not all of them are there."""
        start = at % _PAGE_BYTES
        if start + size > _PAGE_BYTES:
            return self._memory.read(at, size)
        page = self._pages.get(at - start)
        if page is None:
            page = self._pages[at - start] = self._memory.read(at - start, _PAGE_BYTES)
        return page[start : start + size]


def _runtime(memory: Memory, maps: Sequence[Mapping]) -> tuple[int, Version]:
    """Return where `_PyRuntime` is, and the version of its Python."""
    for mapping in maps:
        if mapping.offset or not mapping.name.startswith(("libpython3", "python")):
            continue
        try:
            python = library(memory.read, mapping.start)
            runtime, version = python.address_of("_PyRuntime"), python.address_of("Py_Version")
            if runtime is None:
                continue
            number = memory.read(version, 4) if version else b"\0\0\x0a\x03"  # exported since 3.11
        except ElfError:
            continue
        known = number[3], number[2]
        if known not in LAYOUTS:
            raise UnknownPythonError(f"its Python is {known[0]}.{known[1]}")
        return runtime, known
    raise UnknownPythonError("it has no Python")


def line_of_310(table: bytes, line: int, at: int) -> int:
    """Return the line of the instruction at byte `at`: PEP 626 of Python 3.10."""
    end = 0
    for step, delta in zip(table[::2], table[1::2]):
        end += step
        if delta != 0x80:
            line += delta - 256 if delta > 127 else delta
        if at < end:
            break
    return line


def line_of_311(table: bytes, line: int, at: int) -> int:
    """Return the line of the instruction at byte `at`: the location table since Python 3.11."""
    place = end = 0
    while place < len(table) and at >= end:
        kind, end = table[place] >> 3 & 15, end + 2 * ((table[place] & 7) + 1)
        place += 1
        if kind in (13, 14):
            value = shift = 0
            while place < len(table):
                byte = table[place]
                value, shift, place = value | (byte & 63) << shift, shift + 6, place + 1
                if not byte & 64:
                    break
            line += -(value >> 1) if value & 1 else value >> 1
        elif 10 <= kind <= 12:
            line += kind - 10
        while place < len(table) and not table[place] & 0x80:
            place += 1
    return line
