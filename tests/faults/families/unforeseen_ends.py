"""Ranks at their end or in a debugger, and two faults at a time."""

from __future__ import annotations

import atexit
import os
import pdb
import socket
import sys
import threading
import time

from tests.faults.families.control import _stop, start_log_uploader
from tests.faults.families.unforeseen_ranks import all_ranks
from tests.faults.host import http_server
from tests.faults.registry import Outside, Scene, fault

HOUR_S = 3600
ENDED = ("stuck", "dead")


@fault("a thread keeps a failed rank alive", "user-code-blocked", "rank-dead", phase="update",
       states=ENDED, launch="torchrun", no_arguments=True)  # fmt: skip
def fail_beside_a_thread(scene: Scene) -> None:
    """The interpreter waits for it, after the traceback has been printed."""
    threading.Thread(target=time.sleep, args=(HOUR_S,), name="prefetch").start()
    scene.takes_effect()
    raise ValueError("advantages contain NaN")


@fault("a failed rank uploads its logs at exit", "user-code-blocked", "rank-dead", phase="update",
       states=(*ENDED, "slow"), launch="torchrun", needs=http_server)  # fmt: skip
def fail_and_upload(scene: Scene) -> None:
    def upload() -> None:
        with socket.create_connection(("127.0.0.1", scene.facts["port"])) as server:
            server.sendall(b"POST /runs/17/finish HTTP/1.1\r\nHost: logs\r\n\r\n")
            server.recv(65536)

    atexit.register(upload)
    scene.takes_effect()
    raise ValueError("advantages contain NaN")


@fault("a rank is done and exits with 0", "rank-dead", "collective-skipped", phase="rollout",
       states=ENDED)  # fmt: skip
def finish_early(scene: Scene) -> None:
    """Its share of the data was smaller; a helper it has forked keeps its connections open."""
    start_log_uploader()
    scene.takes_effect()
    os._exit(0)


@fault("breakpoint() left in the code", "user-code-blocked", phase="reward",
       extra={"terminal": True})  # fmt: skip
def debug_reward(scene: Scene) -> None:
    with open("/dev/tty") as keys, open("/dev/tty", "w") as screen:  # noqa: PTH123 - a device
        debugger = pdb.Pdb(stdin=keys, stdout=screen)
        scene.takes_effect()
        debugger.set_trace(sys._getframe())
        scene.arrived()


@fault("a remote debugger waits for its client", "user-code-blocked", phase="update")
def debug_remotely(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scene.takes_effect()
        listener.accept()


def stop_culprit(outside: Outside) -> None:
    _stop(outside.pid)


@fault(
    "one rank stopped, another leaves out a collective", "rank-stopped", "collective-skipped",
    "collective-mismatch", phase="reward", world_size=8, everyone=True, outside=stop_culprit,
    guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
)  # fmt: skip
def skip_beside_a_stopped_rank(scene: Scene) -> bool:
    if scene.guilty:
        scene.arrived()
        time.sleep(HOUR_S)
    return scene.rank == scene.partner


@fault(
    "one rank stopped, another waits for its reward server", "rank-stopped", "reward-blocked",
    phase="reward", everyone=True, outside=stop_culprit, needs=http_server,
    guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
)  # fmt: skip
def score_beside_a_stopped_rank(scene: Scene) -> None:
    if scene.rank == scene.partner:
        with socket.create_connection(("127.0.0.1", scene.facts["port"])) as server:
            server.sendall(b"POST /score HTTP/1.1\r\nHost: rewards\r\nContent-Length: 0\r\n\r\n")
            server.recv(65536)
    elif scene.guilty:
        scene.arrived()


def stop_everybody(outside: Outside) -> None:
    """What Ctrl-Z does: the launcher and its ranks."""
    launcher = os.getpgid(outside.pid)
    for pid in (launcher, *outside.pids.values()):
        _stop(pid)


@fault("Ctrl-Z: launcher and ranks are stopped", "rank-stopped", phase="update", guilty=all_ranks,
       outside=stop_everybody)  # fmt: skip
def wait_for_ctrl_z(scene: Scene) -> None:
    scene.arrived()
