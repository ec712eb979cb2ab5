"""Where a run is logged: the console, the recorder, experiment trackers, completions.jsonl."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import metrics
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.logs.console import LOG, sparkline
from grpo_doctor_trainer.logs.metrics import Evaluated, Metrics, best_of
from grpo_doctor_trainer.rewards.functions import reward_names
from grpo_doctor_trainer.validation import wanted_trackers

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker


COMPLETIONS_JSONL = "completions.jsonl"
_SHOWN = 200

_PROJECT = "grpo-doctor"
_PREFIX = "train/"  # as transformers' integrations write it, so that curves of both lie together


def decode(tokenizer: Any, tokens: TokenBatch) -> list[str]:
    """Return each completion as text, without end, padding and other special tokens."""
    lengths = tokens.completion_mask.sum(dim=1).tolist()
    rows = zip(tokens.completion_tokens.tolist(), lengths, strict=True)
    texts: list[str] = tokenizer.batch_decode(
        [row[:length] for row, length in rows], skip_special_tokens=True
    )
    return texts


def write_completions(  # noqa: PLR0913 - one argument per column of the table
    config: TrainerConfig,
    number: int,
    prompts: list[str],
    completions: list[str],
    scores: torch.Tensor,
    advantages: torch.Tensor,
) -> None:
    """Append the rows of rank 0 to `completions.jsonl` and show the best and the worst.

    Args:
        config: of the run.
        number: the step that the completions are for.
        prompts: per completion, as the model saw it.
        completions: as text.
        scores: [completions, functions], NaN where a function does not apply.
        advantages: [completions].
    """
    names = reward_names(config.reward_funcs)
    values = zip(prompts, completions, scores.tolist(), advantages.tolist(), strict=True)
    rows: list[dict[str, Any]] = [
        {
            "step": number,
            "prompt": prompt,
            "completion": completion,
            "rewards": dict(zip(names, map(_or_none, row), strict=True)),
            "advantage": _or_none(advantage),
        }
        for prompt, completion, row, advantage in values
    ]
    path = Path(config.output_dir) / COMPLETIONS_JSONL
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    rows.sort(key=lambda row: row["advantage"] or 0.0)
    LOG.info("  completions of step %d, all %d in %s", number, len(rows), path)
    for title, row in (("best", rows[-1]), ("worst", rows[0])):
        LOG.info("    %-5s  %.*s", title, _SHOWN, json.dumps(row, ensure_ascii=False))


def _or_none(value: float) -> float | None:
    return value if value == value else None  # noqa: PLR0124 - NaN, which JSON does not have


class Trackers:
    """All trackers of a run. One that fails is given up with a warning: training continues."""

    def __init__(self, trackers: Mapping[str, GeneralTracker]) -> None:
        self._trackers = dict(trackers)

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Send the metrics of one step, under transformers' prefix."""
        prefixed = {f"{_PREFIX}{name}": value for name, value in values.items()}
        self._each("took no more metrics", lambda tracker: tracker.log(prefixed, number))

    def close(self) -> None:
        """End all of them. Can be called twice."""
        self._each("could not finish", lambda tracker: tracker.finish())
        self._trackers = {}

    def _each(self, failure: str, act: Callable[[GeneralTracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # noqa: BLE001 - whatever a tracker raises, training continues
                del self._trackers[name]
                LOG.warning("%s %s (%s: %s)", name, failure, type(error).__name__, error)


def make_trackers(config: TrainerConfig, steps_done: int = 0) -> Trackers:
    """Start what `--report_to` names; `check_trackers` has found their packages.

    After a checkpoint of so many steps, TensorBoard's curves continue from there: what a run
    wrote after it is removed.

    One that cannot start (no login, no network, a folder that cannot be written) is left out with
    a warning.
    """
    started: dict[str, GeneralTracker] = {}
    for name in wanted_trackers(config):
        try:
            tracker = _tracker(name, config, steps_done)
            tracker.start()
            if name == "tensorboard":  # its hyperparameters would be a run of their own
                options = (f"    {n}: {v}" for n, v in dataclasses.asdict(config).items())
                tracker.tracker.add_text("args", "\n".join(options))
            else:
                tracker.store_init_configuration(dataclasses.asdict(config))
            started[name] = tracker
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises, training continues
            LOG.warning("--report_to %s: no tracking (%s: %s)", name, type(error).__name__, error)
    return Trackers(started)


def _tracker(name: str, config: TrainerConfig, steps_done: int) -> GeneralTracker:
    from accelerate import tracking  # noqa: PLC0415 - flags are checked without torch

    folder = Path(config.output_dir)
    if name == "tensorboard":
        logs = Path(config.logging_dir or folder / "runs")
        purge_step = steps_done + 1 if steps_done else None
        return tracking.TensorBoardTracker(config.run_name or "", logs, purge_step=purge_step)
    folder.mkdir(parents=True, exist_ok=True)
    if name == "wandb":
        return tracking.WandBTracker(None, name=config.run_name, dir=str(folder))
    logs = folder / "swanlab"
    return tracking.SwanLabTracker(_PROJECT, experiment_name=config.run_name, logdir=str(logs))


class StepLog:
    """Writes the metrics of steps, every `--logging_steps`, to all places."""

    def __init__(
        self,
        config: TrainerConfig,
        total: int,
        *,
        writes: bool,
        trackers: Trackers | None = None,
        saved: dict[str, Any] | None = None,
    ) -> None:
        self._every = config.logging_steps
        self._total = total
        self._writes = writes
        self._trackers = trackers
        saved = saved or {}
        self._tokens: float = saved.get("tokens", 0.0)
        self._rewards: list[float] = list(saved.get("rewards", []))
        self._first = len(self._rewards) + 1
        self._evaluations: list[Evaluated] = [(n, r) for n, r in saved.get("evaluations", ())]
        self._saves = config.save_steps > 0

    def state(self) -> dict[str, Any]:
        """Return the sums, for a checkpoint."""
        sums: dict[str, Any] = {"tokens": self._tokens, "rewards": list(self._rewards)}
        return sums | ({"evaluations": list(self._evaluations)} if self._evaluations else {})

    @property
    def best(self) -> Evaluated | None:
        """The evaluation with the highest reward so far; none without evaluations."""
        return best_of(self._evaluations)

    def evaluated(self, number: int, values: Metrics) -> None:
        """Log an evaluation."""
        self._evaluations.append((number, values["eval_reward"]))
        if not self._writes:
            return
        metrics(number, values)
        is_best = self.best is not None and self.best[0] == number
        LOG.info(
            "evaluation after step %d | reward %.3f%s | length %.1f (%.0f%% clipped)",
            number, values["eval_reward"], ", the best so far" * is_best,
            values["eval_completions/mean_length"],
            100 * values["eval_completions/clipped_ratio"],
        )  # fmt: skip
        if self._trackers is not None:
            self._trackers.log(number, values)

    def write(self, number: int, values: Metrics, seconds: float) -> None:
        """Log one step; `step_tokens` are the prompt and completion tokens trained on."""
        values = dict(values)
        tokens = values.pop("step_tokens")
        self._tokens += tokens
        values |= {
            "num_tokens": self._tokens,
            "tokens_per_second": tokens / seconds,
            "step_time": seconds,
        }
        self._rewards.append(values["reward"])
        if self._writes and (number % self._every == 0 or number in {self._first, self._total}):
            metrics(number, values)
            LOG.info(self._line(number, values))
            if self._trackers is not None:
                self._trackers.log(number, values)

    def finish(self) -> None:
        """Write the learning curve."""
        # A step in which no reward function applied has no reward.
        rewards = [reward for reward in self._rewards if math.isfinite(reward)]
        if self._writes and len(rewards) > 1:
            ends = max(1, len(rewards) // 10)
            first, last = sum(rewards[:ends]) / ends, sum(rewards[-ends:]) / ends
            LOG.info("reward %.3f -> %.3f  %s", first, last, sparkline(rewards))
        if self._writes and self.best is not None:
            self._finish_evaluations(*self.best)

    def _finish_evaluations(self, step: int, reward: float) -> None:
        rewards = [value for _, value in self._evaluations if math.isfinite(value)]
        note = f", kept as checkpoint-{step}" * self._saves
        LOG.info(
            "evaluation %.3f -> %.3f  %s  best %.3f after step %d%s",
            rewards[0], rewards[-1], sparkline(rewards), reward, step, note,
        )  # fmt: skip

    def close(self) -> None:
        """End the trackers; also after an error."""
        if self._trackers is not None:
            self._trackers.close()

    def _line(self, number: int, values: Metrics) -> str:
        width = len(str(self._total))
        parts = [
            f"step {number:{width}d}/{self._total}",
            f"reward {values['reward']:.3f} +-{values['reward_std']:.3f}",
            f"loss {values['loss']:+.4f}",
            (
                f"length {values['completions/mean_length']:.1f}"
                f" ({values['completions/clipped_ratio']:.0%} clipped)"
            ),
            # Without a token in the loss, as where every completion was cut off, there is none.
            f"kl {values['kl']:.4f}" if "kl" in values else "",
            f"ratio clip {values['clip_ratio/region_mean']:.1%}",
            f"lr {values['learning_rate']:.1e}",
            f"{values['tokens_per_second']:,.0f} tok/s",
            f"{values['step_time']:.2f} s",
        ]
        return " | ".join(part for part in parts if part)
