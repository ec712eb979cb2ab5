"""From a launch to setups; with `launched_trainer` all that knows here what a launch is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from grpo_doctor.launches import Launch
from grpo_doctor.memory.cards import Machine
from grpo_doctor.memory.engine import always_sleeps, of_free_memory
from grpo_doctor.memory.facts import facts, holds_since, latest
from grpo_doctor.memory.launched_critic import with_critic
from grpo_doctor.memory.launched_trainer import launched_shape, model_name, trainer_of
from grpo_doctor.memory.models import ModelShape, quantized_bits
from grpo_doctor.memory.setup import Rollout, RolloutEngine, Setup


@dataclass(frozen=True, slots=True)
class Job:
    """A launch as setups: of the trainer, and of the server on cards of its own."""

    trainer: Setup | None
    server: Setup | None
    assumptions: tuple[str, ...]


def setup_of(launch: Launch, machine: Machine, shape: ModelShape | None = None) -> Job:
    """What the launch's memory depends on; `shape` where the model is known otherwise than by name.

    Raises:
        UsageError: the launch names no model.
        UnknownModelError: nothing is known of the model.
    """
    assumptions: list[str] = []
    if launch.role == "rollout server":
        return Job(None, _server(launch, machine, assumptions), tuple(assumptions))
    setup = _rollout(trainer_of(launch, machine, assumptions, shape), launch, machine)
    if of_free_memory(setup) and not machine.vllm_version:
        brought = f"vLLM 0.6.3, which verl {launch.version} comes with"
        assumptions.append(f"{brought}; override with --version vllm=X")
    setup = with_critic(setup, launch, machine, assumptions)
    server = None
    if launch.server is not None:
        server = replace(
            _server(launch.server, machine, assumptions, setup.model),
            completion_tokens=setup.completion_tokens,
            prompt_tokens=setup.prompt_tokens,
        )
    elif _own_card(launch, setup, machine) and setup.rollout == "server":
        engine = setup.rollout_engine
        server = replace(setup, ranks=engine.tensor_parallel, ranks_per_node=None)
    return Job(setup, server, (*assumptions, *_servers_here(launch)))


_HERE = re.compile(r"https?://(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0)\b[^\s'\"]*")


def _servers_here(launch: Launch) -> Iterator[str]:
    """Sentences on servers of this host, whose GPUs no launch says: a retriever, a reward model."""
    for name, value in launch.options.items():
        if (url := _HERE.search(str(value))) is not None:
            yield f"the server at {url[0]} ({name}) takes no memory of these GPUs"


def _rollout(setup: Setup, launch: Launch, machine: Machine) -> Setup:
    value = launch.value
    rollout: Rollout = "colocate"
    if launch.framework == "openrlhf":
        rollout = "colocate" if value("vllm.mode") == "colocate" else "server"
    elif launch.framework != "verl":
        if not value("vllm.use"):
            rollout = "generate"
        elif value("vllm.mode") == "server" or launch.server or _own_card(launch, setup, machine):
            rollout = "server"
    steps = facts()["sync_gathers_everything"].get(launch.framework)
    gathers_all = steps is not None and latest(steps, launch.version)
    engine = _rollout_engine(launch, machine.vllm_version)
    if launch.framework == "ms-swift" and not engine.max_model_len:  # vLLM takes the model's own
        engine = replace(engine, max_model_len=setup.model.max_positions)
    rows = int(value("rollout.steps_per_generation") or value("train.grad_accumulation") or 1)
    sampled = int(value("rollout.completions") or 0) // setup.ranks
    setup = replace(setup, rollout=rollout, rollout_engine=engine)
    if always_sleeps(setup):
        setup = replace(setup, rollout_engine=replace(engine, sleep_level=1))
    return replace(
        setup,
        completions_per_rank=sampled or setup.micro_batch * rows,
        offload_weights=bool(value("offload.model")),
        offload_optimizer=bool(value("offload.optimizer")),
        gather_for_generation=bool(value("sync.gather_for_generation", True)),
        sync_groups=None if gathers_all else value("sync.move_model_batches"),
        sync_layered=bool(value("sync.layered")),
    )


def _own_card(launch: Launch, setup: Setup, machine: Machine) -> bool:
    cards = launch.visible_gpus or machine.cards_per_node
    return launch.engine_has_own_card(setup.ranks_per_node or 1, cards)


def _rollout_engine(launch: Launch, version: str | None) -> RolloutEngine:
    value = launch.value
    is_sglang = "sglang" in (launch.framework, value("rollout.engine"))
    name: Literal["vllm", "sglang"] = "sglang" if is_sglang else "vllm"
    shares_experts = launch.framework not in ("openrlhf", "sglang")  # their copies are apart
    share = value("vllm.gpu_memory_utilization")
    if share is None:
        share = latest(facts()[name]["default_share"], version)
    own = launch.version if launch.framework in ("vllm", "sglang") else version
    fp8 = str(value("vllm.quantization")).lower() == "fp8"
    one_by_one = name == "vllm" and holds_since(own, facts()["vllm"]["quantizes_by_layer"]["since"])
    return RolloutEngine(
        name=name,
        version=own,
        weight_bits=8 if fp8 else 16,
        loads_whole=fp8 and launch.framework != "verl" and not one_by_one,
        memory_share=float(share),
        cache_bytes=value("vllm.kv_cache_memory_bytes"),
        tensor_parallel=int(value("vllm.tensor_parallel_size") or 1),
        pipeline_parallel=int(value("vllm.pipeline_parallel_size") or 1),
        data_parallel=int(value("vllm.data_parallel_size") or 1) if shares_experts else 1,
        max_model_len=value("vllm.max_model_len"),
        max_sequences=int(value("vllm.max_num_seqs") or 256),
        max_batched_tokens=int(value("vllm.max_num_batched_tokens") or 8192),
        cache_element_bytes=1 if "fp8" in str(value("vllm.kv_cache_dtype")) else 2,
        eager=bool(value("vllm.enforce_eager")),
        sleep_level=int(value("vllm.sleep_level") or 0),
    )


def _server(
    launch: Launch, machine: Machine, assumptions: list[str], model: ModelShape | None = None
) -> Setup:
    engine = _rollout_engine(launch, machine.vllm_version)
    if model is None or model_name(launch):
        model = launched_shape(launch)
    if not launch.sets("vllm.gpu_memory_utilization"):
        newest = "" if launch.version else " in the newest version"
        share = f"{engine.memory_share:g} of each card"
        assumptions.append(f"the server takes {share}, its default{newest}")
    return Setup(
        model,
        machine.server_card_bytes or machine.card_bytes,
        ranks=engine.tensor_parallel,
        framework=launch.framework,
        version=launch.version,
        base_bits=quantized_bits(model_name(launch)) or model.bits,
        prompt_tokens=engine.max_model_len or model.max_positions or 4096,
        rollout="server",
        rollout_engine=engine,
        host_bytes=machine.host_bytes,
    )
