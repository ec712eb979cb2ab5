"""The bytes of a dump to the plain data in it: JSON and pickles, from jobs we do not trust.

torch writes dumps with 25 of pickle's 68 instructions, none of which can name a function, a class
or an outside object. Only those are let through, and only with memo slots that fit the file: the
standard unpickler allocates (and touches) memory for whatever slot number the file names.

A dump that ends early is not read at all. The calls that its rank made last are what it lacks, so
that the rank would look behind.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from typing import Any, NoReturn

import msgspec

from grpo_doctor.bounded import DUMP

_PICKLE = 0x80
_MAKES_A_LIST = b"[{]}\x85\x86\x87"  # a list, object or tuple, in either format: 60 bytes and more
PIECES_AT_ONCE = 2000  # bounds the memory that the regular expression keeps to go back
SLOTS_PER_BYTE = 2  # `MEMOIZE` and `BINPUT` take a slot per 1 and 2 bytes


class NotADumpError(ValueError):
    """Bytes or data that are no flight-recorder dump, or not all of one; the message says why."""


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
    """The plain data of a dump in either format. Never runs anything of it.

    Raises:
        NotADumpError: it is empty, damaged, cut off, or something else.
    """
    if not data.strip(b"\0 \t\r\n"):
        raise NotADumpError("it is empty")
    if len(data) - len(data.translate(None, _MAKES_A_LIST)) > DUMP.items:
        raise NotADumpError(f"it has more than {DUMP.items:,} lists and objects")
    if data[0] != _PICKLE:
        return _json(data)
    try:
        return unpickled(data)
    except UnsafePickleError as error:
        message = f"it is not a flight recorder's: {error}. Nothing of it was executed"
        raise NotADumpError(message) from error
    except EOFError as error:
        raise NotADumpError("it ends early") from error
    except ValueError as error:
        raise NotADumpError(str(error)) from error


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        text = data.decode(errors="replace").strip("\0 \t\r\n")
        if text[:1] not in {"{", "["}:
            raise NotADumpError("it is neither JSON nor a pickle") from error
        try:
            return json.loads(text)  # with bytes that are not UTF-8
        except (ValueError, RecursionError):
            raise NotADumpError(f"it ends early or is damaged: {error}") from error


def unpickled(data: bytes) -> Any:
    """The plain data of a pickle.

    Raises:
        UnsafePickleError: it contains anything but plain data; nothing was executed.
        EOFError: it ends early.
        ValueError: it is damaged.
    """
    if not check(data):
        raise EOFError("the pickle ends early")
    # The unpickler reads ahead where it can peek; else it asks the file for every instruction.
    file = io.BufferedReader(io.BytesIO(data))
    try:
        return _DataOnly(file, encoding="utf-8", errors="replace").load()
    except (UnsafePickleError, EOFError):
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
        match = plain.match(data, at)
        end = match.end() if match else at
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
    instruction = next(
        (opcode for opcode in pickletools.opcodes if opcode.code == chr(data[at])), None
    )
    if instruction is None:
        return f"it has the byte {data[at]:#04x} where an instruction should be"
    try:
        _, argument, _ = next(pickletools.genops(data[at : at + 300]))
    except (ValueError, StopIteration, IndexError, OverflowError):
        argument = None
    shown = "" if argument is None else f" {str(argument)[:80]!r}"
    return f"it has the instruction {instruction.name}{shown}, which no flight recorder writes"
