"""Starts spinning jobs in a second: has torch imported and forks a launcher, which forks ranks.

`python -m tests.spinning.launcher` reads one `Spec` a line, as `tests.faults.launcher` does.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from pathlib import Path

from tests.faults.events import tell
from tests.spinning.rank import Spec, run_rank


def serve() -> None:
    """Forks a launcher for each line of standard input, until it ends."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    assert dist.is_available()
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
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(folder / "job.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    ranks = {}
    for rank in range(spec.world_size):
        if (pid := os.fork()) == 0:
            _become_rank(spec, rank)
        ranks[rank] = pid
    tell(folder, "launched", -1, ranks=ranks)
    _wait(list(ranks.values()), bench)
    os._exit(0)


def _become_rank(spec: Spec, rank: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.world_size),
        "MASTER_ADDR": "127.0.0.1",
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


def _wait(pids: list[int], bench: int) -> None:
    """Until every rank has ended, or the bench has: then nothing may be left."""
    watcher = select.poll()
    bench_fd = os.pidfd_open(bench)
    watcher.register(bench_fd, select.POLLIN)
    of_fd = {os.pidfd_open(pid): pid for pid in pids}
    for fd in of_fd:
        watcher.register(fd, select.POLLIN)
    while of_fd:
        for fd, _ in watcher.poll():
            if fd == bench_fd:
                os.killpg(0, signal.SIGKILL)
            watcher.unregister(fd)
            os.waitpid(of_fd.pop(fd), 0)


if __name__ == "__main__":
    serve()
