"""Compiles the stand-ins for CUDA's driver and NCCL, and the device that they talk to."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
COMPILER = shutil.which("cc") or shutil.which("gcc")
MOST_RANKS, MOST_GROUPS, QUEUE_DEPTH = 16, 8, 4096
KERNEL, COLLECTIVE, HUNG_KERNEL = 1, 2, 3


class Operation(ctypes.Structure):
    """struct operation of native/world.h."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("sequence", ctypes.c_uint64),
        ("microseconds", ctypes.c_uint64),
        ("created_ns", ctypes.c_uint64),
        ("finished_ns", ctypes.c_uint64),
    ]


class Queue(ctypes.Structure):
    """struct queue."""

    _fields_ = [
        ("enqueued", ctypes.c_uint64),
        ("finished", ctypes.c_uint64),
        ("began_ns", ctypes.c_uint64),
        ("called", ctypes.c_uint64 * MOST_GROUPS),
        ("joined", ctypes.c_uint64 * MOST_GROUPS),
        ("operations", Operation * QUEUE_DEPTH),
    ]


class World(ctypes.Structure):
    """struct world."""

    _fields_ = [
        ("ranks", ctypes.c_uint32),
        ("broken_groups", ctypes.c_uint32),
        ("members", ctypes.c_uint32 * MOST_GROUPS),
        ("queues", Queue * MOST_RANKS),
    ]


@dataclass(frozen=True)
class StandIns:
    """What was compiled. The libraries have the names under which real ones are mapped."""

    folder: Path

    @property
    def cuda(self) -> Path:
        return self.folder / "libcuda.so.1"

    @property
    def nccl(self) -> Path:
        return self.folder / "libnccl.so.2"

    @property
    def user(self) -> Path:
        return self.folder / "solver.so"

    @property
    def device(self) -> Path:
        return self.folder / "device"


@contextmanager
def compiled() -> Iterator[StandIns]:
    """In a folder of its own, removed afterwards."""
    assert COMPILER is not None
    with tempfile.TemporaryDirectory(prefix="stand-ins-") as name:
        stand_ins = StandIns(Path(name))
        library = ("-shared", "-fPIC", "-fno-omit-frame-pointer")
        jobs = (
            ("cuda.c", stand_ins.cuda, library),
            ("nccl.c", stand_ins.nccl, library),
            ("user.c", stand_ins.user, library),
            ("device.c", stand_ins.device, ()),
        )
        for source, target, flags in jobs:
            command = [COMPILER, "-O1", *flags, "-o", str(target), str(SOURCES / source)]
            subprocess.run([*command, "-lpthread"], check=True, capture_output=True)
        yield stand_ins
