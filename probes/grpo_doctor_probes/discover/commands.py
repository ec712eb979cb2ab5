"""What a process is, by its command line or title alone, and which framework trains.

Nothing here trusts its input.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.evidence import Role
from grpo_doctor_probes.procs.bounded import unless_blocked
from grpo_doctor_probes.procs.printable import printable_command

Kind = Literal[Role, "ourselves", "unknown"]
_INTERPRETER = re.compile(r"^(?:python|pypy)[\d.]*$")
_LINE_END = re.compile(r"\s*[\r\n]\s*")
_OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_AGENT = "pt_elastic"  # the name that torch gives to its main thread
_AGENT_PROGRAMS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_BY_MODULE: Mapping[str, Kind] = {
    "torch.distributed.run": "launcher",
    "torch.distributed.launch": "launcher",
    "accelerate.commands.launch": "launcher",
    "deepspeed.launcher.launch": "launcher",
    "deepspeed.launcher.runner": "launcher",
    "swift.cli.main": "launcher",
    "sglang.launch_server": "server",
    "trl.scripts.vllm_serve": "server",
    "swift.cli.rollout": "server",
    "swift.cli.deploy": "server",
    "vllm.entrypoints.openai.api_server": "server",
    "vllm.entrypoints.api_server": "server",
    "grpo_doctor": "ourselves",
    "grpo_doctor.cli": "ourselves",
}
_BY_PROGRAM: Mapping[str, Kind] = {
    "torchrun": "launcher", "accelerate-launch": "launcher", "deepspeed": "launcher",
    "deepspeed.pt": "launcher", "horovodrun": "launcher", "mpirun": "launcher",
    "mpiexec": "launcher", "orterun": "launcher", "prterun": "launcher", "prted": "launcher",
    "orted": "launcher", "hydra_pmi_proxy": "launcher", "mpiexec.hydra": "launcher",
    "srun": "launcher", "slurmstepd": "launcher",
    "raylet": "ray", "gcs_server": "ray", "ray": "ray",
    "grpo-doctor": "ourselves", "py-spy": "ourselves",
}  # fmt: skip
_BY_SUBCOMMAND: Mapping[tuple[str, str], Kind] = {
    ("accelerate", "launch"): "launcher",
    ("accelerate.commands.accelerate_cli", "launch"): "launcher",
    ("vllm", "serve"): "server",
    ("vllm.entrypoints.cli.main", "serve"): "server",
    ("sglang", "serve"): "server",
    ("trl", "vllm-serve"): "server",
    ("swift", "rollout"): "server",
    ("swift", "deploy"): "server",
}
# `swift rlhf`, `megatron rlhf`, `trl grpo`: these programs only start the one that trains.
_STARTERS = ("swift", "megatron", "trl")
_BY_TITLE: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"^VLLM::.*(?:APIServer|Router|Supervisor)"), "server"),
    (re.compile(r"^VLLM::.*EngineCor"), "engine"),
    (re.compile(r"^VLLM::.*Worker"), "engine-worker"),
    (re.compile(r"^(?:VLLM|sglang)::.*(?:Coordinator|detokenizer|controller)"), "helper"),
    (re.compile(r"^sglang::.*scheduler(?!.*TP[1-9])"), "engine"),
    (re.compile(r"^sglang::.*scheduler"), "engine-worker"),
    (re.compile(r"^sglang::"), "server"),
    (re.compile(r"^VLLM::"), "engine-worker"),
    (re.compile(r"^ray::(?:RayWorkerWrapper|RayTrainWorkerWrapper)"), "engine-worker"),
    (re.compile(r"^ray::\w*(?:HttpServer|LLMServer)"), "server"),
    (re.compile(r"^ray::\w*(?:RolloutRayActor|LLMRayActor|LLMEngine|EngineActor)"), "engine"),
    (re.compile(r"^ray::\w*RewardModel"), "ray"),
    (re.compile(r"^ray::\w*Reward"), "reward"),
    (re.compile(r"^ray::(?:\w*(?:Reference|Critic|Runner|PPOTrainer|AgentLoop)|IDLE)"), "ray"),
)
# Ray actors that train the policy: verl, OpenRLHF.
_TRAINING_ACTOR = re.compile(
    r"^ray::\w*(?:WorkerDict|ActorRollout|PolicyModel|ActorModelRayActor|TrainingWorker)"
)
_RAY_SCRIPT = re.compile(r"/ray/(?:dashboard|_private|autoscaler|util|workers)/|/bin/ray$")
# They start Ray's workers and wait: no rank, though they import torch.
_RAY_DRIVER = re.compile(r"^(?:verl\..*\bmain_\w+|openrlhf\.cli\.train_\w*ray)$")
_HELPER_CODE = re.compile(
    r"multiprocessing\.(?:resource_tracker|semaphore_tracker|forkserver)|_inductor.*compile_worker"
)
_REWARD_CODE = re.compile(r"grpo_doctor_trainer\.rewards\.worker")
_SERVER_SCRIPT = re.compile(r"/(?:trl/scripts/vllm_serve|swift/cli/(?:rollout|deploy)|sglang/launch_server)\.py$")  # fmt: skip  # noqa: E501
SPAWNED_CODE = re.compile(r"multiprocessing\.spawn import spawn_main")
_SCRIPT_LIMIT_BYTES = 256 << 10
_PATIENCE_S = 1.0
# The order decides where several match: ms-swift and verl bring their own trl along.
_BY_COMMAND = (
    ("bundled", re.compile(r"(?:^|/)grpo_doctor_trainer(?:[./]|$)")),
    ("ms-swift", re.compile(r"(?:^|/)swift(?:[./]|$)|^(?:.*/)?megatron$")),
    ("verl", re.compile(r"(?:^|/)verl(?:[./]|$)|^ray::(?:\w*WorkerDict|\w*ActorRollout)")),
    (
        "openrlhf",
        re.compile(
            r"(?:^|/)openrlhf(?:[./]|$)|^ray::\w*(?:PolicyModelActor|RolloutRayActor|ModelRayActor)"
        ),
    ),
    ("trl", re.compile(r"(?:^|/)trl(?:[./]|$)")),
)
_IMPORT = re.compile(
    r"^\s*(?:from|import)\s+(grpo_doctor_trainer|swift|verl|openrlhf|trl)\b", re.MULTILINE
)
_OF_IMPORT = {"grpo_doctor_trainer": "bundled", "swift": "ms-swift"}


@dataclass(frozen=True, slots=True)
class Program:
    """What a command line runs: exactly one of the first four is not empty.

    `script` is a Python script or any other program, `options` is what follows it.
    """

    title: str = ""
    module: str = ""
    code: str = ""
    script: str = ""
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The module, or the last part of the script's path."""
        return self.module or self.script.rpartition("/")[2]


