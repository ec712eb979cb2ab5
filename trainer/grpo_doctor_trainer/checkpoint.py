"""Checkpoints: whole or not at all, and enough to continue as if nothing had happened.

`checkpoint-N/` holds
- the weights (safetensors, in the training dtype, for `from_pretrained`) and the tokenizer;
- `optimizer/rank_NNNNN.pt`: AdamW's moments and DeepSpeed's float32 copies of the weights, one file
  per rank, or one for all where every rank has the same;
- `resume/rank_NNNNN.pt`: random states, what is left of a rollout, the log's sums;
- `trainer_state.json`: step, ranks, ZeRO stage, options, and each file with its size.

`--save_only_model` leaves the second and third out. Every file is read without running code from
it: safetensors, JSON, and `torch.load(weights_only=True)`. It is written under a temporary name,
and renamed when every rank is done.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.experience import Experience, Feed, ImageFeatures, TokenBatch
from grpo_doctor_trainer.engine import Engine, stepped_optimizer
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.model.vision import VisionLayout
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, from_main, worst_on_any_rank
from grpo_doctor_trainer.steplog import Metrics


@dataclass(frozen=True)
class Progress:
    """Where the loop stands between two steps.

    Attributes:
        number: steps done.
        feed: what is left of the rollout, if its steps are not all done.
        metrics: the metrics of that rollout.
        log: the sums of `StepLog`.
    """

    number: int = 0
    feed: Feed | None = None
    metrics: Metrics = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)


# What a file of a rank may hold; torch refuses to load anything else from it.
torch.serialization.add_safe_globals(
    [Progress, Feed, Experience, TokenBatch, ImageFeatures, VisionLayout]
)


def save_progress(progress: Progress, path: Path) -> None:
    """Write this rank's progress and random states."""
    if progress.feed is not None and progress.feed.empty:
        progress = dataclasses.replace(progress, feed=None)
    states = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "python": random.getstate(),
    }
    torch.save({"progress": progress, "random": states}, path)


def load_progress(path: Path, device: torch.device) -> Progress:
    """Read what `save_progress` wrote, and set this process's random states."""
    saved = load_safely(path, lambda held, at: held if at == "cpu" else held.cuda(device.index))
    states = saved["random"]
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    random.setstate(states["python"])
    progress: Progress = saved["progress"]
    return progress


def load_safely(path: Path, place: Any = "cpu") -> Any:
    """Read a file of a rank without running code from it."""
    try:
        return torch.load(path, map_location=place, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} is damaged ({str(error).splitlines()[0][:200]}); resume from another "
            "checkpoint"
        ) from error


def is_replicated(engine: Engine) -> bool:
    """Whether every rank holds the same state: AdamW steps the model's own weights."""
    return stepped_optimizer(engine) is engine.optimizer


def capture(engine: Engine) -> dict[str, Any]:
    """Return this rank's state, without copying it where that can be avoided.

    DeepSpeed's own checkpoints are pickles of its classes, which cannot be read safely. `masters`
    are the tensors that AdamW steps (of float32, this rank's part, in ZeRO's flat layout), empty
    where these are the model's weights; `state` has AdamW's values for each of them.
    """
    masters, states = _stepped(engine), stepped_optimizer(engine).state
    return {
        "masters": [] if is_replicated(engine) else [_alone(master) for master in masters],
        "state": [
            {name: _alone(value) for name, value in states.get(master, {}).items()}
            for master in masters
        ],
    }


def _alone(value: Any) -> Any:
    """Return a tensor with memory of its own: torch.save writes all that a view looks at."""
    if not torch.is_tensor(value):
        return value
    value = value.detach()
    return value if value.untyped_storage().nbytes() == value.nbytes else value.clone()


@torch.no_grad()
def restore(engine: Engine, saved: dict[str, Any]) -> None:
    """Put back what `capture` gave, into an engine made with the same options."""
    masters, states = _stepped(engine), stepped_optimizer(engine).state
    copies = saved["masters"] or masters
    shapes = [tuple(copy.shape) for copy in copies]
    if shapes != [tuple(master.shape) for master in masters] or len(saved["state"]) != len(shapes):
        raise CheckpointError(
            "the checkpoint's optimizer state belongs to other trained weights than this model's; "
            "resume with the model and the options of the run that wrote it"
        )
    for master, copy, values in zip(masters, copies, saved["state"]):
        if copy is not master:
            master.copy_(copy)
        states[master] = _like(states.get(master, {}), values, master.device)


def _stepped(engine: Engine) -> list[torch.Tensor]:
    # ZeRO-3 hands AdamW one flat part at a time, so between steps its groups are empty.
    flat: list[torch.Tensor] | None = getattr(
        engine.optimizer, "fp32_partitioned_groups_flat", None
    )
    if flat is not None:
        return flat
    return [w for group in stepped_optimizer(engine).param_groups for w in group["params"]]


def _like(current: dict[str, Any], values: dict[str, Any], device: torch.device) -> dict[str, Any]:
    restored = {}
    for name, value in values.items():
        old = current.get(name)
        if torch.is_tensor(old) and torch.is_tensor(value) and old.shape == value.shape:
            restored[name] = old.copy_(value)  # keeps pinned host memory pinned
        else:  # AdamW's step counters stay on the CPU
            restored[name] = value.to(device) if torch.is_tensor(value) and value.dim() else value
    return restored


FORMAT = 3
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


