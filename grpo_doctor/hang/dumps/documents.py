"""The bytes of a dump to the plain data in it, and one entry of it, of any version, to an `Entry`.

torch writes dumps with 25 of pickle's 68 instructions, none of which can name a function, a class
or an outside object. Only those are let through, and only with memo slots that fit the file: the
standard unpickler allocates (and touches) memory for whatever slot number the file names.

An operation is the same, whatever a backend calls it: `nccl:_all_gather_base` is an all_gather.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import msgspec

from grpo_doctor.bounded import DUMP
from grpo_doctor.hang.dumps.model import Entry, Sizes, Status
from grpo_doctor_probes.evidence import Frame

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
    if not is_a_dump_pickle(data):
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


def is_a_dump_pickle(data: bytes) -> bool:
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
    """Return whether the last instruction is a good one that lacks its last bytes."""
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


OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather",
    "scatter", "barrier", "send", "recv", "coalesced",  # the last: the end of a coalesced group
    "other",
)  # fmt: skip
LONGEST_TEXT = 300
_HARMFUL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PREFIX = re.compile(r"^([A-Za-z0-9_.\-]{1,20}):(?!:)")
_PEERS = re.compile(r"^(send|recv)\s+(\d{1,9})\s*(->|<-)\s*(\d{1,9})$")
_VARIANT = re.compile(r"(_oop|_base|_coalesced|_single|_v|_tensor|_into)$")
_SPELLINGS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "reducescatter": "reduce_scatter",
    "all_reduce_barrier": "barrier",
}
MOST_TENSORS = 1024
MOST_DIMENSIONS = 16
MOST_FRAMES = 128
MOST_SHARED = 1 << 16  # values of a kind, which bounds what a hostile dump makes us keep
# These also retire an entry when its watchdog gives up on it; others only when it is done.
GIVES_UP = frozenset(
    {"nccl", "ncclx", "rccl", "rcclx", "xccl", "hccl", "mccl", "bccl", "cncl", "eccl"}
)
_NO_STATUS = Status()


class Operation(NamedTuple):
    """A recorded name in parts. `source` and `target` are ranks in the group, of send and recv."""

    backend: str
    op: str
    label: str
    source: int | None = None
    target: int | None = None


def clean(value: Any) -> str:
    """A text of a dump without what could steer a terminal, cut to a line."""
    text = value if isinstance(value, str) else "" if value is None else repr(value)[:LONGEST_TEXT]
    return _HARMFUL.sub(" ", text[:LONGEST_TEXT]).strip()


@lru_cache(maxsize=4096)
def operation(name: str) -> Operation:
    """Takes a `profiling_name` apart: `nccl:recv 3<-0`, `xccl:ALLGATHER_coalesced`."""
    label = clean(name)
    prefix = _PREFIX.match(label)
    backend = prefix[1].lower() if prefix else ""
    bare = label[prefix.end() :] if prefix else label
    peers = _PEERS.match(bare)
    if peers:
        first, second = int(peers[2]), int(peers[4])
        source, target = (first, second) if peers[3] == "->" else (second, first)
        return Operation(backend, peers[1], label, source, target)
    return Operation(backend, _canonical(bare), label)


def _canonical(bare: str) -> str:
    """`ALLGATHER_coalesced` ends a coalesced group; `allreduce_coalesced` is one all_reduce."""
    if bare == "coalesced" or (bare.endswith("_coalesced") and bare[0].isupper()):
        return "coalesced"
    name = bare.lower().lstrip("_").partition(" ")[0]
    while (shorter := _VARIANT.sub("", name)) != name:
        name = shorter
    name = _SPELLINGS.get(name, name)
    return name if name in OPERATIONS else "other"


class EntryReader:
    """Makes entries of one dump, whose plain data must outlive it."""

    def __init__(
        self, names: Mapping[str, tuple[str, str]], statuses: Mapping[str, Status]
    ) -> None:
        """`names` are (name, description) by group id, for versions whose entries have the id
        alone; `statuses` are by group id.
        """
        self._names = names
        self._statuses = statuses
        self._stacks: dict[tuple[int, ...], tuple[Frame, ...]] = {}  # by their frames' identities

    def read(self, raw: Mapping[str, Any], position: int) -> Entry:
        """Raises `TypeError` or `ValueError` where it is not an entry at all."""
        get = raw.get
        name = get("profiling_name")
        kind = operation(name if isinstance(name, str) else "")
        group_id = str(get("pg_id", ""))[:40]
        group, description = self._group(get("process_group"), group_id)
        is_p2p = bool(get("is_p2p")) or kind.source is not None
        sequence = integer(get("collective_seq_id", get("seq_id")))
        transfers = integer(get("p2p_seq_id"))
        started_ns = integer(get("time_discovered_started_ns")) or None
        created_ns = integer(get("time_created_ns")) or integer(get("time_created_us")) * 1000
        state = get("state")
        retired = bool(get("retired"))
        gives_up = kind.backend in GIVES_UP
        status = self._statuses.get(group_id, _NO_STATUS)
        done = bool(
            integer(get("time_discovered_completed_ns"))
            or state == "completed"
            or (retired and not gives_up)
            or (gives_up and not is_p2p and not transfers and 0 <= sequence <= status.completed)
        )
        started = bool(started_ns) or state in {"started", "completed"} or done
        frames = get("frames")
        return Entry(
            record=integer(get("record_id", get("id")), position),
            group=group,
            group_id=group_id,
            description=description,
            backend=kind.backend,
            op=kind.op,
            label=kind.label,
            sequence=sequence,
            p2p_sequence=transfers,
            is_p2p=is_p2p,
            source=kind.source,
            target=kind.target,
            input_sizes=_sizes(get("input_sizes")),
            output_sizes=_sizes(get("output_sizes")),
            input_dtypes=_dtypes(get("input_dtypes")),
            output_dtypes=_dtypes(get("output_dtypes")),
            created_ns=created_ns or None,
            started_ns=started_ns,
            started=started if started or gives_up else None,
            done=done,
            timed_out=retired and not done,
            timeout_s=integer(get("timeout_ms")) / 1e3 or None,
            thread_name=clean(get("thread_name")) if get("thread_name") else "",
            frames=self._stack(frames) if frames else (),
        )

    def _group(self, process_group: Any, group_id: str) -> tuple[str, str]:
        """Name and description; from 2.4 an entry has both, before only an id."""
        if isinstance(process_group, (list, tuple)) and process_group:
            description = str(process_group[1]) if len(process_group) > 1 else ""
            return _names(str(process_group[0]), description)
        return _names(*self._names.get(group_id, (str(process_group or group_id), "")))

    def _stack(self, raw: Any) -> tuple[Frame, ...]:
        """torch writes a frame that entries share once, and refers to it."""
        identity = tuple(map(id, raw[:MOST_FRAMES]))
        stack = self._stacks.get(identity)
        if stack is None:
            keys = ((f.get("name"), f.get("filename"), f.get("line")) for f in raw[:MOST_FRAMES])
            stack = self._stacks[identity] = _same(tuple([_frame(*key) for key in keys]))
        return stack


# What entries have in common is made once for all dumps of a job: a thousand ranks run one program,
# so they have the same stacks, shapes and groups.


@lru_cache(maxsize=MOST_SHARED)
def _names(name: str, description: str) -> tuple[str, str]:
    return clean(name), clean(description).replace("undefined", "")


@lru_cache(maxsize=MOST_SHARED)
def _frame(function: Any, file: Any, line: Any) -> Frame:
    return Frame(clean(function), clean(file), integer(line))


@lru_cache(maxsize=MOST_SHARED)
def _same(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The first of equal stacks: comparing those of one identity is fast."""
    return stack