def program(arguments: tuple[str, ...]) -> Program:
    """Read a command line as Python does: `python -u -m torch.distributed.run ...`."""
    first = arguments[0] if arguments else ""
    if "::" in first.split(" ", 1)[0]:
        return Program(title=" ".join(arguments))
    if not _INTERPRETER.match(first.rpartition("/")[2]):
        return Program(script=first, options=arguments[1:])
    indices = iter(range(1, len(arguments)))
    for index in indices:
        word, after = arguments[index], arguments[index + 1 :]
        if word in ("-m", "-c"):
            value, options = (after[0] if after else ""), after[1:]
            return (Program(module=value, options=options) if word == "-m"
                    else Program(code=value, options=options))  # fmt: skip
        if word in _OPTIONS_WITH_VALUE:
            next(indices, None)
        elif not word.startswith("-"):
            return Program(script=word, options=after)
        elif word.startswith("-m"):
            return Program(module=word[2:], options=after)
    return Program(script=first)


def kind_of(name: str, arguments: tuple[str, ...]) -> Kind:
    """Return the role that the name of the main thread, the title or the command line gives away.

    `ourselves` is grpo-doctor and what it starts, `unknown` is a process that may well be a rank.
    """
    if name == "pt_data_worker":
        return "dataloader"
    if name == _AGENT:
        return "launcher"
    # A zombie has nothing but its name, of 15 characters.
    run = program(arguments) if any(arguments) else Program(title=name)
    if run.title:
        return next((kind for pattern, kind in _BY_TITLE if pattern.search(run.title)), "unknown")
    if _REWARD_CODE.search(run.code):
        return "reward"
    if run.code:
        return "helper" if _HELPER_CODE.search(run.code) else "unknown"
    return _kind_of_program(run)


