"""The bytes of a dump to the plain data in it: gzip, JSON and pickle, whole or cut off."""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

import msgspec

from grpo_doctor.hang.dumps import pickles

LARGEST_BYTES = 512 << 20  # unpacked; a full default ring of 2,000 entries has 1 MB
_GZIP = b"\x1f\x8b"
_PICKLE = 0x80


class Document(NamedTuple):
    """Plain data, None where there is none. `problem` says what is wrong with it, "" for nothing.

    `cut`: it ended early, and `data` is what came before the end.
    """

    data: Any
    problem: str = ""
    cut: bool = False


def load(data: bytes) -> Document:
    """Reads a dump in whatever format it is. Never raises for its content, never runs any of it."""
    torn = False
    if data.startswith(_GZIP):
        data, torn = _unpack(data)
        if len(data) > LARGEST_BYTES:
            return Document(None, f"it unpacks to more than {LARGEST_BYTES >> 20} MiB")
    if not data.strip(b"\0 \t\r\n"):
        return Document(None, "it is empty")
    found = _pickle(data) if data[0] == _PICKLE else _json(data)
    return found._replace(cut=True) if torn else found


def _unpack(data: bytes) -> tuple[bytes, bool]:
    """Unpacks at most one byte more than allowed, and whether the end is missing."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(data, LARGEST_BYTES + 1)
    except zlib.error:
        return b"", True
    return unpacked, not unpacker.eof


def _pickle(data: bytes) -> Document:
    try:
        return Document(pickles.load(data))
    except pickles.UnsafePickleError as error:
        return Document(None, f"it is not a flight recorder's: {error}. Nothing of it was run")
    except EOFError:
        rest = pickles.salvage(data)
        if isinstance(rest, (dict, list)) and rest:
            return Document(rest, "it ends early; what it holds before that is used", cut=True)
        return Document(None, "it ends before its first entry")
    except ValueError as error:
        return Document(None, str(error))


def _json(data: bytes) -> Document:
    try:
        return Document(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        text = data.decode(errors="replace").strip("\0 \t\r\n")
        if text[:1] not in {"{", "["}:
            return Document(None, "it is neither JSON nor a pickle")
        return _lenient(text, str(error))


def _lenient(text: str, why: str) -> Document:
    """JSON with bytes that are not UTF-8, or that ends early."""
    try:
        return Document(json.loads(text))
    except (ValueError, RecursionError):
        pass
    head, found, tail = text.partition('"entries"')
    entries = _objects(tail if found else text)
    if not entries:
        return Document(None, f"it cannot be read: {why}")
    rest = {"entries": entries, **_members(head)}
    return Document(rest, "it ends early or is damaged; the entries before that are used", cut=True)


def _objects(text: str) -> list[Any]:
    """The objects of the first array in `text`, as far as they are whole."""
    reader = json.JSONDecoder()
    found: list[Any] = []
    at = text.find("[") + 1
    while at:
        at = text.find("{", at)
        try:
            entry, at = reader.raw_decode(text, at) if at >= 0 else (None, 0)
        except (ValueError, RecursionError):
            break
        if entry is not None:
            found.append(entry)
        if text[at : at + 3].lstrip(" \n\r\t")[:1] == "]":
            break
    return found


def _members(head: str) -> dict[str, Any]:
    """What stands before `"entries"` in an object, if it is whole."""
    try:
        read = json.loads(head.rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
