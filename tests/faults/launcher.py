"""Starts jobs in a second: a process that has imported torch once and forks launchers, which fork
ranks as `torch.multiprocessing.start_processes` does. `python -m tests.faults.launcher`.

Reads one `Spec` a line. A launcher is not a child of this process but a process of its own session,
so that nothing but the job itself looks like the job.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
import traceback
from pathlib import Path

from tests.faults.events import tell
from tests.faults.rank import Spec, run_rank
from tests.faults.registry import load


def serve() -> None:
    """Forks a launcher for each line of standard input, until it ends."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    assert dist.is_available()
    load()
    bench = os.getppid()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                _launch(Spec.from_json(line), bench)
            os._exit(0)
        os.wait()


def _launch(spec: Spec, bench: int) -> None:
    folder = Path(spec.folder)
    _redirect(folder / "job.log")
    if spec.facts.get("terminal"):
        _open_terminal()
    fault = load().get(spec.fault)
    ranks: dict[int, int] = {}
    for rank in range(spec.world_size):
        if fault is not None and not fault.starts_culprit and rank == spec.culprit:
            continue
        pid = os.fork()
        if pid == 0:
            _become_rank(spec, rank)
        ranks[rank] = pid
    tell(folder, "launched", -1, ranks=ranks)
    reaped = fault is None or fault.reaped
    _wait(folder, {pid: rank for rank, pid in ranks.items()}, bench, reaped)
    os._exit(0)


def _redirect(log: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(out)


def _open_terminal() -> None:
    """The session's terminal, with this process and its ranks in the foreground."""
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def _become_rank(spec: Spec, rank: int) -> None:
    fault = load().get(spec.fault)
    world_size = spec.world_size if fault is None else fault.claimed_world_size or spec.world_size
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": spec.facts.get("address", "127.0.0.1"),
        "MASTER_PORT": str(spec.port),
    }
    try:
        run_rank(spec, rank)
    except BaseException as error:  # noqa: BLE001 - a rank's end is what the bench wants to know
        traceback.print_exc()
        tell(Path(spec.folder), "error", rank, text=repr(error)[:500])
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _wait(folder: Path, ranks: dict[int, int], bench: int, reaped: bool) -> None:
    """Until every rank has ended, or the bench has: then nothing may be left."""
    watcher = select.poll()
    bench_fd = os.pidfd_open(bench)
    watcher.register(bench_fd, select.POLLIN)
    of_fd = {}
    for pid in ranks:
        of_fd[fd := os.pidfd_open(pid)] = pid
        watcher.register(fd, select.POLLIN)
    while of_fd:
        for fd, _ in watcher.poll():
            if fd == bench_fd:
                os.killpg(0, signal.SIGKILL)
            watcher.unregister(fd)
            pid = of_fd.pop(fd)
            os.close(fd)
            status = os.waitpid(pid, 0)[1] if reaped else None
            tell(folder, "exit", ranks[pid], status=status)


if __name__ == "__main__":
    serve()
