"""Builds everything the loop uses, in the order in which it has to be built."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import describe
from grpo_doctor_trainer import __version__
from grpo_doctor_trainer.checkpoint import Checkpointer
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.prompts import prompt_loader, steps_in
from grpo_doctor_trainer.data.rows import load_rows
from grpo_doctor_trainer.engine import default_dtype, frozen_engine, make_accelerator, make_engine
from grpo_doctor_trainer.model.load import load_model
from grpo_doctor_trainer.offload import make_offload
from grpo_doctor_trainer.rewards.registry import find_rewards
from grpo_doctor_trainer.rewards.scoring import Rewards
from grpo_doctor_trainer.rollout import make_rollout
from grpo_doctor_trainer.steplog import StepLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.prompts import PromptBatch
    from grpo_doctor_trainer.distributed import Ranks
    from grpo_doctor_trainer.engine import Engine
    from grpo_doctor_trainer.offload import Offload
    from grpo_doctor_trainer.rollout.interface import RolloutEngine

_PACKAGES = ("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets", "vllm")


@dataclass(frozen=True)
class Run:
    """Everything the loop uses."""

    config: TrainerConfig
    ranks: Ranks
    steps: int
    prompts: Iterator[PromptBatch]
    tokenizer: Any
    end_tokens: tuple[int, ...]
    engine: Engine
    reference: Any | None
    rollout: RolloutEngine
    offload: Offload
    rewards: Rewards
    checkpoints: Checkpointer
    log: StepLog

    def close(self) -> None:
        """Ends what runs beside the loop; also after an error."""
        self.rewards.close()
        self.rollout.close()


def set_up(config: TrainerConfig, ranks: Ranks) -> Run:
    """Loads data and model and starts the engines.

    Raises:
        TrainerError: something the user gave cannot be used.
    """
    torch.manual_seed(config.seed)  # the same on every rank: LoRA adapters start equal
    rows = load_rows(config.dataset, config.seed)
    found = find_rewards(config.reward_funcs, {name for row in rows for name in row.columns})
    rewards = Rewards(found, config)  # its processes fork before there are threads
    dtype = default_dtype(config, ranks.device)
    config = dataclasses.replace(
        config,
        torch_dtype=str(dtype).removeprefix("torch."),
        max_steps=steps_in(config, len(rows), ranks.world_size),
        steps_per_generation=config.passes_per_generation,
    )
    accelerator = make_accelerator(config, ranks, dtype)
    loaded = load_model(config, dtype)
    prompts = prompt_loader(rows, loaded.tokenizer, config, rank=ranks.rank, ranks=ranks.world_size)
    engine = make_engine(accelerator, loaded.policy, config, ranks)
    reference = loaded.reference
    if reference is not None:
        reference = frozen_engine(reference, engine, accelerator)
    rollout = make_rollout(config, engine, loaded, ranks)
    torch.manual_seed(config.seed + ranks.rank)  # from here on each rank samples for itself
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
        checkpoints=Checkpointer(config, engine, loaded.tokenizer, ranks),
        log=StepLog(config, config.max_steps, writes=ranks.is_main),
    )
    if ranks.is_main:
        describe(
            "bundled",
            __version__,
            {**dataclasses.asdict(config), "world_size": ranks.world_size},
            _versions(),
        )
        _introduce(run, len(rows))
    return run


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _introduce(run: Run, rows: int) -> None:
    config, ranks = run.config, run.ranks
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


def _short(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
