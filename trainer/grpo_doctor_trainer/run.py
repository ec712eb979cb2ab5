"""One run: what the loop uses, and how it ends."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from grpo_doctor_trainer.checkpoint import Checkpointer, Progress
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import Evaluation, PromptBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.logs.steplog import StepLog
from grpo_doctor_trainer.memory import Offload
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.rewards.scoring import Rewards
from grpo_doctor_trainer.rollout import RolloutEngine


@dataclass(frozen=True)
class Run:
    """Everything the loop uses."""

    config: TrainerConfig
    ranks: Ranks
    steps: int
    prompts: Generator[PromptBatch, None, None]
    tokenizer: Any
    end_tokens: tuple[int, ...]
    engine: Engine
    reference: Any | None
    rollout: RolloutEngine
    offload: Offload
    rewards: Rewards
    evaluation: Evaluation | None
    checkpoints: Checkpointer
    log: StepLog
    start: Progress

    def close(self) -> None:
        """End what runs alongside the loop; also after an error."""
        self.prompts.close()  # or its workers live until the last frame that saw them is gone
        self.rewards.close()
        self.rollout.close()
