"""Where the numbers of a step go: the log, the recorder, the experiment trackers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from grpo_doctor_probes import metrics
from grpo_doctor_trainer.logs.console import LOG, sparkline
from grpo_doctor_trainer.logs.metrics import best_of

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.logs.metrics import Evaluated, Metrics
    from grpo_doctor_trainer.logs.trackers import Trackers


class StepLog:
    """Writes the metrics of steps, every `--logging_steps`, to all places.

    Args:
        config: the options.
        total: steps of the run.
        writes: whether this is the rank that writes; the others only keep the sums.
        trackers: where else the metrics go.
        saved: the sums that `state` gave, to go on from a checkpoint.
    """

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
        """Gives the sums, for a checkpoint."""
        sums: dict[str, Any] = {"tokens": self._tokens, "rewards": list(self._rewards)}
        return sums | ({"evaluations": list(self._evaluations)} if self._evaluations else {})

    @property
    def best(self) -> Evaluated | None:
        """The evaluation with the highest reward so far; none without evaluations."""
        return best_of(self._evaluations)

    def evaluated(self, number: int, values: Metrics) -> None:
        """Logs an evaluation.

        Args:
            number: of the step after which it was.
            values: its metrics.
        """
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
        """Logs one step; `step_tokens` are the prompt and completion tokens trained on.

        Args:
            number: of the step, from 1.
            values: its metrics.
            seconds: that it took.
        """
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
        """Writes the learning curve."""
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
        """Ends the trackers; also after an error."""
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
