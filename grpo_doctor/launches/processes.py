"""How many processes a command starts, on how many hosts, and which GPUs it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_doctor.launches.launcher import Started
from grpo_doctor.launches.programs import Program
from grpo_doctor.launches.raw_settings import RawSettings, first_text
from grpo_doctor.launches.words import Word

ONE_EACH = 0
"""One process for each GPU that is visible."""
_EACH = ("gpu", "auto")
_TORCHRUN_COMMANDS = ("rlhf", "sft", "pt")


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes on each host, and hosts; `gpu_ids` as CUDA_VISIBLE_DEVICES has them."""

    per_node: int
    nodes: int
    launcher: str
    gpu_ids: tuple[str, ...] | None
    assumptions: tuple[str, ...] = ()
    known: bool = True
    """False where a variable that is not set here says how many."""


def processes(
    started: Started, program: Program, raw: RawSettings, environment: Mapping[str, Word]
) -> Processes:
    """By the launcher's own rules."""
    gpu_ids = _gpu_ids(started, environment)
    own = started.launcher in (*_LAUNCHERS, "accelerate")
    if program.framework in ("verl", "openrlhf") and not own:
        return Processes(ONE_EACH, 1, "ray", gpu_ids)
    if started.name == "bundled":  # `grpo-doctor run` starts one process for each GPU
        return Processes(ONE_EACH, 1, "", gpu_ids)
    if started.launcher in _LAUNCHERS:
        return _LAUNCHERS[started.launcher](started.options, gpu_ids)
    if program.framework == "ms-swift" and program.subcommand in _TORCHRUN_COMMANDS:
        return _swift(environment, gpu_ids)
    own_launcher = started.name == "trl" and program.role == "train"
    if started.launcher == "accelerate" or own_launcher:
        return _accelerate(started, program, raw, gpu_ids)
    return Processes(1, 1, "", gpu_ids)


def _gpu_ids(started: Started, environment: Mapping[str, Word]) -> tuple[str, ...] | None:
    for name in ("gpu_ids", "include"):
        word = started.options.get(name)
        if word is not None and word.text != "all":
            return tuple(word.text.rpartition(":")[2].split(","))
    word = environment.get("CUDA_VISIBLE_DEVICES")
    if word is None or word.unset:
        return None
    return tuple(part.strip() for part in word.text.split(",") if part.strip())


def _number(text: Any, otherwise: int) -> int:
    try:
        return int(first_text(text))
    except (TypeError, ValueError):
        return otherwise


def _of(options: Mapping[str, Word], name: str) -> str | None:
    word = options.get(name)
    return word.text if word is not None and not word.unset else None


def _torchrun(options: Mapping[str, Word], gpu_ids: tuple[str, ...] | None) -> Processes:
    per_node = _of(options, "nproc_per_node") or "1"
    nodes = (_of(options, "nnodes") or "1").rpartition(":")[2]
    unset = [
        name for n in ("nproc_per_node", "nnodes") if n in options for name in options[n].unset
    ]
    count = ONE_EACH if unset or per_node in _EACH else _number(per_node, 1)
    assumed = (f"one process for each visible GPU; ${unset[0]} is not set here",) if unset else ()
    return Processes(count, _number(nodes, 1), "torchrun", gpu_ids, assumed, known=not unset)


def _deepspeed(options: Mapping[str, Word], gpu_ids: tuple[str, ...] | None) -> Processes:
    count = _number(_of(options, "num_gpus"), ONE_EACH)
    if count == ONE_EACH and gpu_ids is not None:
        count = len(gpu_ids)
    return Processes(count, _number(_of(options, "num_nodes"), 1), "deepspeed", gpu_ids)


_NPROC_UNSAID = "one process per visible GPU; without NPROC_PER_NODE ms-swift starts only one"


def _swift(environment: Mapping[str, Word], gpu_ids: tuple[str, ...] | None) -> Processes:
    """`swift` calls torchrun where one of the two is set, else it starts a single process.

    What people paste seldom has the variables in front of it, so that it isn't judged by them.
    """
    counts = [environment[n] for n in ("NPROC_PER_NODE", "NNODES") if n in environment]
    if not counts:
        return Processes(ONE_EACH, 1, "", gpu_ids, (_NPROC_UNSAID,))
    open_ = "NPROC_PER_NODE" in environment and bool(environment["NPROC_PER_NODE"].unset)
    assumptions = ("one process per visible GPU; set NPROC_PER_NODE",) if open_ else ()
    count = _number(_of(environment, "NPROC_PER_NODE"), ONE_EACH if open_ else 1)
    nodes, known = _number(_of(environment, "NNODES"), 1), not any(word.unset for word in counts)
    return Processes(count, nodes, "torchrun", gpu_ids, assumptions, known)


def _accelerate(
    started: Started, program: Program, raw: RawSettings, gpu_ids: tuple[str, ...] | None
) -> Processes:
    options: dict[str, Any] = dict(raw.accelerate.values) if raw.accelerate is not None else {}
    if program.framework == "trl" and not program.script:
        options |= raw.values
    options |= {name: word.text for name, word in started.options.items()}
    total = _number(options.get("num_processes"), ONE_EACH)
    nodes = _number(options.get("num_machines"), 1)
    assumptions = ("one process per visible GPU; set --num_processes",) if total == ONE_EACH else ()
    launcher = started.launcher or "trl"
    return Processes(max(total // max(nodes, 1), 0), nodes, launcher, gpu_ids, assumptions)


_LAUNCHERS = {"torchrun": _torchrun, "deepspeed": _deepspeed}
