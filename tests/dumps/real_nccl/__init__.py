"""Recordings of real NCCL jobs with injected faults; where they are from is in README.md."""

from __future__ import annotations

import functools
import re
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from grpo_doctor_probes.evidence import FlightDump

HERE = Path(__file__).parent
_LABEL = re.compile(r"Rank (\d+), fault_type")


class Recorded(NamedTuple):
    """One job: who was hurt, and the dump of each rank."""

    name: str
    culprits: frozenset[int]
    files: tuple[FlightDump, ...]

    def without(self, ranks: Collection[int]) -> list[FlightDump]:
        """The files of all other ranks."""
        return [file for file in self.files if file.rank not in ranks]


@functools.cache
def recordings() -> tuple[Recorded, ...]:
    """All of them, by name."""
    return tuple(_read(path) for path in sorted(HERE.glob("*.tar.xz")))


def _read(archive: Path) -> Recorded:
    files = []
    culprits: frozenset[int] = frozenset()
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            stream = packed.extractfile(member)
            if stream is None:
                continue
            name, data = Path(member.name).name, stream.read()
            if name.startswith("_dump_"):
                rank = int(name.removeprefix("_dump_"))
                files.append(FlightDump(f"file:{archive.stem}/{name}", rank, data=data))
            else:
                culprits = frozenset(map(int, _LABEL.findall(data.decode())))
    ordered = sorted(files, key=lambda file: file.rank or 0)
    return Recorded(archive.name.removesuffix(".tar.xz"), culprits, tuple(ordered))
