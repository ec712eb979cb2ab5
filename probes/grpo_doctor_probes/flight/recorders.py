"""Torch's flight recorders and how they are asked, by what a process has loaded.

Neither function takes Python's lock: JSON dumps have no stacks. Each leaves its result behind (the
text, KBs to a MB), as freeing it would be one more call into the job.

Of NCCL's recorder no entries are asked for. For each it would ask CUDA whether the operation is
done (`cudaEventQuery`): that waits for a thread which synchronizes, from torch 2.14 on with the
recorder's mutex in hand, and in a thread without a device it opens a context of 0.5 GB on GPU 0.
Without entries it makes no call of CUDA's and takes no lock: groups and their counters remain.
Gloo's operations have no events, so all of that recorder may be had.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor_probes.flight.machine import Call
from grpo_doctor_probes.memory.access import Mapping, Memory
from grpo_doctor_probes.memory.elf import library

MAX_DUMP_BYTES = 64 << 20
CPU_LIBRARY = "libtorch_cpu.so"
_GPU_LIBRARY = "libtorch_cuda.so"  # not libtorch_hip.so: there a dump calls each communicator
NCCL_BACKEND = "nccl"
_STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"  # const std::string&
_FR = "_ZN4c10d18dump_fr_trace_jsonB5cxx11Ebb"  # (collectives, only active): 2.8 to 2.14
# 2.15: and the backend, whose ring is to be dumped. No ABI tag: the string tells.
_FR_OF_BACKEND = "_ZN4c10d18dump_fr_trace_jsonEbb" + _STRING
_BACKEND = b"gloo"  # torch's own default for it
_NCCL = "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb"
_RESULT_BYTES = 32  # sizeof(std::string): pointer, length, 16 bytes for short texts
_TEXT = struct.Struct("<QQ16s")


@dataclass(frozen=True)
class Recorder:
    """A recorder to ask: `backend` as in FlightDump."""

    backend: str
    function: int
    takes_backend: bool = False

    @property
    def has_events(self) -> bool:
        """Whether its entries belong to a device that would be asked for them."""
        return self.backend == NCCL_BACKEND

    def call(self, scratch: int) -> Call:
        """The call that dumps what may be had, with `scratch` as the address of its scratch."""
        arguments = [int(not self.has_events), 0]
        backend = scratch + _RESULT_BYTES
        if self.takes_backend:
            arguments.append(backend)
        text = bytes(_RESULT_BYTES) + _TEXT.pack(backend + 16, len(_BACKEND), _BACKEND)
        return Call(self.function, arguments, result=scratch, scratch=text)


def loaded(maps: Sequence[Mapping], name: str) -> Mapping | None:
    """Where library `name` begins."""
    return next((m for m in maps if m.name == name and m.offset == 0), None)


def recorders(maps: Sequence[Mapping], memory: Memory) -> tuple[Recorder, ...]:
    """The recorders of a process, that of gloo and CPU first; () where torch is too old.

    Raises:
        ElfError, OSError: a library's symbols can't be read.
    """
    available = []
    if function := _address_of(_FR, CPU_LIBRARY, maps, memory):
        available.append(Recorder("fr", function))
    elif function := _address_of(_FR_OF_BACKEND, CPU_LIBRARY, maps, memory):
        available.append(Recorder("fr", function, takes_backend=True))
    if function := _address_of(_NCCL, _GPU_LIBRARY, maps, memory):
        available.append(Recorder(NCCL_BACKEND, function))
    return tuple(available)


def _address_of(function: str, name: str, maps: Sequence[Mapping], memory: Memory) -> int | None:
    mapping = loaded(maps, name)
    return library(memory.read, mapping.start).address_of(function) if mapping else None


def result(memory: Memory, scratch: int) -> bytes:
    """The text that a call returned.

    Raises:
        ValueError: it is over MAX_DUMP_BYTES, so probably no text at all.
        OSError: it is not where it should be.
    """
    address, size, _short = _TEXT.unpack(memory.read(scratch, _TEXT.size))
    if size > MAX_DUMP_BYTES:
        raise ValueError(f"the dump is {size >> 20} MB; over {MAX_DUMP_BYTES >> 20} MB is refused")
    return memory.read(address, size)
