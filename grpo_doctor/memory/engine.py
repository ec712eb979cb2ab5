"""What vLLM and SGLang take of a card: awake, asleep, and when they refuse to start."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo_doctor.memory.facts import Calibration, facts, holds_since
from grpo_doctor.memory.ledger import Component
from grpo_doctor.memory.setup import GIB, RolloutEngine, Setup
from grpo_doctor.memory.states import quantized_bytes


@dataclass(frozen=True, slots=True)
class Engine:
    """A rollout engine on one card."""

    weights: Component
    cache: Component
    graphs: Component
    loading: tuple[Component, ...]
    """What more than that is there while the engine starts."""
    asleep: tuple[Component, ...]
    refusals: tuple[str, ...]

    @property
    def awake(self) -> tuple[Component, ...]:
        """Everything during a rollout."""
        return (self.weights, self.cache, self.graphs)


def engine_of(setup: Setup, factors: Calibration, used: int = 0) -> Engine:
    """Return the engine's budget on a card of `setup`, with `used` bytes taken at startup."""
    engine = setup.rollout_engine
    spread = factors.spread_engine
    knob = "vllm.gpu_memory_utilization"
    weights = weight_bytes(setup)
    budget = round(engine.memory_share * setup.card_bytes)
    working = _profile_bytes(setup)
    if engine.name == "sglang":  # what is in use at its start counts as its own; not with vLLM
        budget -= used
    inside = working if engine.name == "vllm" else 0  # SGLang's share is weights and cache alone
    cache: float = engine.cache_bytes or budget - weights - inside
    if of_free_memory(setup):  # nothing is compared with the share: it refuses less
        cache = engine.memory_share * (setup.card_bytes - used - weights)
        budget, inside, working = round(weights + cache), 0, 0
    graphs = _graph_bytes(setup)
    sequence = cache_bytes_per_token(setup) * _row(setup)
    refusals = _refusals(setup, budget, weights + inside, cache, sequence)
    share = f"{engine.memory_share:g} x {setup.card_bytes / GIB:.1f} GiB - weights"
    source, quantized = "vllm/v1/worker/gpu_worker.py", facts()["vllm"]["quantizes_by_layer"]
    awake = (
        Component("engine weights", weights,
                  f"{engine.weight_bits / 8:g} B x parameters / {_divided_by(engine)}",
                  source, "vllm.tensor_parallel_size", spread),
        Component("engine cache and buffers", max(0, round(cache) + working), share, source, knob,
                  spread),
        Component("CUDA graphs", graphs, "outside the budget",
                  facts()["vllm"]["graph_bytes"]["source"] if engine.name == "vllm" else "SGLang",
                  "vllm.enforce_eager", factors.spread_overhead),
    )  # fmt: skip
    whole = 2 * setup.model.parameters / _divided_by(engine) - sum(e.bytes for e in awake)
    loading = Component("engine weights before they are quantized", max(0, round(whole)),
                        "2 B x parameters, less the cache", quantized["source"],
                        "vllm.quantization", spread)  # fmt: skip
    return Engine(
        *awake,
        loading=(loading,) if engine.loads_whole and loading.bytes else (),
        asleep=_asleep(setup, awake, factors),
        refusals=refusals,
    )


def of_free_memory(setup: Setup) -> bool:
    """Whether the share is of the memory that the trainer and the engine's weights leave."""
    fact, engine = facts()["cache_of_free_memory"], setup.rollout_engine
    old = setup.framework == "verl" and not holds_since(setup.version, fact["verl"])
    newer = engine.version is not None and holds_since(engine.version, fact["vllm"])
    return old and engine.name == "vllm" and not newer


def always_sleeps(setup: Setup) -> bool:
    """Whether the engine sleeps between rollouts whatever the launch sets."""
    asked = holds_since(setup.version, facts()["always_asleep"]["verl"])
    return setup.framework == "verl" and not asked and not of_free_memory(setup)


