"""A /proc of our own, for the jobs that cannot be started here. Formats: proc(5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_doctor_probes.discover import find_jobs
from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.evidence import Job

GIB = 1 << 30
LOOPBACK = "0100007F"  # as the kernel prints it
TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
_MAPS = f"""\
55d000000000-55d000001000 r--p 00000000 08:01 11 /usr/bin/python3.11
7f0000000000-7f0000100000 r--p 00000000 08:01 12 {TORCH}/lib/libtorch_cpu.so
7f0000200000-7f0000300000 r--p 00000000 08:01 13 {TORCH}/lib/libc10.so
"""


@dataclass
class FakeProc:
    """Processes are added one by one; each starts a tick after the one before."""

    root: Path
    _ticks: int = 1000
    _inode: int = 5000
    _sockets: dict[str, list[str]] = field(default_factory=dict)
    _space: dict[int, str] = field(default_factory=dict)

    def add(
        self,
        pid: int,
        parent: int,
        command: str | Sequence[str],
        environment: Mapping[str, object] | None = None,
        *,
        name: str = "python",
        program: str = "/usr/bin/python3.11",
        torch: bool = False,
        threads: Sequence[str] = (),
        state: str = "S",
        image: int = 0,
        forked: bool | None = None,
        group: int | None = None,
        space: str = "net:[1]",
    ) -> int:
        """A process. `image`: processes with the same one were forked from each other, `forked` if
        it is not the first of them."""
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "ns").mkdir()
        self._ticks += 1
        words = ["0"] * 50
        words[0], words[1], words[19] = state, str(parent), str(self._ticks)
        words[2] = words[3] = str(pid if group is None else group)
        words[6] = str(0x40 if (image not in (0, pid) if forked is None else forked) else 0)
        words[20] = str(2 * GIB if torch else 20 << 20)
        words[23], words[25] = str(0x55D000000000 + (image or pid)), str(0x7FFC00000000)
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(words)}\n")
        arguments = command.split() if isinstance(command, str) else list(command)
        dead = state == "Z"
        variables = {} if dead else environment or {}
        (folder / "cmdline").write_bytes(b"" if dead else "\0".join([*arguments, ""]).encode())
        (folder / "environ").write_text("".join(f"{k}={v}\0" for k, v in variables.items()))
        (folder / "maps").write_text(_MAPS if torch else "")
        (folder / "exe").symlink_to(program)
        (folder / "ns" / "net").symlink_to(space)
        for number, thread in enumerate((name, *threads)):
            (folder / "task" / str(pid + number)).mkdir(parents=True)
            (folder / "task" / str(pid + number) / "comm").write_text(thread + "\n")
        self._space[pid] = space
        self._write_sockets(pid)
        return pid

    def listens(self, pid: int, port: int) -> None:
        """A listening socket."""
        self._row(pid, f"00000000:{port:04X}", "00000000:0000", "0A")

    def connects(
        self, client: int, server: int, port: int, host: str = LOOPBACK, state: str = "01"
    ) -> None:
        """An established connection over the loopback device, or one of the host's addresses.

        `state` is that of the server's end.
        """
        own = 40000 + self._inode % 20000
        self._row(client, f"{host}:{own:04X}", f"{host}:{port:04X}", "01")
        self._row(server, f"{host}:{port:04X}", f"{host}:{own:04X}", state)

    def _row(self, pid: int, local: str, remote: str, state: str) -> None:
        self._inode += 1
        folder = self.root / str(pid) / "fd"
        (folder / str(len(list(folder.iterdir())) + 3)).symlink_to(f"socket:[{self._inode}]")
        self._tell(pid, f"0: {local} {remote} {state} 0:0 0:0 0 0 0 {self._inode} 1 0 100 0 0 10 0")

    def _tell(self, pid: int, row: str) -> None:
        """Adds a row to the table of sockets of all processes with the same network."""
        self._sockets.setdefault(self._space[pid], []).append(row)
        for pid_of_space, space in self._space.items():
            if space == self._space[pid]:
                self._write_sockets(pid_of_space)

    def _write_sockets(self, pid: int) -> None:
        (self.root / str(pid) / "net").mkdir(exist_ok=True)
        rows = ["  sl  local_address rem_address", *self._sockets.get(self._space[pid], [])]
        (self.root / str(pid) / "net" / "tcp").write_text("\n".join(rows) + "\n")


def process(pid: int = 7, parent: int = 1, command: str = "", **more: Any) -> Process:
    """A process as `scan` reads it."""
    facts: dict[str, Any] = {"group": pid, "session": pid, "state": "S", "name": "python"}
    facts |= {"started_ticks": pid, "arguments": tuple(command.split()), **more}
    return Process(pid=pid, parent=parent, **facts)


def rank_environment(rank: int, world: int, port: int = 29500, **more: object) -> dict[str, object]:
    """What torchrun sets."""
    return {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world,
        "GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more,
    }  # fmt: skip


def start_torchrun(host: FakeProc, pid: int, ranks: int, **more: object) -> None:
    """A launcher `pid` and its ranks at the next numbers."""
    space = str(more.pop("space", "net:[1]"))
    host.add(pid, 50, f"python /v/bin/torchrun --nproc_per_node {ranks} t.py", space=space)
    for rank in range(ranks):
        environment = rank_environment(rank, ranks, **more)  # type: ignore[arg-type]
        host.add(pid + 1 + rank, pid, "python -u t.py", environment, torch=True, space=space)


def rank_pids(host: FakeProc, *pids: int) -> list[list[int]]:
    """The processes of the ranks of each job that is found."""
    return [[member.pid for member in job.ranks()] for job in find_jobs(pids, host.root)]


def roles(job: Job) -> dict[str, dict[int, int | None]]:
    """The processes of each role, with their ranks."""
    found: dict[str, dict[int, int | None]] = {}
    for member in job.members:
        found.setdefault(member.role, {})[member.pid] = member.rank
    return found
