"""Memory of a host: offloaded state in pinned buffers, sleeping weights, loaders."""

from __future__ import annotations

from grpo_doctor.memory.facts import Calibration
from grpo_doctor.memory.ledger import Component, Phase, Pool
from grpo_doctor.memory.setup import GIB, Setup
from grpo_doctor.memory.states import States

_PROCESS = 8 * GIB
"""Of one rank: CUDA's and PyTorch's libraries, the tokenizer, Ray or torchrun's own.
30 GB a worker of verl with offload (verl issue 5206), 11.2 GB without (224)."""
_LOADER = GIB


def host_pool(setup: Setup, states: States, factors: Calibration) -> Pool | None:
    """What one host needs; None where the size of its memory is unknown."""
    if setup.host_bytes is None:
        return None
    return Pool("host", setup.host_bytes, (host_phase(setup, states, factors),), "each host")


def host_phase(setup: Setup, states: States, factors: Calibration) -> Phase:
    """The entries of one host's memory at its worst."""
    ranks = setup.ranks_per_node or setup.ranks
    processes = 1 if setup.engine == "device_map" else ranks
    entries = [
        Component("processes", processes * _PROCESS, f"{processes} x 8 GiB",
                  "verl issue 224: 11.2 GB a worker", None, factors.spread_overhead),
    ]  # fmt: skip

    def add(name: str, size: float, formula: str, knob: str) -> None:
        entries.append(
            Component(name, round(size), formula, "torch CachingHostAllocator", knob, 0.2)
        )

    trained = states.trained
    if setup.zero_offload_optimizer:
        each = 16 * trained / setup.data_parallel
        add("offloaded optimizer", ranks * pinned(each), f"{ranks} x 16 B x parameters / "
            f"{setup.data_parallel}, rounded up to a power of two",
            "deepspeed.offload_optimizer")  # fmt: skip
    weights = sum(entry.bytes for entry in states.weights)
    if setup.zero_offload_parameters:
        each = 2 * setup.model.parameters / max(1, setup.data_parallel)
        add("offloaded parameters", ranks * pinned(each), f"{ranks} x 2 B x parameters / "
            f"{setup.data_parallel}, rounded up", "deepspeed.offload_param")  # fmt: skip
    if setup.offload_weights:
        add("weights during rollouts", ranks * weights, f"{ranks} x the rank's weights",
            "offload.model")  # fmt: skip
    if setup.offload_optimizer and not setup.zero_offload_optimizer:
        state = sum(entry.bytes for entry in states.optimizer)
        add("optimizer during rollouts", ranks * state, f"{ranks} x the rank's state",
            "offload.optimizer")  # fmt: skip
    if setup.rollout == "colocate" and setup.rollout_engine.sleep_level == 1:
        each = 2 * setup.model.parameters / setup.rollout_engine.tensor_parallel
        add("sleeping engine's weights", ranks * each, f"{ranks} x 2 B x parameters / "
            f"{setup.rollout_engine.tensor_parallel}", "vllm.sleep_level")  # fmt: skip
    if setup.loader_workers:
        add("loader processes", processes * setup.loader_workers * _LOADER,
            f"{processes} x {setup.loader_workers} x 1 GiB", "dataload.num_workers")  # fmt: skip
    return Phase("host", tuple(entries))


def pinned(size: float) -> int:
    """What a pinned allocation really takes: PyTorch rounds up to a power of two."""
    rounded = round(size)
    return 1 << max(0, rounded - 1).bit_length() if rounded else 0
