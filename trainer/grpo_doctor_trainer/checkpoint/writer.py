"""Writes checkpoints under a temporary name and renames them when every rank is done."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.checkpoint.state import Progress, capture, is_replicated, save_progress
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, worst_on_any_rank

FORMAT = 2
PREFIX = "checkpoint-"
STATE_JSON = "trainer_state.json"
OPTIMIZER = "optimizer"
PROGRESS = "resume"
_WEIGHTS = (".safetensors", ".bin")


def rank_file(rank: int) -> str:
    """Name the file of one rank."""
    return f"rank_{rank:05d}.pt"


def step_of(path: Path) -> int | None:
    """Return the step of a `checkpoint-N`, and None for other names."""
    digits = path.name.removeprefix(PREFIX) if path.name.startswith(PREFIX) else ""
    return int(digits) if digits.isdigit() else None


def checkpoints_in(folder: Path) -> list[Path]:
    """List checkpoints, the newest last.

    By time, not by step: an earlier run in the same folder may have come further.
    """
    saved = [path for path in folder.glob(f"{PREFIX}*") if step_of(path) is not None]
    return sorted(saved, key=lambda path: (path.stat().st_mtime_ns, step_of(path) or 0))


class Checkpointer:
    """Writes checkpoints and removes old ones; every rank calls it, at the same step.

    `companion` is the tokenizer, with a vision-language model also its image processor.
    """

    def __init__(self, config: TrainerConfig, engine: Engine, companion: Any, ranks: Ranks) -> None:
        self._config = config
        self._engine = engine
        self._companion = companion
        self._ranks = ranks
        self._folder = Path(config.output_dir)

    def due(self, number: int, total: int) -> bool:
        """Whether a step ends with a checkpoint: each `--save_steps`, and the last."""
        every = self._config.save_steps
        return every > 0 and (number % every == 0 or number == total)

    def save(self, progress: Progress) -> Path:
        """Write a checkpoint; where any rank cannot, all raise, and nothing half-written stays."""
        started = time.perf_counter()
        final = self._folder / f"{PREFIX}{progress.number}"
        unfinished = self._folder / f".{final.name}.unfinished"
        with phase("checkpoint/gather"):
            weights = self._whole_state()
        count = sum(weight.numel() for weight in (weights or {}).values())  # saving empties it
        if self._ranks.is_main:
            shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed in here
        worst_on_any_rank(False, self._ranks)  # no rank writes before that
        problem: Exception | None = None
        try:
            self._write(unfinished, progress, weights)
        except Exception as error:  # noqa: BLE001 - libraries wrap the system's; ranks fail together
            problem = error
        failed = worst_on_any_rank(problem is not None, self._ranks)
        if self._ranks.is_main and not failed:
            try:
                self._finish(unfinished, final, progress)
            except OSError as error:
                problem = error
        if worst_on_any_rank(problem is not None, self._ranks):
            if self._ranks.is_main:
                shutil.rmtree(unfinished, ignore_errors=True)
            reason = problem or "another rank could not; see its message"
            raise CheckpointError(
                f"{final} was not written: {reason}. Free disk space, save less (--save_only_model "
                "true, --save_total_limit 1), or choose another --output_dir; earlier checkpoints "
                "are intact"
            ) from problem
        if self._ranks.is_main:
            report_sizes(final, count, time.perf_counter() - started)
        return final

    def _whole_state(self) -> dict[str, torch.Tensor] | None:
        """Return the whole weights on rank 0; under ZeRO-3 all ranks gather them."""
        if self._engine.zero_stage != 3:
            return self._engine.module.state_dict() if self._ranks.is_main else None
        gathered: dict[str, torch.Tensor] | None = (
            self._engine.model._zero3_consolidated_16bit_state_dict(  # noqa: SLF001 - as accelerate does
                exclude_frozen_parameters=self._config.train_type == "lora"
            )
        )
        return gathered

    def _write(
        self, folder: Path, progress: Progress, weights: dict[str, torch.Tensor] | None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not self._config.save_only_model:
            own = rank_file(self._ranks.rank)
            with phase("checkpoint/optimizer"):
                for name in (OPTIMIZER, PROGRESS):
                    (folder / name).mkdir(exist_ok=True)
                if self._ranks.is_main or not is_replicated(self._engine):
                    torch.save(capture(self._engine), folder / OPTIMIZER / own)
                save_progress(progress, folder / PROGRESS / own)
        if self._ranks.is_main:
            with phase("checkpoint/weights"):
                self._engine.module.save_pretrained(folder, state_dict=weights)
                self._companion.save_pretrained(folder)

    def _finish(self, unfinished: Path, final: Path, progress: Progress) -> None:
        for rank in () if self._config.save_only_model else range(self._ranks.world_size):
            if not (unfinished / PROGRESS / rank_file(rank)).is_file():
                raise OSError(
                    f"rank {rank} wrote to another disk than rank 0: --output_dir has to be a "
                    "folder that all machines share, or use --save_only_model true"
                )
        files = (path for path in unfinished.rglob("*") if path.is_file())
        state = {
            "format": FORMAT,
            "step": progress.number,
            "world_size": self._ranks.world_size,
            "zero_stage": self._engine.zero_stage,
            "save_only_model": self._config.save_only_model,
            "config": dataclasses.asdict(self._config),
            "files": {str(path.relative_to(unfinished)): path.stat().st_size for path in files},
        }
        (unfinished / STATE_JSON).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        if final.exists():  # of an earlier run in the same folder
            shutil.rmtree(final)
        unfinished.rename(final)
        limit = self._config.save_total_limit
        for path in checkpoints_in(self._folder)[:-limit] if limit else ():
            try:
                shutil.rmtree(path)
            except OSError as error:  # the new one is written, and that is what counts
                LOG.warning("%s could not be removed whole: %s", path, error.strerror or error)


def check_writable(config: TrainerConfig) -> None:
    """Write into `--output_dir` before training does, hours later."""
    folder = Path(config.output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CheckpointError(
            f"--output_dir {folder} cannot be written: {error.strerror or error}. Choose another"
        ) from error


def report_sizes(folder: Path, weights: int, seconds: float) -> None:
    """Log a finished checkpoint, and record what it weighs, on rank 0.

    The counters are `checkpoint/weights_bytes`, `checkpoint/optimizer_bytes` (0: left out) and
    `checkpoint/weights`, how many were handed over to be saved.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    saved_bytes = sum(path.stat().st_size for path in files if path.suffix in _WEIGHTS)
    state_bytes = sum(path.stat().st_size for path in files if path.parent.name == OPTIMIZER)
    counter("checkpoint/weights_bytes", float(saved_bytes))
    counter("checkpoint/optimizer_bytes", float(state_bytes))
    counter("checkpoint/weights", float(weights))
    LOG.info(
        "saved %s: %.1f MB of weights, %.1f of optimizer state; %.1f s",
        folder, saved_bytes / 1e6, state_bytes / 1e6, seconds,
    )  # fmt: skip
