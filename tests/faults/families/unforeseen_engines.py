"""Rollout servers that take requests and bring nothing.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import importlib
import os
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.faults.families.unforeseen_waiting import address, server
from tests.faults.host import (
    eventually,
    http_server,
)
from tests.faults.registry import MAY_ANSWER, Outside, Scene, fault

BUSY = ("stuck", "slow")  # a loop that tries again may succeed the next time
ENGINE = ("rollout-engine-stalled", "user-code-blocked")  # known by its address and place only


@fault("generate hangs, /health says 200", *ENGINE, phase="rollout", needs=server("generates"),
       states=MAY_ANSWER)  # fmt: skip
def generate_on_server(scene: Scene) -> None:
    urllib.request.urlopen(address(scene, "health")).read()
    scene.takes_effect()
    urllib.request.urlopen(address(scene, "generate"), data=b"{}").read()


@fault("a stream of tokens stops in the middle", *ENGINE, phase="rollout", needs=server("breaks"),
       world_size=2, states=MAY_ANSWER)  # fmt: skip
def stream_tokens(scene: Scene) -> None:
    scene.takes_effect()
    with urllib.request.urlopen(address(scene, "v1/completions"), data=b"{}") as tokens:
        for _ in tokens:
            pass


def kill_server(outside: Outside) -> None:
    os.kill(outside.facts["server"], signal.SIGKILL)
    (outside.folder / "acted").touch()


@fault("engine gone between requests, asked again and again", "rollout-engine-dead",
       "user-code-blocked", phase="rollout", needs=server("answers"), outside=kill_server,
       states=(*BUSY, "dead"))  # fmt: skip
def generate_with_retries(scene: Scene) -> None:
    scene.arrived()
    eventually("the bench has acted", (scene.folder / "acted").exists)
    while True:
        try:
            urllib.request.urlopen(address(scene, "generate"), data=b"{}").read()
        except OSError:
            time.sleep(2.0)


@fault("a ZMQ engine that never replies", *ENGINE, phase="rollout", needs=http_server,
       modules=("zmq",))  # fmt: skip
def generate_by_zmq(scene: Scene) -> None:
    zmq: Any = importlib.import_module("zmq")

    engine = zmq.Context().socket(zmq.REQ)
    engine.connect(f"tcp://127.0.0.1:{scene.facts['port']}")
    engine.send(b"generate")
    scene.takes_effect()
    engine.recv()


@fault("a weight update posted by a thread never returns", "weight-sync-blocked",
       "rollout-engine-stalled", phase="sync_weights", needs=server("generates"),
       modules=("requests",))  # fmt: skip
def update_engine(scene: Scene) -> None:
    import requests

    with ThreadPoolExecutor(1, "weight-sync") as pool:
        update = pool.submit(requests.post, address(scene, "update_named_param"), json={})
        scene.takes_effect()
        update.result()


@fault("an answer that the engine should write to a file", "weight-sync-blocked",
       "user-code-blocked", phase="sync_weights", world_size=2, states=BUSY)  # fmt: skip
def wait_until_loaded(scene: Scene) -> None:
    scene.takes_effect()
    while not (scene.folder / "weights.loaded").exists():
        time.sleep(1.0)
