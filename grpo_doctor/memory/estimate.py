"""Estimate the memory of a setup: what is on a card in each phase of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.memory.activations import logprob_activations, train_activations, vision_mask_bytes
from grpo_doctor.memory.engine import Engine, cache_bytes_per_token, engine_of, of_free_memory
from grpo_doctor.memory.facts import Calibration, calibration, facts, holds_since
from grpo_doctor.memory.host import host_pool
from grpo_doctor.memory.ledger import Component, Ledger, Phase, Pool, Row, entries
from grpo_doctor.memory.overhead import buffers, context, gathered_bytes, whole_model_bytes
from grpo_doctor.memory.setup import GIB, RolloutEngine, Setup
from grpo_doctor.memory.states import States, states_of


def ledger_of(
    setup: Setup, factors: Calibration | None = None, server: Setup | None = None
) -> Ledger:
    """Return the memory estimate of a job, and of its rollout server on cards of its own."""
    factors = factors or calibration()
    states = states_of(setup, factors)
    pools = [_train_pool(setup, states, factors)]
    if setup.critic is not None and setup.critic_apart:
        phase = _critic_phase(setup.critic, factors, ())
        pools.append(Pool("critic", setup.card_bytes, (phase,), "every card of the critic"))
    if server is not None:
        pools.append(server_pool(server, factors))
    return Ledger(tuple(pools), host_pool(setup, states, factors))


def server_pool(server: Setup, factors: Calibration) -> Pool:
    """Return what a rollout server takes of each of its cards."""
    engine = engine_of(server, factors)
    awake = (*context(server, factors), *engine.awake)
    start = [Phase("init", (*awake, *engine.loading))] if engine.loading else []
    phases = (*start, Phase("rollout", awake))
    return Pool("rollout", server.card_bytes, phases, "every card of the server", engine.refusals)


def _train_pool(setup: Setup, states: States, factors: Calibration) -> Pool:
    fixed = context(setup, factors)
    alone = (*fixed, *_models_beside(setup, factors))
    critic = None if setup.critic_apart else setup.critic
    kept: tuple[Component, ...] = ()
    if critic:  # what it leaves on the GPU for other phases
        kept = (*_process(critic, factors), *_held_idle(critic, states_of(critic, factors)))
    resident = (*alone, *_of_critic(kept))
    at_start = (*resident, *_weights_at_start(setup, states))
    used = sum(entry.bytes for entry in at_start)
    engine = engine_of(setup, factors, used) if setup.rollout == "colocate" else None
    asleep = engine.asleep if engine else ()
    working = buffers(setup, factors)
    training = (*resident, *asleep, *states.all, *working)
    saved = entries(factors.spread_overhead, (
        "gathered for saving", gathered_bytes(setup), "layer by layer",
        "stage3_gather_16bit_weights_on_model_save", "checkpoint.save_only_model",
    ))  # fmt: skip
    phases = [
        Phase("train", (*training, *train_activations(setup, factors))),
        Phase("optimizer", (*resident, *asleep, *states.at_step, *working, *states.scratch)),
        Phase("checkpoint", (*resident, *asleep, *states.all, *saved)),
    ]
    if setup.is_grpo:
        passes = (*resident, *asleep, *states.weights, *states.between_steps, *working)
        phases.append(Phase("logprob", (*passes, *logprob_activations(setup, factors))))
        phases.extend(_rollout_phases(setup, states, engine, resident, factors))
    if critic:
        idle = (*alone, *asleep, *_held_idle(setup, states))
        phases.append(_critic_phase(critic, factors, idle))
    return Pool(
        "train and rollout" if engine else "train",
        setup.card_bytes,
        tuple(phases),
        "the first pipeline stage"
        if setup.pipeline_parallel > 1
        else "the last card"
        if setup.engine == "device_map"
        else "every rank",
        (*(engine.refusals if engine else ()), *_start_refusals(setup, states, fixed)),
    )


def _rollout_phases(
    setup: Setup,
    states: States,
    engine: Engine | None,
    resident: Sequence[Component],
    factors: Calibration,
) -> list[Phase]:
    trainer = (*resident, *states.weights, *states.between_steps)
    beside = _held_idle(setup, states)
    if setup.rollout == "server":
        return [Phase("sync", (*trainer, *_gathered_for_sync(setup, factors)))]
    if engine is None:
        return [Phase("rollout", (*trainer, *_generation(setup, factors)))]
    sync = [*resident, *states.weights, engine.weights, engine.graphs]
    since = facts()["sync_wakes_weights_alone"].get(setup.framework, "0")
    alone = of_free_memory(setup) or holds_since(setup.version, since)
    if setup.rollout_engine.sleep_level == 0 or not alone:
        sync.append(engine.cache)
    kept = () if setup.offload_optimizer else states.between_steps
    syncs = [Phase("sync", (*sync, *kept, *_gathered_for_sync(setup, factors)))]
    if summoned := _summoned(setup, factors):
        held = (*resident, *states.weights, *kept, *engine.asleep)
        syncs.append(Phase("sync", (*held, *summoned)))
    return [
        Phase(
            "init", (*resident, *_weights_at_start(setup, states), *engine.awake, *engine.loading)
        ),
        Phase("rollout", (*resident, *beside, *engine.awake)),
        max(syncs, key=lambda phase: phase.bytes),
    ]


def _held_idle(setup: Setup, states: States) -> tuple[Component, ...]:
    """What of a model stays on the GPU while another one runs."""
    weights = () if setup.offload_weights else states.weights
    return (*weights, *(() if setup.offload_optimizer else states.between_steps))


def _critic_phase(critic: Setup, factors: Calibration, others: Sequence[Component]) -> Phase:
    """The worst moment of the critic's own, next to `others`: a forward and backward pass, its
    optimizer's step, or the values of completions."""
    states = states_of(critic, factors)
    idle = () if critic.offload_optimizer else states.between_steps
    always = (*others, *_process(critic, factors), *buffers(critic, factors))
    moments = (
        (*states.all, *train_activations(critic, factors)),
        (*states.at_step, *states.scratch),
        (*states.weights, *idle, *logprob_activations(critic, factors)),
    )
    phases = [Phase("critic", (*always, *_of_critic(moment))) for moment in moments]
    return max(phases, key=lambda phase: phase.bytes)