def least_share(setup: Setup) -> float:
    """The smallest share of a card, in steps of 0.05, with which the engine starts."""
    engine = setup.rollout_engine
    sequence = cache_bytes_per_token(setup) * _row(setup)
    working = _profile_bytes(setup) if engine.name == "vllm" else 0
    needed = weight_bytes(setup) + working + sequence
    return math.ceil(20 * needed / setup.card_bytes) / 20


def cache_bytes_per_token(setup: Setup) -> int:
    """Keys and values of one token on one card; heads are copied where there are too few."""
    model = setup.model
    engine = setup.rollout_engine
    divided = min(engine.tensor_parallel, max(1, model.kv_heads))
    width = 2 * model.key_width // divided
    if model.latent:
        width = model.latent.cache_rank + model.latent.rotary_dim
    return engine.cache_element_bytes * width * model.layers // engine.pipeline_parallel


_FP8 = 8


def weight_bytes(setup: Setup) -> int:
    """The engine's own copy of the weights on one card; bitsandbytes quantizes the trainer's."""
    as_loaded = setup.base_bits >= 16 or setup.tables_in_float32
    each = 2.0 if as_loaded else quantized_bytes(setup)
    if setup.rollout_engine.weight_bits == _FP8:  # and a float32 scale for 128 x 128
        each = 1 + 4 / 128**2
    tables = setup.model.table_parameters  # in 16 bits always
    experts = setup.model.expert_parameters
    shared = experts / setup.rollout_engine.data_parallel  # vLLM's FusedMoEParallelConfig
    whole = (setup.model.parameters - tables - experts + shared) * each + 2 * tables
    return round(whole / _divided_by(setup.rollout_engine))


def _divided_by(engine: RolloutEngine) -> int:
    return engine.tensor_parallel * engine.pipeline_parallel


def _row(setup: Setup) -> int:
    row = setup.prompt_tokens + max(1, setup.completion_tokens)
    return setup.rollout_engine.max_model_len or row


def _profile_bytes(setup: Setup) -> int:
    """Return bytes of the largest forward pass tried at startup: logits and one layer's MLP."""
    model, engine = setup.model, setup.rollout_engine
    logits = 4 * engine.max_sequences * model.vocabulary
    tokens = max(engine.max_batched_tokens, setup.image_tokens)
    layer = tokens * (4 * model.intermediate + 8 * model.hidden)
    return round(logits + layer / engine.tensor_parallel)


def _graph_bytes(setup: Setup) -> int:
    engine = setup.rollout_engine
    inside = facts()["vllm"]["graphs_inside_share"]["since"]
    if engine.eager or (engine.name == "vllm" and holds_since(engine.version, inside)):
        return 0
    return int(facts()[engine.name]["graph_bytes"]["per_layer"]) * setup.model.layers


def _asleep(
    setup: Setup, awake: tuple[Component, ...], factors: Calibration
) -> tuple[Component, ...]:
    if setup.rollout_engine.sleep_level == 0:
        return awake[1:] if of_free_memory(setup) else awake
    fact = facts()["vllm"]["asleep_bytes"]
    size = fact["bytes"] + (setup.rollout_engine.tensor_parallel > 1) * fact["tensor_parallel"]
    return (
        Component("engine asleep", int(size), "what sleep leaves, NCCL too", fact["source"],
                  "vllm.sleep_level", factors.spread_overhead),
        awake[2],
    )  # fmt: skip


def _refusals(
    setup: Setup, budget: int, needed: int, cache: float, sequence: int
) -> tuple[str, ...]:
    engine = setup.rollout_engine
    if engine.cache_bytes is None and needed > budget:
        room = f"{engine.name} may use {budget / GIB:.1f} GiB"
        return (f"{room}, but its weights and buffers alone need {needed / GIB:.1f} GiB",)
    if cache < sequence:
        room = f"{engine.name}'s cache of {max(0.0, cache) / GIB:.1f} GiB has no room"
        row = f"{_row(setup)} tokens ({sequence / GIB:.1f} GiB)"
        return (f"{room} for one sequence of {row}",)
    return ()
