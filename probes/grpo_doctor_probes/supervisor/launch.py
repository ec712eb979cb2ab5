"""What to start: the bundled trainer through torchrun, or the user's own command as it is."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.look.gpus import gpu_count
from grpo_doctor_probes.record.rundir import HOOKS_VARIABLE, MAX_MB_VARIABLE, RUN_DIR_VARIABLE
from grpo_doctor_probes.supervisor.node import ONLY_NODE, Node

DEFAULT_RANKS_WITHOUT_GPU = 2
DEFAULT_PORT = 29500  # torchrun's
TRAINER = "grpo_doctor_trainer"
_DEEPSPEED = ("deepspeed", "ds", "deepspeed.launcher.runner")
_FOR_RANKS = (HOOKS_VARIABLE, RUN_DIR_VARIABLE, MAX_MB_VARIABLE)
STARTUP = Path(__file__).resolve().parents[1] / "hooks" / "startup"


class CannotStartError(Exception):
    """The job can't be started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to start. `world_size` is None where only the job itself will know it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    bundled: bool
    world_size: int | None


def plan(  # noqa: PLR0913 - options of `grpo-doctor run`
    arguments: Sequence[str],
    run_dir: Path,
    *,
    ranks: int | None = None,
    node: Node = ONLY_NODE,
    master: str = "",
    max_mb: int | None = None,
    hooks: bool = True,
) -> Launch:
    """Return the launch for the arguments after `--`.

    Args:
        arguments: none, or beginning with `-`: flags of the bundled trainer; else a command.
        run_dir: handed to every process of the job in the environment.
        ranks: processes of the bundled trainer on this host; default one per visible GPU, else 2.
        node: which host of the bundled trainer this is; each has as many ranks.
        master: HOST[:PORT] of host 0.
        max_mb: largest size of one rank's span file, MiB.
        hooks: whether a command of the user's is given phases, by watching its imports.

    Raises:
        CannotStartError: the command or the trainer's packages are not there.
    """
    options = {RUN_DIR_VARIABLE: run_dir.resolve(), MAX_MB_VARIABLE: max_mb}
    environment = dict(os.environ)
    environment |= {name: str(value) for name, value in options.items() if value is not None}
    if arguments and not arguments[0].startswith("-"):
        _set_hooks(environment, on=hooks)
        _require_program(arguments[0])
        _set_for_deepspeed(environment, arguments, run_dir)
        return Launch(tuple(arguments), environment, bundled=False, world_size=None)
    _set_hooks(environment, on=False)  # the bundled trainer records its phases itself
    _require_trainer()
    count = ranks or visible_gpus() or DEFAULT_RANKS_WITHOUT_GPU
    # Without this every CPU rank starts a thread per core and they fight; torchrun would set 1
    # and warn about it.
    cores = len(os.sched_getaffinity(0))
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
    # A `trainer.py` or `random.py` in the user's folder must not shadow what the trainer imports.
    environment.setdefault("PYTHONSAFEPATH", "1")
    where = ["--standalone"]
    if node.count > 1:
        address, _, port = master.partition(":")
        where = [f"--nnodes={node.count}", f"--node_rank={node.number}"]
        where += [f"--master_addr={address}", f"--master_port={port or DEFAULT_PORT}"]
    torchrun = (
        sys.executable, "-m", "torch.distributed.run",
        *where, f"--nproc_per_node={count}", "-m", TRAINER,
    )  # fmt: skip
    return Launch((*torchrun, *arguments), environment, bundled=True, world_size=count * node.count)


def check_trainer_flags(launch: Launch, arguments: Sequence[str]) -> int:
    """Ask the bundled trainer whether it takes these flags; 0, or 2 after its message."""
    environment = {**launch.environment, "WORLD_SIZE": str(launch.world_size)}
    environment.pop(RUN_DIR_VARIABLE, None)
    return subprocess.call([sys.executable, "-m", f"{TRAINER}.flags", *arguments], env=environment)


def visible_gpus() -> int:
    """Return GPUs that a job started here may use; 0 without an NVIDIA driver."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return sum(entry.strip() not in ("", "-1") for entry in listed.split(","))
    return gpu_count()


def _require_program(program: str) -> None:
    if shutil.which(program) is None:
        hint = (
            f"It is a Python file: start it with `python {program}`."
            if program.endswith(".py") and Path(program).exists()
            else "Check the name, or activate the environment it is installed in."
        )
        raise CannotStartError(f"can't start {program!r}: no such command on the PATH. {hint}")


def _set_hooks(environment: dict[str, str], *, on: bool) -> None:
    """Put the folder of our `sitecustomize` first on the path of the job's Pythons, or not."""
    environment.pop(HOOKS_VARIABLE, None)
    if on:
        environment[HOOKS_VARIABLE] = "1"
        folders = [str(STARTUP), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))


def _set_for_deepspeed(
    environment: dict[str, str], arguments: Sequence[str], run_dir: Path
) -> None:
    """Hand the variables to the other hosts of a hostfile: DeepSpeed exports only what is in a
    file (`DS_ENV_FILE`, deepspeed/launcher/runner.py of 0.15 to 0.19) and names it knows."""
    if not any(Path(word).name in _DEEPSPEED for word in arguments):
        return
    name = environment.get("DS_ENV_FILE", ".deepspeed_env")
    theirs = next((p for p in (Path(name), Path.home() / name) if p.is_file()), None)
    lines = theirs.read_text().splitlines() if theirs else []
    lines += [f"{key}={environment[key]}" for key in _FOR_RANKS if key in environment]
    path = run_dir.resolve() / "deepspeed_env"
    path.write_text("".join(f"{line}\n" for line in lines if "=" in line))
    environment["DS_ENV_FILE"] = str(path)


def _require_trainer() -> None:
    needed = ("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotStartError(
            f"the bundled trainer needs {', '.join(missing)}, which this Python does not have. "
            "Install it from the checkout: pip install '.[trainer]'. To run your own trainer, "
            "give its command: grpo-doctor run -- swift rlhf ..."
        )
