"""Checkpoints that are there whole or not at all.

`checkpoint-N/` holds the weights (safetensors, in the training dtype, for `from_pretrained`), the
tokenizer, `trainer_state.json`, and unless `--save_only_model` one `optimizer/rank_NNNNN.pt` per
rank. All of it is written under a temporary name and renamed when every rank is done.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.distributed import worst_on_any_rank
from grpo_doctor_trainer.errors import CheckpointError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.distributed import Ranks
    from grpo_doctor_trainer.engine import Engine

_PREFIX = "checkpoint-"
# What safetensors and torch.save say: torch closes its file in a destructor, and what that finds
# (a position it did not expect, a stream in error) replaces the system's own words.
_SIGNS_OF_FULL_DISK = (
    "no space left",
    "os error 28",
    "file write failed",
    "unexpected pos",
    "iostream error",
)
STATE_JSON = "trainer_state.json"


class Checkpointer:
    """Writes checkpoints and removes old ones; every rank calls it, at the same step."""

    def __init__(self, config: TrainerConfig, engine: Engine, tokenizer: Any, ranks: Ranks) -> None:
        self._config = config
        self._engine = engine
        self._tokenizer = tokenizer
        self._ranks = ranks
        self._folder = Path(config.output_dir)

    def due(self, number: int, total: int) -> bool:
        """Whether step `number` ends with a checkpoint: every `--save_steps`, and the last."""
        every = self._config.save_steps
        return every > 0 and (number % every == 0 or number == total)

    def save(self, number: int) -> Path:
        """Writes the checkpoint of step `number`.

        Raises:
            CheckpointError: on every rank, if any rank could not write; nothing half-written stays.
        """
        started = time.perf_counter()
        final = self._folder / f"{_PREFIX}{number}"
        unfinished = self._folder / f".{_PREFIX}{number}.unfinished"
        weights = self._whole_state()
        problem: OSError | None = None
        try:
            self._write(unfinished, number, weights)
        except OSError as error:
            problem = error
        except Exception as error:  # safetensors and torch wrap the operating system's errors
            if not _is_disk_full(error):
                raise
            problem = OSError(errno.ENOSPC, str(error))
        failed = worst_on_any_rank(problem is not None, self._ranks)
        if self._ranks.is_main and not failed:
            try:
                _replace(unfinished, final)
                self._remove_old(keep=final)
            except OSError as error:
                problem = error
        if worst_on_any_rank(problem is not None, self._ranks):
            if self._ranks.is_main:
                shutil.rmtree(unfinished, ignore_errors=True)
            raise CheckpointError(self._explain(final, problem))
        if self._ranks.is_main:
            size = sum(file.stat().st_size for file in final.rglob("*") if file.is_file())
            seconds = time.perf_counter() - started
            LOG.info("saved %s (%.1f MB, %.1f s)", final, size / 1e6, seconds)
        return final

    def _whole_state(self) -> dict[str, torch.Tensor] | None:
        """Gives the whole weights on rank 0; under ZeRO-3 all ranks gather them, layer by layer."""
        module = self._engine.module
        if self._engine.zero_stage != 3:
            return module.state_dict() if self._ranks.is_main else None
        gathered: dict[str, torch.Tensor] | None = (
            self._engine.model._zero3_consolidated_16bit_state_dict(  # noqa: SLF001 - as accelerate does
                exclude_frozen_parameters=self._config.train_type == "lora"
            )
        )
        return gathered

    def _write(self, folder: Path, number: int, weights: dict[str, torch.Tensor] | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not self._config.save_only_model:
            states = folder / "optimizer"
            states.mkdir(exist_ok=True)
            torch.save(
                self._engine.optimizer.state_dict(), states / f"rank_{self._ranks.rank:05d}.pt"
            )
        if self._ranks.is_main:
            self._engine.module.save_pretrained(folder, state_dict=weights)
            self._tokenizer.save_pretrained(folder)
            state = {
                "step": number,
                "world_size": self._ranks.world_size,
                "zero_stage": self._engine.zero_stage,
                "config": dataclasses.asdict(self._config),
            }
            (folder / STATE_JSON).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")

    def _remove_old(self, keep: Path) -> None:
        limit = self._config.save_total_limit
        if limit is None:
            return
        found = sorted(
            (path for path in self._folder.glob(f"{_PREFIX}*") if _step_of(path) is not None),
            key=lambda path: (path.stat().st_mtime_ns, _step_of(path) or 0),
        )
        others = [path for path in found if path != keep]
        for path in others[: max(0, len(others) - (limit - 1))]:
            shutil.rmtree(path)

    def _explain(self, final: Path, problem: OSError | None) -> str:
        if problem is None:
            return f"{final} was not written: another rank could not; see its message"
        if problem.errno in {errno.ENOSPC, errno.EDQUOT}:
            advice = (
                "the disk is full. Free space, save less (--save_only_model true, "
                "--save_total_limit 1), or choose another --output_dir"
            )
        else:
            advice = f"{problem.strerror or problem}. Choose an --output_dir that can be written"
        return f"{final} was not written: {advice}. Earlier checkpoints are intact."


def _replace(unfinished: Path, final: Path) -> None:
    if final.exists():  # of an earlier run in the same folder
        shutil.rmtree(final)
    unfinished.rename(final)


def _step_of(path: Path) -> int | None:
    digits = path.name.removeprefix(_PREFIX)
    return int(digits) if digits.isdigit() else None


def _is_disk_full(error: Exception) -> bool:
    text = str(error).lower()
    return any(sign in text for sign in _SIGNS_OF_FULL_DISK)
