"""What one wheel promises: of its headers what a dump does, of its library what is where."""

from __future__ import annotations

import re
import struct
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.memory.cplusplus import static_pointer
from tests.torch_contract.binary import Binary

TABLE = Path(__file__).with_name("torches.json")
_C10D = "torch/include/torch/csrc/distributed/c10d/"
_NCCL = "dump_nccl_trace_json"
_FR = "dump_fr_trace_json"
_NAMES = re.compile(r"\b([a-z]\w*_|isP2P_)(?=\s*(?:,|\{|$))")
_SETTINGS = re.compile(
    rb"TORCH_(?:(?:NCCL|FR)_(?:\w*_FILE|\w*DUMP_ON_TIMEOUT|\w*BUFFER_SIZE|ENABLE_TIMING)"
    rb"|INCLUDE_[A-Z_]+)\x00"
)
_NEW = re.compile(rb"\xbf(.{4})\xe8", re.DOTALL)  # mov $size, %edi; call operator new


@dataclass(frozen=True)
class Promises:
    """What the table holds of a torch.

    `without_entries_locks`, `..._queries`: whether a dump without entries takes the recorder's
    mutex or asks for an event. `queries_under_mutex`: whether one with entries does so holding it.
    `calls`: what the dump function calls, by name. `recorder_found`: the code leads to the pointer
    that the symbol table names. `members`, `entry_members`: in the order of their addresses.
    """

    symbols: tuple[str, ...]
    without_entries_locks: bool
    without_entries_queries: bool
    queries_under_mutex: bool
    calls: tuple[str, ...]
    calls_communicators: bool
    recorder_found: bool
    recorder_bytes: int
    members: tuple[str, ...]
    entry_members: tuple[str, ...]
    settings: tuple[str, ...]


def read_wheel(wheel: Path) -> Promises:
    """Reads a wheel. Raises KeyError or ValueError where it has not even what is looked for."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        detail = archive.read(_C10D + "FlightRecorderDetail.hpp").decode()
        header = archive.read(_C10D + "FlightRecorder.hpp").decode()
        gpu = Binary(Path(archive.extract("torch/lib/libtorch_cuda.so", folder)))
        cpu = Binary(Path(archive.extract("torch/lib/libtorch_cpu.so", folder)))
        return _promises(detail, header, gpu, cpu)


def _promises(detail: str, header: str, gpu: Binary, cpu: Binary) -> Promises:
    dump = body_of(detail, "::dump_json(")
    guarded = body_of(dump, "if (includeCollectives)")
    without = dump.replace(guarded, "") + "".join(
        body_of(detail, f"::{name}(") for name in ("getPgConfigJson", "getPgStatusJson")
    )
    exported = [name for name in gpu.exported(_NCCL) + cpu.exported(_FR) if "getTrace" not in name]
    function = next(gpu.symbols[name] for name in exported if _NCCL in name)
    guard = static_pointer(gpu, function)
    pointer = gpu.only("FlightRecorder", "CUDAEvent", "3getEvE8instance", start="_ZZN")
    getter = gpu.only("FlightRecorder", "CUDAEvent", "3getEv", start="_ZN")
    sizes = _NEW.search(gpu.read(getter, 160))
    return Promises(
        symbols=tuple(sorted(exported)),
        without_entries_locks="mutex_" in without,
        without_entries_queries="query" in without or "update_state" in without,
        queries_under_mutex=_queries_under_mutex(body_of(detail, "::dump_entries(")),
        calls=tuple(gpu.calls(function, 400)),
        calls_communicators=gpu.imports("ncclCommDump"),
        recorder_found=guard == pointer - 8,
        recorder_bytes=struct.unpack("<i", sizes[1])[0] if sizes else 0,
        members=_members(_after(header, "\n  bool enabled_ = false;")),
        entry_members=_members(body_of(header, "struct Entry {").replace("\n    ", "\n  ")),
        settings=_settings(gpu.texts(_SETTINGS) | cpu.texts(_SETTINGS)),
    )


def _settings(names: set[str]) -> tuple[str, ...]:
    """Without the names of the C++ objects that hold them, which end in one more letter."""
    return tuple(sorted(name for name in names if name.removesuffix("E") not in names - {name}))


def body_of(text: str, head: str) -> str:
    """The braces after the first `head` that is followed by a body, and what is in them.

    Raises:
        ValueError: there is none.
    """
    start = text.index(head)
    brace = text.index("{", start)
    depth = 0
    for at in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return text[brace : at + 1]
    raise ValueError(f"{head} has no end")


def _queries_under_mutex(dump_entries: str) -> bool:
    """Whether the scope of the lock is still open where events are asked for."""
    between = dump_entries[dump_entries.index("(mutex_)") : dump_entries.index("update_state(")]
    depth = lowest = 0
    for character in between:
        depth += {"{": 1, "}": -1}.get(character, 0)
        lowest = min(lowest, depth)
    return lowest == 0


def _after(text: str, mark: str) -> str:
    return text[text.index(mark) :]


def _members(text: str) -> tuple[str, ...]:
    """The names that end in `_` and are declared, in order, until the first function."""
    names: list[str] = []
    for declaration in re.sub(r"//[^\n]*", "", text).split(";"):
        if "(" in declaration:
            break
        names += _NAMES.findall(declaration.partition("=")[0])
    return tuple(names)
