"""What one wheel promises: of its headers what a recorder has, of its libraries what is where."""

from __future__ import annotations

import re
import struct
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.flight.recorders import ANCHORS
from grpo_doctor_probes.memory.elf import MACHINE_NAMES
from grpo_doctor_probes.memory.statics import static_pointer
from tests.torch_contract.binary import Binary

TABLE = Path(__file__).with_name("torches.json")
_C10D = "torch/include/torch/csrc/distributed/c10d/"
_LIBRARIES = ("libtorch_cpu.so", "libtorch_cuda.so")  # a wheel for CPUs has the first one alone
_NAMES = re.compile(r"\b([a-z]\w*_|isP2P_)(?=\s*(?:,|\{|$))")
_SETTINGS = re.compile(
    rb"TORCH_(?:(?:NCCL|FR)_(?:\w*_FILE|\w*DUMP_ON_TIMEOUT|\w*BUFFER_SIZE|ENABLE_TIMING)"
    rb"|INCLUDE_[A-Z_]+)\x00"
)
_NEW = re.compile(rb"\xbf(.{4})\xe8", re.DOTALL)  # mov $size, %edi; call operator new
_GETTER_BYTES = 160


@dataclass(frozen=True)
class Promises:
    """What the table holds of a torch.

    `anchors`: the functions whose code leads to a recorder's pointer, as the symbol table has it.
    `lost`: those that are there, and whose code does not. `queries_under_mutex`: whether a dump
    with entries asks for events holding the recorder's mutex. `recorder_bytes`: of one recorder.
    `members`, `entry_members`: in the order of their addresses.
    """

    machine: str
    anchors: tuple[str, ...]
    lost: tuple[str, ...]
    queries_under_mutex: bool
    recorder_bytes: int
    members: tuple[str, ...]
    entry_members: tuple[str, ...]
    settings: tuple[str, ...]


def read_wheel(wheel: Path) -> Promises:
    """Reads a wheel. Raises KeyError or ValueError where it has not even what is looked for."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        detail = archive.read(_C10D + "FlightRecorderDetail.hpp").decode()
        header = archive.read(_C10D + "FlightRecorder.hpp").decode()
        there = [name for name in _LIBRARIES if f"torch/lib/{name}" in archive.namelist()]
        libraries = {
            name: Binary(Path(archive.extract(f"torch/lib/{name}", folder))) for name in there
        }
        return _promises(detail, header, libraries)


def _promises(detail: str, header: str, libraries: dict[str, Binary]) -> Promises:
    machine = MACHINE_NAMES[libraries[_LIBRARIES[0]].machine]
    led = {}
    for _, name, function in ANCHORS:
        if name in libraries and function in libraries[name].symbols:
            binary = libraries[name]
            guard = static_pointer(binary, binary.symbols[function], machine)
            led[function] = guard == _recorder(binary, "_ZZN", "3getEvE8instance") - 8
    texts = [binary.texts(_SETTINGS) for binary in libraries.values()]
    return Promises(
        machine=machine,
        anchors=tuple(name for name, right in led.items() if right),
        lost=tuple(name for name, right in led.items() if not right),
        queries_under_mutex=_queries_under_mutex(body_of(detail, "::dump_entries(")),
        recorder_bytes=_recorder_bytes(libraries[_LIBRARIES[0]], machine),
        members=_members(_after(header, "\n  bool enabled_ = false;")),
        entry_members=_members(body_of(header, "struct Entry {").replace("\n    ", "\n  ")),
        settings=_settings(set().union(*texts)),
    )


def _recorder(binary: Binary, start: str, end: str) -> int:
    """The address of the one symbol of a recorder that begins and ends so. Raises ValueError."""
    addresses = {
        address
        for name, address in binary.symbols.items()
        if name.startswith(f"{start}4c10d14FlightRecorder") and name.endswith(end)
    }
    (address,) = addresses
    return address


def _recorder_bytes(binary: Binary, machine: str) -> int:
    """How many bytes the getter asks `operator new` for."""
    code = binary.read(_recorder(binary, "_ZN", "3getEv"), _GETTER_BYTES)
    if machine == "x86_64":
        match = _NEW.search(code)
        return int(struct.unpack("<i", match[1])[0]) if match else 0
    words = (word for (word,) in struct.iter_unpack("<I", code))
    sizes = (word >> 5 & 0xFFFF for word in words if word & 0xFFE0001F == 0xD2800000)  # mov x0, #n
    return next(sizes, 0)


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
