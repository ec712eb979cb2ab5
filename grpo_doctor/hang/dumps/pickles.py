"""Pickles from jobs we do not trust, read without ever running what they ask for.

torch writes dumps with 25 of pickle's 68 instructions, none of which can name a function, a class
or an outside object. Only those are let through, and only with memo slots that fit the file: the
standard unpickler allocates (and touches) memory for whatever slot number it is told.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
from typing import Any, NoReturn

PIECES_AT_ONCE = 2000  # bounds the memory that the regular expression keeps to go back
SLOTS_PER_BYTE = 2  # `MEMOIZE` and `BINPUT` take a slot per 1 and 2 bytes


class UnsafePickleError(ValueError):
    """The pickle asks for more than plain data; the message says what."""


class _DataOnly(pickle.Unpickler):
    """The second lock on the same door."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        """No pickle of a flight recorder has a class."""
        raise UnsafePickleError(f"it asks for {module_name}.{global_name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        """Nor a reference to something outside."""
        raise UnsafePickleError(f"it refers to something outside, {pid!r:.60}")


def load(data: bytes) -> Any:
    """The plain data of a pickle.

    Raises:
        UnsafePickleError: it contains anything but plain data; nothing was executed.
        EOFError: it ends early; `salvage` may still get something.
        ValueError: it is damaged.
    """
    if not check(data):
        raise EOFError("the pickle ends early")
    # The unpickler reads ahead where it can peek; else it asks the file for every instruction.
    file = io.BufferedReader(io.BytesIO(data))
    try:
        return _DataOnly(file, encoding="utf-8", errors="replace").load()
    except UnsafePickleError:
        raise
    except EOFError:
        raise
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"damaged pickle: {error}") from error
    except (AttributeError, OverflowError, MemoryError) as error:
        raise ValueError(f"damaged pickle: {type(error).__name__} {error}") from error


def check(data: bytes) -> bool:
    """Whether the pickle is complete. Raises `UnsafePickleError` for what is not plain data."""
    plain = _plain(len(data))
    at = 0
    while at < len(data):
        found = plain.match(data, at)
        end = found.end() if found else at
        if end >= len(data):
            return False
        instruction = data[end]
        if instruction == 0x58:  # BINUNICODE: four bytes of length
            at = end + 5 + int.from_bytes(data[end + 1 : end + 5], "little")
        elif instruction == 0x8C:  # SHORT_BINUNICODE: one
            at = end + 2 + int.from_bytes(data[end + 1 : end + 2], "little")
        elif instruction == 0x2E:  # STOP
            return True
        elif end == at:
            if _cut_off(data, at):
                return False
            raise UnsafePickleError(_name(data, end))
        else:
            at = end
    return False


def salvage(data: bytes) -> Any:
    """The outermost object of a pickle that ends early, with what had been read into it.

    Slower than `load`, and for pickles that `check` has let through.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    try:
        for operation, argument, _ in pickletools.genops(data):
            _step(operation.name, argument, stack, marks, memo)
    except (ValueError, IndexError, KeyError, TypeError, struct.error, OverflowError):
        pass  # the end of what can be read: that is why we are here
    while marks:
        _close(stack, marks.pop())
    return stack[0] if stack else None


def _plain(size: int) -> re.Pattern[bytes]:
    """Instructions of plain data other than strings. Memo slots are at most a power of 256 that
    `size` bytes can fill.
    """
    slots = size * SLOTS_PER_BYTE
    slot = rb"..\x00\x00"
    if slots >= 1 << 16:
        slot = rb"...\x00" if slots < 1 << 24 else rb"...[\x00-\x1f]"
    pieces = (
        rb"[\]})(aesutN\x85-\x89\x94]",  # one byte each; 0x2E, STOP, is not among them
        rb"[qhK\x80].",
        rb"M..",
        rb"[Jj].{4}",
        rb"r" + slot,
        rb"\x8a(?:" + b"|".join(rb"\x%02x.{%d}" % (n, n) for n in range(1, 17)) + rb"|\x00)",
        rb"G.{8}",
        rb"\x95.{8}",
    )
    return re.compile(b"(?:" + b"|".join(pieces) + b"){1,%d}" % PIECES_AT_ONCE, re.DOTALL)


def _cut_off(data: bytes, at: int) -> bool:
    """Whether the last instruction is a good one that lacks its last bytes."""
    return len(data) - at < 18 and _plain(len(data)).match(data + bytes(18), at) is not None


def _name(data: bytes, at: int) -> str:
    """The instruction in words, with its argument where that can be read."""
    known = next((one for one in pickletools.opcodes if one.code == chr(data[at])), None)
    if known is None:
        return f"it has the byte {data[at]:#04x} where an instruction should be"
    try:
        _, argument, _ = next(pickletools.genops(data[at : at + 300]))
    except (ValueError, StopIteration, IndexError, OverflowError):
        argument = None
    shown = "" if argument is None else f" {str(argument)[:80]!r}"
    return f"it has the instruction {known.name}{shown}, which no flight recorder writes"


def _step(
    name: str, argument: Any, stack: list[Any], marks: list[int], memo: dict[int, Any]
) -> None:
    """Carries out one instruction of plain data."""
    if name == "MARK":
        marks.append(len(stack))
    elif name in {"EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"}:
        stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
    elif name in {"BINPUT", "LONG_BINPUT", "MEMOIZE"}:
        memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
    elif name in {"BINGET", "LONG_BINGET"}:
        stack.append(memo[argument])
    elif name in {"SETITEMS", "APPENDS", "SETITEM", "APPEND"}:
        width = {"SETITEM": 2, "APPEND": 1}.get(name)
        _close(stack, marks.pop() if width is None else len(stack) - width)
    elif name in {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}:
        start = marks.pop() if name == "TUPLE" else len(stack) - int(name[-1])
        stack[start:] = [tuple(stack[start:])]
    elif name in {"NONE", "NEWTRUE", "NEWFALSE"}:
        stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
    elif name not in {"PROTO", "FRAME", "STOP"}:
        stack.append(argument)


def _close(stack: list[Any], start: int) -> None:
    """Puts what is above `start` into the list or dictionary below it; a key without its value
    is dropped.
    """
    above = stack[start:]
    del stack[start:]
    owner = stack[-1] if stack else None
    if isinstance(owner, dict):
        owner.update((k, v) for k, v in zip(above[::2], above[1::2]) if isinstance(k, (str, int)))
    elif isinstance(owner, list):
        owner.extend(above)
