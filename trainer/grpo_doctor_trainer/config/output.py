"""Distribution over ranks, checkpoints, logs."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import option


@dataclass(frozen=True)
class OutputOptions:
    """Distribution over ranks, checkpoints, logs."""

    # -- distribution
    deepspeed: str | None = option(
        None,
        "distribution",
        "zero0, zero1, zero2, zero3, zero2_offload, zero3_offload, or a DeepSpeed .json file; "
        "none: plain DDP",
        embedded="zero2",
    )
    ddp_timeout: int = option(1800, "distribution", "seconds until a stuck collective is an error")

    # -- output
    output_dir: str = option(
        "grpo-doctor-out/train", "output", "folder of checkpoints and completions"
    )
    save_steps: int = option(
        500, "output", "optimizer steps between checkpoints; 0: none", embedded=40
    )
    save_total_limit: int | None = option(
        None, "output", "checkpoints to keep; none: all", embedded=2
    )
    save_only_model: bool = option(False, "output", "leave the optimizer state out of checkpoints")
    logging_steps: int = option(5, "output", "optimizer steps between log lines", embedded=1)
    log_completions: bool = option(
        False, "output", "print a sample and write every completion to completions.jsonl"
    )
    resume_from_checkpoint: str | None = option(
        None,
        "output",
        "a checkpoint-N folder to go on from, or latest: the newest in --output_dir, if any",
    )
    report_to: list[str] = option(
        [], "output", "experiment trackers: tensorboard, wandb, swanlab; none: none"
    )
    run_name: str | None = option(None, "output", "name of the run in trackers")
    logging_dir: str | None = option(
        None, "output", "folder of TensorBoard's files; none: runs in --output_dir"
    )
