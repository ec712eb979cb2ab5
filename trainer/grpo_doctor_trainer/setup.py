"""Builds everything the loop uses, in the order in which it has to be built."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch

from grpo_doctor_trainer.checkpoint import Checkpointer, Progress, check_writable, find_checkpoint
from grpo_doctor_trainer.config import EMBEDDED_VL
from grpo_doctor_trainer.data.prompts import make_evaluation, prompt_loader, steps_in
from grpo_doctor_trainer.data.rows import check_images, load_rows
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.logs.introduction import introduce
from grpo_doctor_trainer.logs.steplog import StepLog, make_trackers
from grpo_doctor_trainer.memory import make_offload
from grpo_doctor_trainer.model.load import load_model
from grpo_doctor_trainer.model.sharing import reason_not_to_share
from grpo_doctor_trainer.ranks.deepspeed import default_dtype, make_accelerator
from grpo_doctor_trainer.ranks.engine import frozen_engine, make_engine
from grpo_doctor_trainer.rewards.functions import find_rewards
from grpo_doctor_trainer.rewards.scoring import Rewards
from grpo_doctor_trainer.run import Run

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.rollout import RolloutEngine


def set_up(config: TrainerConfig, ranks: Ranks) -> Run:
    """Load data and model and starts the engines."""
    with ExitStack() as undo:  # what is started here ends with an error that comes after it
        run = _build(config, ranks, undo)
        undo.pop_all()
    return run


def _build(config: TrainerConfig, ranks: Ranks, undo: ExitStack) -> Run:
    if ranks.is_main and config.save_steps:
        check_writable(config)
    resume = find_checkpoint(config, ranks)
    torch.manual_seed(config.seed)  # the same on every rank: LoRA adapters start equal
    rows = load_rows(config.dataset, config.seed, with_images=config.model == EMBEDDED_VL)
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
    accelerator = make_accelerator(config, ranks, dtype)
    loaded = load_model(config, dtype, trained=resume.folder if resume else None)
    rollouts_done = resume.rollouts(config) if resume else 0
    prompts = prompt_loader(rows, loaded, config, ranks, skip=rollouts_done)
    undo.callback(prompts.close)
    engine = make_engine(accelerator, loaded.policy, config, ranks)
    reference = loaded.reference
    if reference is not None:
        reference = frozen_engine(reference, engine, accelerator)
    shared = with_sharing(config, engine, loaded, ranks)
    rollout = _make_rollout(shared, engine, loaded, ranks)
    undo.callback(rollout.close)
    torch.manual_seed(config.seed + ranks.rank)  # from here on each rank samples for itself
    start = resume.load(engine, loaded.vision, ranks) if resume else Progress()
    trackers = make_trackers(config, start.number) if ranks.is_main else None
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
        offload=make_offload(config, engine, reference, rollout),
        rewards=rewards,
        evaluation=make_evaluation(rows, loaded, config, ranks),
        checkpoints=Checkpointer(config, engine, loaded.saved_with_weights, ranks),
        log=StepLog(
            config, config.max_steps, writes=ranks.is_main, trackers=trackers, saved=start.log
        ),
        start=start,
    )
    if ranks.is_main:
        introduce(run, len(rows), resume)
    return run


def with_sharing(
    config: TrainerConfig, engine: Engine, loaded: LoadedModel, ranks: Ranks
) -> TrainerConfig:
    """Leave `--share_prompts` as it is, or switches it off, with a sentence."""
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
