"""Whether a process runs in a container, and in which."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from grpo_doctor_probes.procfs import status

_CONTAINER_ID = re.compile(r"(?:^|[/\-:.])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_SHORT = 12


def container_of(proc: Path, pid: int) -> str:
    """The short identity of its container, `pid namespace` for an unknown one, else empty."""
    folder = f"{proc}/{pid}"
    with contextlib.suppress(OSError):
        if found := _CONTAINER_ID.search(os.fsdecode(Path(f"{folder}/cgroup").read_bytes())):
            return found[1][:_SHORT]
    return "pid namespace" if len(status(folder).get("NSpid", "").split()) > 1 else ""


def has_our_network(proc: Path, pid: int) -> bool:
    """Whether an address that it listens on is the same for us; so we take it where that is hidden.

    In another name space 127.0.0.1 is another host, where another job's server may listen.
    """
    try:
        return Path(f"{proc}/{pid}/ns/net").readlink() == Path(f"{proc}/self/ns/net").readlink()
    except OSError:
        return True


class Containers:
    """The container of many processes: asked once for each set of name spaces."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._known: dict[tuple[str, str], str] = {}

    def of(self, pid: int) -> str:
        """Like `container_of`."""
        try:
            key = (
                os.readlink(f"{self._proc}/{pid}/ns/pid"),  # noqa: PTH115 - one call for each process
                os.readlink(f"{self._proc}/{pid}/ns/mnt"),  # noqa: PTH115 - the same
            )
        except OSError:
            return container_of(self._proc, pid)
        if key not in self._known:
            self._known[key] = container_of(self._proc, pid)
        return self._known[key]
