"""What can wait and be waited for: ranks, other processes, and things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class RankNode:
    """A training rank; its main thread stands for it."""

    rank: int

    @property
    def id(self) -> str:
        """Its name in the document of `attach --json`."""
        return f"rank:{self.rank}"

    @property
    def order(self) -> tuple[int, str, int]:
        """Ranks come first, by their number."""
        return 0, "rank", self.rank


@dataclass(frozen=True, slots=True)
class ProcessNode:
    """Any other process. Numbers of joined hosts are in spaces of their own."""

    pid: int

    @property
    def id(self) -> str:
        """Its name in the document of `attach --json`."""
        return f"pid:{self.pid}"

    @property
    def order(self) -> tuple[int, str, int]:
        """After the ranks, by its number."""
        return 1, "pid", self.pid


@dataclass(frozen=True, slots=True)
class ResourceNode:
    """A file, lock or socket whose other end is no process that was seen."""

    kind: str
    name: str

    @property
    def id(self) -> str:
        """Its name in the document of `attach --json`."""
        return f"{self.kind}:{self.name}"

    @property
    def order(self) -> tuple[int, str, int]:
        """After the processes, by kind and name."""
        return 2, self.id, 0


Node: TypeAlias = RankNode | ProcessNode | ResourceNode
