"""A vLLM server, and a job that asks it, alone in a process namespace: `test_attach_vllm.py`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import requests

from grpo_doctor_probes.procs.enginepages import parse_metrics
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from tests.integration.apart import ISOLATING, OWN_MEMORY, may_isolate
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("vllm_asking_job.py")
STEP_S = 120.0
SHORT: dict[str, Any] = {"prompts": 2, "tokens": 8}
_LONGEST_S = 1800
BLOCKS = 20  # of 128 tokens: one longest sequence fits, two do not
_GREEDY: dict[str, Any] = {"model": "tiny", "prompt": "greedy", "max_tokens": 12, "temperature": 0}


@dataclass
class Stage:
    """The server, the job beside it, and where both run: alone, if that is allowed."""

    folder: Path
    port: int
    inside: tuple[str, ...]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, name: str, *command: str, **variables: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self.inside, *command], cwd=self.folder, env=environment() | variables,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.started.append(process)

    def end(self) -> None:
        """nsenter stops itself when what it has entered for is stopped: it has to be killed."""
        for process in self.started:
            process.kill()
            process.wait()

    def ask(self, **wish: Any) -> None:
        """What the job asks the engine for from its next step on."""
        path = self.folder / "ask.json"
        path.with_suffix(".part").write_text(json.dumps(wish))
        path.with_suffix(".part").rename(path)

    def steps(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return int((self.folder / "step.1").read_text())
        return -1

    def moves(self, more: int = 3) -> None:
        """Waits until the job has done more steps, with what was asked for last."""
        goal = self.steps() + more
        until(lambda: self.steps() >= goal, self.logs)

    def logs(self) -> str:
        texts = (path.read_text(errors="replace") for path in self.folder.glob("*.log"))
        return "\n".join(text[-3000:] for text in texts)

    def attach(self, *arguments: str) -> dict[str, Any]:
        """As a new user: without a PID. What it saw stays beside the logs."""
        folder = self.folder / f"attach-{len(list(self.folder.glob('attach-*')))}"
        attach = (sys.executable, "-m", "grpo_doctor", "attach", "--json", "--out", str(folder))
        done = subprocess.run(
            [*self.inside, *attach, *arguments], capture_output=True, text=True, timeout=120,
            check=False, cwd=self.folder,
        )  # fmt: skip
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == 3 * (document["verdict"]["state"] in ("stuck", "dead"))
        return document

    def answers(self) -> bool:
        with contextlib.suppress(requests.exceptions.RequestException):
            return bool(requests.get(f"{self.url}/health", timeout=5).ok)
        return False

    def running(self) -> float:
        """How many requests the engine works on."""
        text = requests.get(f"{self.url}/metrics", timeout=30).text
        return parse_metrics(text)["num_requests_running"]

    def greedy(self) -> str:
        """A few tokens that do not change."""
        answer = requests.post(f"{self.url}/v1/completions", json=_GREEDY, timeout=60)
        text: str = answer.json()["choices"][0]["text"]
        return text

    def signal(self, pid: int, number: signal.Signals) -> None:
        subprocess.run([*self.inside, "kill", f"-{number.value}", str(pid)], check=True)


def environment() -> dict[str, str]:
    prefixes = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GRPO_DOCTOR", "TORCHELASTIC")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)} | {
        "OMP_NUM_THREADS": "1", "TMPDIR": "/dev/shm", "PYTHONPATH": str(ROOT), "COLUMNS": "100",
        "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_SERVER_DEV_MODE": "1",  # /pause and /collective_rpc, as TRL starts it
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1",
    }  # fmt: skip


def until(done: Any, why: Any, seconds: float = STEP_S) -> None:
    ends = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < ends, why()
        time.sleep(0.1)


@contextmanager
def alone() -> Iterator[tuple[str, ...]]:
    """A process namespace of our own, by what starts commands in it; all in it ends with it.

    An attach without a PID would find other jobs of this machine.
    """
    if not may_isolate():
        pytest.skip("this user may make no process namespace")
    keeper = subprocess.Popen([*ISOLATING, "sh", "-c", f"{OWN_MEMORY}exec sleep {_LONGEST_S}"])
    try:
        until(lambda: psutil.Process(keeper.pid).children(), lambda: "no namespace")
        (first,) = psutil.Process(keeper.pid).children()
        yield ("nsenter", "--target", str(first.pid), "--pid", "--mount", "--")
    finally:
        keeper.kill()
        keeper.wait()


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """A job that waits for its server, and that server, still on its way up."""
    model = folder / "model"
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(model)
    tiny_model(tokenizer).save_pretrained(model)
    with alone() as inside:
        stage = Stage(folder, free_port(), inside)
        stage.ask(**SHORT)
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
        stage.start("job", *torchrun, "--nproc_per_node=2", str(JOB), stage.url, str(folder))
        stage.start(
            "server", sys.executable, "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(model), "--served-model-name", "tiny",
            "--host", "127.0.0.1", "--port", str(stage.port),
            "--dtype", "float32", "--max-model-len", "2048", "--enforce-eager",
            "--kv-cache-memory-bytes", str(64 << 20), "--num-gpu-blocks-override", str(BLOCKS),
            "--worker-extension-cls", "tests.integration.vllm_weights.Receiver",
        )  # fmt: skip
        try:
            yield stage
        finally:
            stage.end()
