"""Jobs that nothing is wrong with: plainly healthy ones, and slow ones for a good reason.

The slow ones are quick for their first steps and then, in every step, take seconds in one place,
most of them on one rank only, so that an attach at any time meets ranks that wait.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults import fake_engine
from tests.faults.registry import Launch

if TYPE_CHECKING:
    from tests.faults.grpo import Trainer

QUICK_STEPS = 20
LONG_S = 8.0
SLOW_RANK = 1
Inside = Callable[["Trainer", Path], None]


@dataclass(frozen=True)
class Control:
    """A job on which `stuck` or `dead` is a false alarm.

    `first_step`: the slowness is there from the first step on, and an attach comes at once.
    `settle_s`: how long it runs before the first attach.
    """

    name: str
    world_size: int = 4
    phase: str = ""
    inside: Inside | None = None
    ranks: tuple[int, ...] = (SLOW_RANK,)
    launch: Launch = "fork"
    first_step: bool = False
    settle_s: float = 0.0

    def strikes(self, phase: str, trainer: Trainer) -> bool:
        """Whether this rank is slow here."""
        return (
            self.inside is not None
            and phase == self.phase
            and trainer.rank in self.ranks
            and (self.first_step or trainer.step >= QUICK_STEPS)
        )


CONTROLS: dict[str, Control] = {}


def control(name: str, phase: str, **options: Any) -> Callable[[Inside], Inside]:
    """Registers the function below as what makes ranks slow in this phase."""

    def register(inside: Inside) -> Inside:
        CONTROLS[name] = Control(name, phase=phase, inside=inside, **options)
        return inside

    return register


for _size in (2, 4, 8, 64):
    _name = f"healthy, {_size} ranks"
    CONTROLS[_name] = Control(_name, _size)
CONTROLS["healthy torchrun job"] = Control("healthy torchrun job", 2, launch="torchrun")
CONTROLS["healthy bundled trainer"] = Control("healthy bundled trainer", 2, launch="trainer")


@control("first-step compile", "update", world_size=2, ranks=(0, 1), first_step=True)
def compile_model(trainer: Trainer, folder: Path) -> None:
    """What inductor does: C++ sources, compiled in child processes."""
    source = folder / f"kernel{trainer.rank}.cpp"
    source.write_text(
        "#include <algorithm>\n#include <map>\n#include <regex>\n#include <string>\n"
        "std::map<std::string, std::regex> kernels;\n"
    )
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        subprocess.run(
            ["g++", "-O2", "-shared", "-fPIC", "-o", f"{source}.so", str(source)], check=True
        )


@control("checkpoint write", "update", ranks=(0,))
def save_checkpoint(trainer: Trainer, folder: Path) -> None:
    import torch

    state = {f"layer{i}": torch.zeros(1 << 20) for i in range(16)}
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        with (folder / "checkpoint.pt").open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())


@control("long rollout on one rank", "rollout")
def generate(trainer: Trainer, _folder: Path) -> None:
    import torch

    tokens = torch.ones(32, len(trainer.weights))
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        for _ in range(50):
            tokens = torch.tanh(tokens @ trainer.weights)


@control("long rollout of an engine", "rollout", ranks=(0,))
def generate_with_engine(trainer: Trainer, folder: Path) -> None:
    from tests.faults.families.engine import engine_facts
    from tests.faults.families.engine import generate as ask

    if trainer.step == QUICK_STEPS:
        fake_engine.start(folder, "works")
        ask(engine_facts(folder)["port"])
    ask(engine_facts(folder)["port"])


@control("evaluation on every rank", "update", ranks=(0, 1, 2, 3))
def evaluate(trainer: Trainer, _folder: Path) -> None:
    import torch

    until = time.monotonic() + LONG_S
    correct = 0
    while time.monotonic() < until:
        logits = torch.randn(64, len(trainer.weights)) @ trainer.weights
        correct += int((logits.argmax(-1) == 0).sum())


@control("evaluation on rank 0", "update", ranks=(0,))
def evaluate_on_main(trainer: Trainer, folder: Path) -> None:
    evaluate(trainer, folder)


@control("download", "rollout", ranks=(0,))
def download_model(_trainer: Trainer, folder: Path) -> None:
    """Some 300 KB a second from a server in another process."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        client, _ = listener.accept()
        for _ in range(int(LONG_S * 20)):
            client.sendall(bytes(16384))
            time.sleep(0.05)
        os._exit(0)
    with socket.create_connection(listener.getsockname()) as source:
        listener.close()
        with (folder / "model.safetensors").open("wb") as file:
            while chunk := source.recv(65536):
                file.write(chunk)
    os.waitpid(server, 0)


@control("uneven rewards, known to be slow", "reward", settle_s=24.0)
def score_with_judge(trainer: Trainer, _folder: Path) -> None:
    time.sleep(5.0 + trainer.step % 4)


def _prove(until: float) -> float:
    while time.monotonic() < until:
        sum(range(10_000))
    return 1.0


@control("rewards worked out in a pool", "reward")
def grade_in_a_pool(_trainer: Trainer, _folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(_prove, [time.monotonic() + LONG_S] * 2)


@control("data loaded slowly by workers", "rollout", ranks=(0,))
def next_batch(_trainer: Trainer, _folder: Path) -> None:
    from torch.utils.data import DataLoader

    loader: DataLoader[int] = DataLoader(_SlowRows(), batch_size=4, num_workers=1)  # type: ignore[arg-type]
    for _ in loader:
        pass


class _SlowRows:
    """Rows that take long to tokenize."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, row: int) -> int:
        until = time.thread_time() + LONG_S / 16
        while time.thread_time() < until:
            sum(range(10_000))
        return row


@control("metrics logged by a thread", "update", ranks=(0, 1, 2, 3), world_size=4)
def update_with_metrics(trainer: Trainer, folder: Path) -> None:
    """A second thread that works while the step goes on as quickly as ever."""
    if trainer.step == QUICK_STEPS:

        def log() -> None:
            while True:
                (folder / f"metrics{trainer.rank}").write_text(str(time.monotonic()))
                time.sleep(0.2)

        threading.Thread(target=log, name="metrics", daemon=True).start()
