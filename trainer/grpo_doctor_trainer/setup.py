"""Builds everything the loop uses, in the order in which it has to be built."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import describe
from grpo_doctor_trainer import __version__
from grpo_doctor_trainer.checkpoint import Checkpointer, Progress, find_checkpoint
from grpo_doctor_trainer.config import EMBEDDED_VL
from grpo_doctor_trainer.data.checking import usable_rows
from grpo_doctor_trainer.data.order import steps_in
from grpo_doctor_trainer.data.prompts import prompt_loader
from grpo_doctor_trainer.data.rows import load_rows
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.logs.steplog import StepLog
from grpo_doctor_trainer.logs.trackers import make_trackers
from grpo_doctor_trainer.memory.offload import make_offload
from grpo_doctor_trainer.model.load import load_model
from grpo_doctor_trainer.ranks.accelerator import default_dtype, make_accelerator
from grpo_doctor_trainer.ranks.engine import frozen_engine, make_engine
from grpo_doctor_trainer.rewards.registry import find_rewards
from grpo_doctor_trainer.rewards.scoring import Rewards
from grpo_doctor_trainer.rollout import make_rollout

if TYPE_CHECKING:
    from collections.abc import Generator

    from grpo_doctor_trainer.checkpoint import Resume
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.memory.offload import Offload
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.rollout.interface import RolloutEngine

_PACKAGES = ("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets", "vllm")


@dataclass(frozen=True)
class Run:
    """Everything the loop uses."""

    config: TrainerConfig
    ranks: Ranks
    steps: int
    prompts: Generator[PromptBatch, None, None]
    tokenizer: Any
    end_tokens: tuple[int, ...]
    engine: Engine
    reference: Any | None
    rollout: RolloutEngine
    offload: Offload
    rewards: Rewards
    checkpoints: Checkpointer
    log: StepLog
    start: Progress

    def close(self) -> None:
        """Ends what runs beside the loop; also after an error."""
        self.prompts.close()  # or its workers live until the last frame that saw them is gone
        self.rewards.close()
        self.rollout.close()
        self.log.close()


def set_up(config: TrainerConfig, ranks: Ranks) -> Run:
    """Loads data and model and starts the engines.

    Raises:
        TrainerError: something the user gave cannot be used.
    """
    with ExitStack() as undo:  # what is started here ends with an error that comes after it
        run = _build(config, ranks, undo)
        undo.pop_all()
    return run


def _build(config: TrainerConfig, ranks: Ranks, undo: ExitStack) -> Run:
    resume = find_checkpoint(config, ranks)
    torch.manual_seed(config.seed)  # the same on every rank: LoRA adapters start equal
    rows = load_rows(config.dataset, config.seed, with_images=config.model == EMBEDDED_VL)
    rows = usable_rows(rows, config, ranks)
    found = find_rewards(config.reward_funcs, {name for row in rows for name in row.columns})
    rewards = Rewards(found, config)  # its processes fork before there are threads
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
    done = resume.rollouts(config) if resume else 0
    prompts = prompt_loader(
        rows, loaded, config, rank=ranks.rank, ranks=ranks.world_size, skip=done
    )
    undo.callback(prompts.close)
    engine = make_engine(accelerator, loaded.policy, config, ranks)
    reference = loaded.reference
    if reference is not None:
        reference = frozen_engine(reference, engine, accelerator)
    rollout = make_rollout(config, engine, loaded, ranks)
    undo.callback(rollout.close)
    torch.manual_seed(config.seed + ranks.rank)  # from here on each rank samples for itself
    start = resume.load(engine, loaded.vision, ranks) if resume else Progress()
    trackers = make_trackers(config) if ranks.is_main else None
    run = Run(
        config=config,
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
        checkpoints=Checkpointer(config, engine, loaded.saved_with_weights, ranks),
        log=StepLog(
            config, config.max_steps, writes=ranks.is_main, trackers=trackers, saved=start.log
        ),
        start=start,
    )
    if ranks.is_main:
        _introduce(run, len(rows), resume)
    return run


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _introduce(run: Run, rows: int, resume: Resume | None) -> None:
    config, ranks = run.config, run.ranks
    options = {**dataclasses.asdict(config), "world_size": ranks.world_size}
    describe("bundled", __version__, options, _versions())
    weights = [getattr(w, "ds_numel", w.numel()) for w in run.engine.module.parameters()]
    trained = [
        getattr(w, "ds_numel", w.numel()) for w in run.engine.module.parameters() if w.requires_grad
    ]
    where = f"{ranks.device.type.upper()} rank{'s' * (ranks.world_size > 1)}"
    prompts = ranks.world_size * config.completions_per_rank // config.num_generations
    LOG.info("grpo-doctor trainer %s", __version__)
    LOG.info(
        "  model    %s, %s weights, %s trained (%s), %s",
        config.model or "embedded tiny Qwen2 with random weights",
        _short(sum(weights)),
        _short(sum(trained)),
        config.train_type,
        config.torch_dtype,
    )
    LOG.info(
        "  data     %s: %d prompts; rewards %s",
        ", ".join(config.dataset) or "generated arithmetic",
        rows,
        " + ".join(
            f"{weight:g} {name}"
            for weight, name in zip(config.weights, run.rewards.names, strict=True)
        ),
    )
    LOG.info(
        "  rollout  %d prompts x %d completions of up to %d tokens, for %d optimizer step%s",
        prompts,
        config.num_generations,
        config.max_completion_length,
        config.steps_per_rollout,
        "s" * (config.steps_per_rollout > 1),
    )
    LOG.info(
        "  ranks    %d %s, %d thread%s each, %s",
        ranks.world_size,
        where,
        ranks.threads,
        "s" * (ranks.threads > 1),
        run.engine.describe(),
    )
    if resume is not None:
        LOG.info("  resumed  %s: %d of %d steps done", resume.folder, resume.step, run.steps)


def _short(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
