"""Rollout: completions for prompts, behind one narrow interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.rollout.interface import RolloutEngine


def make_rollout(
    config: TrainerConfig, engine: Engine, loaded: LoadedModel, ranks: Ranks
) -> RolloutEngine:
    """Starts the rollout engine that the options ask for.

    Raises:
        RolloutError: vLLM is not installed, cannot start, or its server cannot be reached.
    """
    # Each engine's imports take seconds, and vLLM may not be installed.
    if not config.use_vllm:
        from grpo_doctor_trainer.rollout.transformers import TransformersRollout  # noqa: PLC0415

        return TransformersRollout(engine, loaded, config)
    if config.vllm_mode == "server":
        from grpo_doctor_trainer.rollout.vllm.server import ServerRollout  # noqa: PLC0415

        return ServerRollout(engine, loaded, config, ranks)
    from grpo_doctor_trainer.rollout.vllm.colocate import ColocatedRollout  # noqa: PLC0415

    return ColocatedRollout(engine, loaded, config, ranks)