@lru_cache(maxsize=MOST_SHARED)
def _types(joined: str) -> tuple[str, ...]:
    return tuple(map(clean, joined.split("\0")))


@lru_cache(maxsize=MOST_SHARED)
def _shapes(raw: tuple[tuple[Any, ...], ...]) -> Sizes:
    return tuple([tuple(map(integer, shape)) for shape in raw])


def integer(value: Any, otherwise: int = 0) -> int:
    """An integer that JSON may have as text, None or a float."""
    if type(value) is int:
        return value
    if value is None:
        return otherwise
    try:
        return int(value)
    except (ValueError, OverflowError):
        return otherwise


def _sizes(raw: Any) -> Sizes:
    """Shapes of tensors; a recorder may also write one flat shape."""
    if not raw or isinstance(raw, str):
        return ()
    shapes = raw[:MOST_TENSORS] if isinstance(raw[0], (list, tuple)) else (raw,)
    return _shapes(tuple([tuple(shape[:MOST_DIMENSIONS]) for shape in shapes]))


def _dtypes(raw: Any) -> tuple[str, ...]:
    """Types of tensors; a recorder may also write one alone."""
    if not raw:
        return ()
    return _types(raw if isinstance(raw, str) else "\0".join(map(str, raw[:MOST_TENSORS])))
