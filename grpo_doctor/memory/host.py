"""Memory of a host: offloaded state in pinned buffers, sleeping weights, loaders."""

from __future__ import annotations

from grpo_doctor.memory.facts import Calibration
from grpo_doctor.memory.ledger import Component, Phase, Pool
from grpo_doctor.memory.setup import GIB, Setup
from grpo_doctor.memory.states import States, states_of

_PROCESS = 8 * GIB
"""Of one rank: CUDA's and PyTorch's libraries, the tokenizer, Ray or torchrun's own.
30 GB a worker of verl with offload (verl issue 5206), 11.2 GB without (224)."""
_LOADER = GIB


def host_pool(setup: Setup, states: States, factors: Calibration) -> Pool | None:
    """What one host needs; None where the size of its memory is unknown."""
    if setup.host_bytes is None:
        return None
    ranks = setup.ranks_per_node or setup.ranks
    processes = 1 if setup.engine == "device_map" else ranks
    optimizer = setup.zero_offload_optimizer
    divided, tensor = max(1, setup.data_parallel), setup.rollout_engine.tensor_parallel
    asleep = setup.rollout == "colocate" and setup.rollout_engine.sleep_level == 1
    parameters = setup.model.parameters
    weights = sum(entry.bytes for entry in states.weights)
    state = sum(entry.bytes for entry in states.optimizer)
    rows = (
        ("offloaded optimizer", optimizer, pinned(16 * states.trained / divided),
         f"16 B x parameters / {divided}, rounded up to a power of two",
         "deepspeed.offload_optimizer"),
        ("offloaded parameters", setup.zero_offload_parameters, pinned(2 * parameters / divided),
         f"2 B x parameters / {divided}, rounded up", "deepspeed.offload_param"),
        ("weights during rollouts", setup.offload_weights, weights, "the rank's weights",
         "offload.model"),
        ("optimizer during rollouts", setup.offload_optimizer and not optimizer, state,
         "the rank's state", "offload.optimizer"),
        ("sleeping engine's weights", asleep, 2 * parameters / tensor,
         f"2 B x parameters / {tensor}", "vllm.sleep_level"),
        ("critic's state", setup.critic, _of_critic(setup.critic, factors), "what it moves", None),
    )  # fmt: skip
    allocator = "torch CachingHostAllocator"
    entries = [
        Component("processes", processes * _PROCESS, f"{processes} x 8 GiB",
                  "verl issue 224: 11.2 GB a worker", None, factors.spread_overhead),
        *(Component(name, round(ranks * each), f"{ranks} x {formula}", allocator, knob, 0.2)
          for name, held, each, formula, knob in rows if held),
    ]  # fmt: skip
    if setup.loader_workers:
        formula = f"{processes} x {setup.loader_workers} x 1 GiB"
        size = processes * setup.loader_workers * _LOADER
        entries.append(
            Component("loader processes", size, formula, allocator, "dataload.num_workers", 0.2)
        )
    return Pool("host", setup.host_bytes, (Phase("host", tuple(entries)),), "each host")


def _of_critic(critic: Setup | None, factors: Calibration) -> int:
    """What a rank moves to the host while the critic is idle, or keeps there."""
    if critic is None:
        return 0
    states = states_of(critic, factors)
    away = (states.weights if critic.offload_weights else ()) + (
        states.optimizer if critic.offload_optimizer else ()
    )
    kept = 16 * states.trained / max(1, critic.data_parallel)
    return sum(e.bytes for e in away) + pinned(kept) * critic.zero_offload_optimizer


def pinned(size: float) -> int:
    """What a pinned allocation really takes: PyTorch rounds up to a power of two."""
    rounded = round(size)
    return 1 << max(0, rounded - 1).bit_length() if rounded else 0