def _process(critic: Setup, factors: Calibration) -> tuple[Component, ...]:
    """What a process of its own takes, which OpenRLHF's critic has."""
    return context(critic, factors) if critic.framework == "openrlhf" else ()


def _of_critic(entries: Sequence[Component]) -> tuple[Component, ...]:
    return tuple(replace(entry, name=f"critic's {entry.name}") for entry in entries)


def _weights_at_start(setup: Setup, states: States) -> tuple[Component, ...]:
    """The trainer's weights while the engine starts, unless they were moved to the host before."""
    since = facts()["engine_starts_alone"].get(setup.framework)
    moved = setup.offload_weights and since is not None and holds_since(setup.version, since)
    return () if moved else tuple(states.weights)


def _gathered_for_sync(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """Whole weights on their way into the engine, for ranks that hold only a part of them."""
    if setup.zero_stage != 3 and setup.engine != "fsdp":
        return ()
    groups = setup.sync_groups or 1
    if setup.framework in ("trl", "bundled", "verl", "openrlhf"):
        size, formula = gathered_bytes(setup), "parameter by parameter"
    else:
        size = whole_model_bytes(setup) // groups
        formula = f"the model in 16 bits / {groups} groups"
    source = "swift/trainers/rlhf_trainer/rollout_mixin.py"
    row = ("gathered for the engine", size, formula, source, "sync.move_model_batches")
    return entries(factors.spread_states, row)


def _summoned(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """Whole weights while verl looks for its adapters, before the engine has any of its own."""
    divided = setup.engine == "fsdp" and setup.shards > 1 and setup.flat_parameters
    if setup.framework != "verl" or setup.method != "lora" or not divided or setup.sync_layered:
        return ()
    size = setup.trained_dtype_bytes * setup.model.parameters
    formula = f"{setup.model.parameters / 1e9:.2f}e9 x {setup.trained_dtype_bytes} B"
    source = "verl fsdp_utils.py collect_lora_params: FSDP.summon_full_params"
    row = ("gathered to find adapters", size, formula, source, "sync.layered")
    return entries(factors.spread_states, row)


def _generation(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """Rollouts by the model's own generate."""
    rows = setup.completions_per_rank or setup.micro_batch
    cache = rows * (setup.prompt_tokens + setup.completion_tokens)
    cache *= cache_bytes_per_token(replace(setup, rollout_engine=RolloutEngine()))
    held: list[Row] = [
        ("generation cache", 1.5 * cache, f"{rows} sequences, copied to grow",
         "transformers DynamicCache", "rollout.max_completion_length"),
    ]  # fmt: skip
    if setup.model.vision and setup.old_vision_tower:
        source = facts()["old_vision_tower"]["source"]
        patches = rows * setup.image_tokens
        logits = 2 * rows * setup.prompt_tokens * setup.model.vocabulary
        held += [
            ("logits of whole prompts", logits,
             f"{rows} x {setup.prompt_tokens} tokens x {setup.model.vocabulary} x 2 B", source,
             "data.max_length"),
            ("mask of the vision tower", vision_mask_bytes(setup, patches),
             f"3 B x ({patches} image tokens x 4 patches)^2", source, "data.max_pixels"),
        ]  # fmt: skip
    whole: tuple[Component, ...] = ()
    if setup.zero_stage == 3 and setup.gather_for_generation:
        row = ("gathered for generation", whole_model_bytes(setup), "the model in 16 bits",
               "trl ds3_gather_for_generation", "sync.gather_for_generation")  # fmt: skip
        whole = entries(factors.spread_states, row)
    return (*entries(factors.spread_activations, *held), *whole)


def _models_beside(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """A reference model, teachers and reward models in the same processes."""
    divided = setup.shards if setup.zero_stage == 3 or setup.engine == "fsdp" else 1
    divided *= setup.tensor_parallel * setup.pipeline_parallel
    reference = (setup.model,) if setup.reference and setup.method == "full" else ()
    return entries(factors.spread_states, *(
        ("reference model" if model is setup.model else model.name, 2 * model.parameters // divided,
         f"{model.parameters / 1e9:.2f}e9 x 2 B / {divided}", "config.json", "train.beta")
        for model in (*reference, *setup.beside)
    ))  # fmt: skip


def _start_refusals(setup: Setup, states: States, fixed: Sequence[Component]) -> tuple[str, ...]:
    """Return why vLLM would not start: too little is free next to the trainer's weights."""
    engine = setup.rollout_engine
    asks = setup.rollout == "colocate" and engine.name == "vllm" and not engine.cache_bytes
    if not asks or of_free_memory(setup):
        return ()
    free = setup.card_bytes - sum(entry.bytes for entry in (*fixed[:1], *states.weights))
    budget = round(engine.memory_share * setup.card_bytes)
    if setup.offload_weights or budget <= free:
        return ()
    needs = f"vLLM needs {budget / GIB:.1f} GiB free at startup"
    left = f"only {max(0, free) / GIB:.1f} GiB is left after loading the trainer's weights"
    return (f"{needs}, but {left}",)
