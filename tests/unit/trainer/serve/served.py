"""A rollout server around a small engine of our own: real HTTP, real files, no vLLM."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from grpo_doctor_trainer.rollout.vllm.weight_checks import Signature
from grpo_doctor_trainer.serve.folders import make_folders, remove_folders
from grpo_doctor_trainer.serve.loop import (
    EngineFailedError,
    EngineLoop,
    NewSequence,
    RequestError,
)
from grpo_doctor_trainer.serve.protocol import Completion, JoinRequest
from grpo_doctor_trainer.serve.state import EngineSnapshot, Health
from grpo_doctor_trainer.serve.web import Service, WebServer

VOCABULARY = 300  # above the embedded model's


class CountingEngine:
    """Completes a prompt by counting on from its last token, one token for each in each step.

    At most `room` sequences at once; the others wait.
    """

    def __init__(self, room: int = 1000, step_s: float = 0.0) -> None:
        self.room, self.step_s = room, step_s
        self.open: dict[str, tuple[NewSequence, list[int]]] = {}
        self.aborted: list[str] = []
        self.names: list[str] = []
        self.breaks_at: int | None = None
        self.steps = 0

    def add(self, sequence: NewSequence) -> None:
        if max(sequence.prompt.tokens) >= VOCABULARY:
            raise RequestError(f"token {max(sequence.prompt.tokens)} is not in the vocabulary")
        self.open[sequence.key] = (sequence, [])

    def step(self) -> list[tuple[str, Completion]]:
        self.steps += 1
        time.sleep(self.step_s)
        if self.steps == self.breaks_at:
            raise RuntimeError("a kernel broke")
        finished = []
        for key in list(self.open)[: self.room]:
            sequence, made = self.open[key]
            read = sequence.prompt.tokens
            made.append((read[-1] + len(made) + 1) % VOCABULARY)
            ended = made[-1] in sequence.sampling.stop_tokens
            if ended or len(made) == sequence.sampling.max_tokens:
                logprobs = [float(-((sequence.seed or 0) % 100))] * len(made)
                finished.append((key, Completion(made, logprobs, len(read))))
                del self.open[key]
        return finished

    def abort(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.aborted.append(key)
            self.open.pop(key, None)

    def snapshot(self) -> EngineSnapshot:
        running = min(len(self.open), self.room)
        return EngineSnapshot(running, len(self.open) - running, running / self.room)

    def load_files(self, paths: list[str]) -> tuple[str, int]:
        signature = Signature()
        for path in paths:
            for name, tensor in load_file(path).items():
                signature.add(name, tensor)
                self.names.append(name)
        return signature.value(), signature.tensors

    def join(self, request: JoinRequest) -> None:
        raise RuntimeError(f"no group at {request.host}")

    def receive(self) -> tuple[str, int]:
        raise RuntimeError("no group")


@contextmanager
def serving(engine: CountingEngine, folder: Path, **facts: Any) -> Iterator[WebServer]:
    """Serves an engine; its folders for weights are in `folder`. `facts` go into its `Health`."""
    folders = make_folders([folder])
    facts = {"weights": "w1", "folders": folders} | facts
    health = Health("ready", "", 1, "/the/log", **facts)
    loop = EngineLoop(engine)
    server = WebServer("127.0.0.1", 0, Service(health, engine, loop))

    def run() -> None:
        with suppress(EngineFailedError):
            loop.run()

    threads = [
        threading.Thread(target=run),
        threading.Thread(target=server.serve_forever, args=(0.02,)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        loop.stop()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join(10)
        remove_folders(folders)
