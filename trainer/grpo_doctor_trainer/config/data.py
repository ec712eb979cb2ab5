"""Datasets, prompts, images and the workers that prepare them."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import option


@dataclass(frozen=True)
class DataOptions:
    """Datasets, prompts, images and the workers that prepare them."""

    dataset: list[str] = option(
        [],
        "data",
        "local .jsonl/.json/.parquet files or Hugging Face names, each with an optional #N to "
        "sample N rows; none: generated arithmetic",
    )
    max_length: int = option(2048, "data", "longest prompt in tokens; longer ones lose their start")
    max_pixels: int | None = option(
        None,
        "data",
        "vision-language: largest area of an image in pixels, larger ones are scaled down; none: "
        "the variable MAX_PIXELS, else the model's own limit",
    )
    on_bad_image: str = option(
        "stop",
        "data",
        "what to do with rows whose image cannot be read: stop before training, or skip them, "
        "named in the log; URLs always stop",
        choices=("stop", "skip"),
    )
    dataloader_num_workers: int = option(1, "data", "processes that tokenize ahead; 0: none")
    dataloader_prefetch_factor: int = option(2, "data", "batches each worker prepares ahead")