LATEST = "latest"
# Whole groups of options that change no number of the steps to come, and single ones.
_FREE_GROUPS = ("output", "vllm")
_FREE = {
    *("max_steps", "num_train_epochs", "ddp_timeout", "gradient_checkpointing"),
    "deepspeed",  # its stage is compared by itself
    *("dataloader_num_workers", "dataloader_prefetch_factor"),
    *("reward_timeout", "reward_num_workers"),
    *("offload_model", "offload_optimizer", "gc_collect_after_offload"),
}
_HELD = ("rollout_importance_sampling_mode", "rollout_importance_sampling_threshold")


@dataclass(frozen=True)
class Resume:
    """A checkpoint that was found complete.

    Attributes:
        folder: where it is.
        state: its `trainer_state.json`.
    """

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """The steps that were done when it was written."""
        return int(self.state["step"])

    def rollouts(self, config: TrainerConfig) -> int:
        """Count the rollouts begun until then, each of which took a batch of prompts."""
        return -(-self.step // config.steps_per_rollout)

    def check(self, config: TrainerConfig, ranks: Ranks) -> None:
        """Refuse a launch that could not continue exactly where the checkpoint ends."""
        if self.state["save_only_model"]:
            raise self._refusal(
                "has weights but no optimizer state (--save_only_model true), so a run cannot "
                "continue from it", config
            )  # fmt: skip
        shape = (
            ("ranks", self.state["world_size"], ranks.world_size),
            ("DeepSpeed's ZeRO stage", self.state["zero_stage"], config.zero_stage),
        )
        for name, before, now in shape:
            if before != now:
                raise self._refusal(
                    f"was written with {name} {_spelled(before)}, this launch has {_spelled(now)}: "
                    f"the optimizer state is partitioned for the former. Launch with "
                    f"{_spelled(before)} again", config
                )  # fmt: skip
        if changed := list(_changed(self.state["config"], dataclasses.asdict(config))):
            raise self._refusal(
                f"comes from a run with other options: {', '.join(changed)}. Give the options as "
                "they were", config
            )  # fmt: skip
        before = self.state["config"]["max_steps"]
        follows_length = config.lr_scheduler_type != "constant" or (
            config.warmup_ratio > 0 and not config.warmup_steps
        )
        if before != config.max_steps and follows_length and ranks.is_main:
            LOG.warning(
                "the run now has %d steps and had %d: its learning rate follows another curve",
                config.max_steps, before,
            )  # fmt: skip

    def load(self, engine: Engine, ranks: Ranks) -> Progress:
        """Put back optimizer and random states of this rank; the weights are loaded before."""
        owner = 0 if is_replicated(engine) else ranks.rank
        restore(engine, load_safely(self.folder / OPTIMIZER / rank_file(owner)))
        return load_progress(self.folder / PROGRESS / rank_file(ranks.rank), ranks.device)

    def _refusal(self, reason: str, config: TrainerConfig) -> CheckpointError:
        model = f"--model {self.folder}"
        if config.train_type == "lora":
            model = "merge its adapter into the model (peft's merge_and_unload), --model of that"
        return CheckpointError(
            f"{self.folder} {reason}. To start a new run from its weights: {model}, without "
            "--resume_from_checkpoint."
        )


def find_checkpoint(config: TrainerConfig, ranks: Ranks) -> Resume | None:
    """Resolve `--resume_from_checkpoint`, on rank 0 for all; none: a new run."""
    choice = config.resume_from_checkpoint
    if choice is None:
        return None
    if choice == LATEST:
        saved = checkpoints_in(Path(config.output_dir)) if ranks.is_main else []
        newest = from_main(str(saved[-1]) if saved else None, ranks)
        if newest is None:
            LOG.info("no checkpoint in %s yet: starting a new run", config.output_dir)
            return None
        choice = newest
    return open_checkpoint(Path(choice))


def open_checkpoint(folder: Path) -> Resume:
    """Read a checkpoint's list of files and check that they are there."""
    try:
        state = json.loads((folder / STATE_JSON).read_text(encoding="utf-8"))
        files, found_format = state["files"], state["format"]
    except FileNotFoundError:
        raise CheckpointError(_missing(folder)) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder / STATE_JSON} cannot be read ({type(error).__name__}: {error}); resume from "
            "another checkpoint"
        ) from None
    if found_format != FORMAT:
        raise CheckpointError(
            f"{folder} has format {found_format}, this version reads {FORMAT}; resume with the "
            "version that wrote it"
        )
    for name, size in files.items():
        path = folder / name
        actual = path.stat().st_size if path.is_file() else None
        if actual != size:
            problem = "is missing" if actual is None else f"has {actual} bytes of {size}"
            raise CheckpointError(
                f"{folder} is not whole: {name} {problem}. Copy it again, or resume from another "
                "checkpoint"
            )
    return Resume(folder, state)


def _missing(folder: Path) -> str:
    near = checkpoints_in(folder) or checkpoints_in(folder.parent)
    hint = f" There are: {', '.join(str(path) for path in near)}." if near else ""
    return (
        f"--resume_from_checkpoint {folder} is not a checkpoint: it has no {STATE_JSON}.{hint} "
        f"Give a checkpoint-N folder, or {LATEST} for the newest in --output_dir"
    )


def _changed(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for option in dataclasses.fields(TrainerConfig):
        name = option.name
        free = name in _FREE or option.metadata["group"] in _FREE_GROUPS
        if (free and name not in _HELD) or name not in before:
            continue
        if before[name] != now[name]:
            yield f"--{name} {_spelled(before[name])} -> {_spelled(now[name])}"


def _spelled(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
