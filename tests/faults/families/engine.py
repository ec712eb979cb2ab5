"""Rollout engines that die or bring out no tokens while their HTTP front says all is well."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults import fake_engine
from tests.faults.host import eventually
from tests.faults.registry import Facts, Outside, Scene, fault

START_S = 20.0


def engine_facts(folder: Path) -> dict[str, Any]:
    path = folder / "engine.json"
    eventually("the engine is up", path.exists, START_S)
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def generate(port: int) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", data=b"{}")
    with urllib.request.urlopen(request) as answer:
        body: bytes = answer.read()
    return body


def _generate_twice(scene: Scene, mode: str) -> None:
    """With an engine of the rank's own; the second time it gets no answer."""
    fake_engine.start(scene.folder, mode)
    port = engine_facts(scene.folder)["port"]
    generate(port)
    scene.arrived()
    eventually("the bench has acted", (scene.folder / "acted").exists)
    scene.takes_effect()
    generate(port)


def _do_nothing(outside: Outside) -> None:
    (outside.folder / "acted").touch()


def kill_core(outside: Outside) -> None:
    os.kill(engine_facts(outside.folder)["core"], signal.SIGKILL)
    (outside.folder / "acted").touch()


def stop_core(outside: Outside) -> None:
    os.kill(engine_facts(outside.folder)["core"], signal.SIGSTOP)
    (outside.folder / "acted").touch()


@fault("engine core killed, its front lives", "rollout-engine-dead", phase="rollout",
       outside=kill_core, states=("stuck", "dead"))  # fmt: skip
def generate_with_engine(scene: Scene) -> None:
    _generate_twice(scene, "waits")


@fault("engine core stopped", "rollout-engine-stalled", phase="rollout", outside=stop_core)
def generate_with_stopped_engine(scene: Scene) -> None:
    _generate_twice(scene, "waits")


@fault("engine waits for room in its cache", "rollout-engine-stalled", phase="rollout",
       outside=_do_nothing)  # fmt: skip
def generate_long(scene: Scene) -> None:
    _generate_twice(scene, "waits")


@fault("engine preempts without end", "rollout-engine-stalled", phase="rollout",
       outside=_do_nothing, states=("stuck", "slow"), busy=True)  # fmt: skip
def generate_many(scene: Scene) -> None:
    _generate_twice(scene, "spins")


@contextlib.contextmanager
def engine_elsewhere() -> Iterator[Facts]:
    """An engine that is not the job's child; only the HTTP connection joins them."""
    with tempfile.TemporaryDirectory(prefix="engine-") as name:
        front = fake_engine.start(Path(name), "waits")
        try:
            yield engine_facts(Path(name))
        finally:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                os.kill(json.loads(Path(name, "engine.json").read_text())["core"], signal.SIGKILL)
            front.kill()
            front.wait()


def kill_core_elsewhere(outside: Outside) -> None:
    os.kill(outside.facts["core"], signal.SIGKILL)
    (outside.folder / "acted").touch()


@fault("engine core of a server killed", "rollout-engine-dead", phase="rollout",
       needs=engine_elsewhere, outside=kill_core_elsewhere, states=("stuck", "dead"))  # fmt: skip
def generate_on_server(scene: Scene) -> None:
    port = scene.facts["port"]
    generate(port)
    scene.arrived()
    eventually("the bench has acted", (scene.folder / "acted").exists)
    scene.takes_effect()
    generate(port)
