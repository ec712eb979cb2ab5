"""Dump files as an operator has them: any naming, some damaged, some no dumps at all."""

from __future__ import annotations

import re
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePath

from grpo_doctor_probes.evidence import FlightDump
from grpo_doctor_probes.procs.printable import PATH_LIMIT, printable

_RANK = re.compile(
    r"(?<![a-z])(?:(local|node|group|machine)[_.=-]?)?rank[_.=-]*(\d+)", re.IGNORECASE
)
_GLUED = re.compile(r"(?<=[a-z])rank[_.=-]?(\d+)", re.IGNORECASE)  # tracerank3
_NUMBER = re.compile(r"\d+")
_ENDINGS = re.compile(r"(\.(json|pkl|pickle|gz|bin|dump|txt|trace|pt))+$", re.IGNORECASE)
MAX_FILES = 4096
MAX_DUMP_BYTES = 64 << 20
_GZIP, _PICKLE = b"\x1f\x8b", b"\x80"
_MARKS = (b"pg_config", b"profiling_name", b"entries", b"nccl_comm_state", b"collective_seq_id")


def rank_of(path: PurePath) -> int | None:
    """Return the rank in the name of `path`, or, if it has no number, in that of its folder.

    Torch appends the rank to whatever prefix the user set, and operators add host names and times:
    `nccl_trace_rank_3`, `comm_lib_trace_rank_3`, `gpu-17_rank_00003.pkl`,
    `rank_3_20261121T1030.json`.
    """
    stem = _ENDINGS.sub("", path.name)
    if _NUMBER.search(stem):
        return _rank(stem)
    return _rank_after_word(path.parent.name)


def _rank(stem: str) -> int | None:
    rank = _rank_after_word(stem)
    if rank is not None or "rank" in stem.lower():
        return rank
    numbers = _NUMBER.findall(stem)
    # A number alone is a rank only at the end, where torch writes it: not `v2_trace`, `20261121`.
    if len(numbers) == 1 and stem.endswith(numbers[0]) and len(numbers[0]) <= 5:
        return int(numbers[0])
    return None


def _rank_after_word(text: str) -> int | None:
    """Return the one number that follows the word rank; not a local, node or group rank."""
    ranks = {int(number) for of, number in _RANK.findall(text) if not of}
    ranks = ranks or {int(number) for number in _GLUED.findall(text)}
    return ranks.pop() if len(ranks) == 1 else None


def dump_files(paths: Sequence[Path]) -> tuple[FlightDump, ...]:
    """One record per file of `paths`, and of the folders among them; what is not a dump says so.

    Nothing is parsed or executed: bytes are only looked at. Never raises OSError.
    """
    files = _files(paths)
    excess = len(files) - MAX_FILES
    dumps = tuple(read_dump(path) for path in files[:MAX_FILES])
    if excess <= 0:
        return dumps
    problem = f"{excess:,} more files were not read, at most {MAX_FILES:,} are: give fewer"
    first = f"file:{printable(str(files[MAX_FILES]), PATH_LIMIT)}"
    return (*dumps, FlightDump(first, problem=problem))


def read_dump(path: Path) -> FlightDump:
    """Return the dump at `path`, or a record with the reason why there is none."""
    shown = f"file:{printable(str(path), PATH_LIMIT)}"
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):  # opening a pipe would wait for its writer
            return FlightDump(shown, problem="is not a regular file")
        if facts.st_size > MAX_DUMP_BYTES:
            return FlightDump(shown, problem=f"is larger than {MAX_DUMP_BYTES >> 20} MB")
        data = path.read_bytes()
    except OSError as error:
        return FlightDump(shown, problem=f"can't be read: {error.strerror or error}")
    rank, at = rank_of(path), facts.st_mtime_ns
    try:
        return FlightDump(shown, rank, at_unix_ns=at, data=checked(data))
    except ValueError as error:
        return FlightDump(shown, rank, at_unix_ns=at, problem=str(error))


def checked(data: bytes) -> bytes:
    """Return `data` unpacked. Raises ValueError: it is not a dump, or not all of one.

    A dump ends as its format does: a file that torch is still writing, or that a full disk cut,
    does not.
    """
    if data.startswith(_GZIP):
        data = _unpacked(data)
    if not data:
        raise ValueError("is empty: half-written, or nothing was recorded")
    if data.startswith(_PICKLE):
        complete = data.endswith(b".")
    elif data.lstrip()[:1] in (b"{", b"["):
        complete = data.rstrip().endswith(b"}" if data.lstrip().startswith(b"{") else b"]")
    else:
        raise ValueError(
            "is not a flight-recorder dump: neither JSON nor a pickle. Unpack an archive first"
        )
    if not any(mark in data for mark in _MARKS):
        raise ValueError("is not a flight-recorder dump: it has none of its fields")
    if not complete:
        raise ValueError("ends in the middle: half-written, or cut by a full disk")
    return data


def _unpacked(data: bytes) -> bytes:
    """Return the content of gzip data, at most MAX_DUMP_BYTES of it."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(data, MAX_DUMP_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"is damaged: {error}") from error
    if len(content) > MAX_DUMP_BYTES:
        raise ValueError(f"unpacks to more than {MAX_DUMP_BYTES >> 20} MB")
    if not unpacker.eof:
        raise ValueError("ends in the middle of its compressed data")
    return content


def _files(paths: Sequence[Path]) -> list[Path]:
    """Files of `paths` and regular files below folders, sorted, each once."""
    files: list[Path] = []
    for path in paths:
        is_folder = stat.S_ISDIR(_kind(path))
        below = [p for p in path.rglob("*") if stat.S_ISREG(_kind(p))] if is_folder else [path]
        files += sorted(below)
    return list(dict.fromkeys(files))


def _kind(path: Path) -> int:
    """Return the mode of a file, 0 where unknown."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0