def _kind_of_program(run: Program) -> Kind:
    first = run.options[0] if run.options else ""
    kind = (
        _BY_SUBCOMMAND.get((run.name, first))
        or _BY_MODULE.get(run.module)
        or (None if run.module else _BY_PROGRAM.get(run.name))
    )
    if kind is not None:
        return kind
    if run.name in _STARTERS and first and not run.module:
        return "launcher"
    if _SERVER_SCRIPT.search(run.script):
        return "server"
    ray = _RAY_SCRIPT.search(run.script) or _RAY_DRIVER.search(run.module)
    return "ray" if ray else "unknown"


def is_agent(name: str, arguments: tuple[str, ...]) -> bool:
    """Whether this is torch's own launcher: unlike others it starts ranks on its host alone."""
    return name == _AGENT or program(arguments).name in _AGENT_PROGRAMS


def trains_in_ray(arguments: tuple[str, ...]) -> bool:
    """Return whether this is a Ray actor of a policy's worker group, by its title."""
    return bool(_TRAINING_ACTOR.search(program(arguments).title))


def is_ray_actor(arguments: tuple[str, ...]) -> bool:
    """Return whether this is a worker of Ray, busy or idle."""
    return program(arguments).title.startswith("ray::")


def is_called_actor(arguments: tuple[str, ...]) -> bool:
    """Return whether this is an actor of Ray in a call: `ray::RolloutActor.__init__`."""
    title = program(arguments).title.partition(" ")[0]
    return is_ray_actor(arguments) and "." in title and not title.startswith("ray::JobSupervisor")


def command_text(arguments: tuple[str, ...]) -> str:
    """Return a command line without secrets, in one line; code after `-c` may have many."""
    return printable_command(tuple(_LINE_END.sub(" ", word.strip()) for word in arguments))


_PER_NODE = ("--nproc_per_node", "--nproc-per-node", "--num_gpus")
_NODES = ("--nnodes", "--num_machines", "--num_nodes")
_ALL = ("--num_processes", "--num-processes")
_MPI_ALL = ("-np", "-n", "--np", "--ntasks")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many ranks a launcher should start; None where it is not given, or in words."""

    world: int | None = None
    local: int | None = None


def launcher_sizes(arguments: tuple[str, ...]) -> Sizes:
    """From `--nproc_per_node`, `--nnodes`, `--num_processes`, `-np` and the like."""
    run = program(arguments)
    if run.name in ("srun", "mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"):
        return Sizes(world=_number(run.options, _MPI_ALL))
    several = any(word.split("=")[0] in _NODES for word in run.options)
    nodes = _number(run.options, _NODES) if several else 1
    if (everyone := _number(run.options, _ALL)) is not None:
        return Sizes(everyone, everyone // nodes if nodes else None)
    local = _number(run.options, _PER_NODE)
    return Sizes(local * nodes if local and nodes else None, local)


def _number(options: tuple[str, ...], names: tuple[str, ...]) -> int | None:
    """Return the value of the first of these options, when it is a number."""
    for index, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name in names:
            text = value if equals else "".join(options[index + 1 : index + 2])
            return int(text) if text.isdecimal() and len(text) < 7 and int(text) else None
    return None


def framework_by_command(processes: Iterable[Process]) -> str:
    """Return one of FOUND_FRAMEWORKS; `unknown` where no command line says."""
    texts = [text for process in processes for text in _texts(process)]
    for name, pattern in _BY_COMMAND:
        if any(pattern.search(text) for text in texts):
            return name
    return "unknown"


def framework_by_script(proc: Path, process: Process) -> str:
    """One of FOUND_FRAMEWORKS, by the import lines of the script that a rank runs; `unknown` where
    its file system does not answer."""
    text = unless_blocked(_PATIENCE_S, partial(_script, proc, process), "")
    modules = set(_IMPORT.findall(text))
    for module in ("grpo_doctor_trainer", "swift", "verl", "openrlhf", "trl"):
        if module in modules:
            return _OF_IMPORT.get(module, module)
    return "unknown"


def _texts(process: Process) -> tuple[str, ...]:
    run = program(process.arguments)
    if run.code:
        return tuple(re.findall(r"[A-Za-z_][\w.]*", run.code[:2000]))
    return (run.title, run.module, run.script)


def _script(proc: Path, process: Process) -> str:
    script = program(process.arguments).script
    if not script.endswith(".py"):
        return ""
    folder = f"{proc}/{process.pid}"
    path = f"{folder}/root{script}" if script.startswith("/") else f"{folder}/cwd/{script}"
    # Not a pipe or a device: opening those could block.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(descriptor, _SCRIPT_LIMIT_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    return ""
