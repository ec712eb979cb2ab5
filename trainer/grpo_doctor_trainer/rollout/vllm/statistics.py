"""What an engine did during a rollout, as the counters `engine/*`: those of the hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_doctor_probes.hooks.engine_load import EngineLoad, count_tokens
from grpo_doctor_trainer.rollout.vllm.requests import Completion

TOTALS = ("preemptions", "prefix_cache_queried_tokens", "prefix_cache_hit_tokens")


class EngineStatistics:
    """vLLM's stat logger of an engine inside this rank.

    vLLM's numbers are read with defaults: it says of them that they may change.
    """

    def __init__(self) -> None:
        self.load = EngineLoad(*TOTALS)

    def __call__(self, *_config_and_index: Any) -> EngineStatistics:
        """Return itself: vLLM asks a factory for the logger of each engine, and there is one."""
        return self

    def record(
        self, scheduler_stats: Any | None, iteration_stats: Any | None, *_: Any, **_more: Any
    ) -> None:
        """Add the numbers of one step, either of which may be missing; called by vLLM."""
        totals = self.load.totals
        totals["preemptions"] += getattr(iteration_stats, "num_preempted_reqs", 0)
        if scheduler_stats is None:
            return
        prefix = getattr(scheduler_stats, "prefix_cache_stats", None)
        totals["prefix_cache_queried_tokens"] += getattr(prefix, "queries", 0)
        totals["prefix_cache_hit_tokens"] += getattr(prefix, "hits", 0)
        waiting = getattr(scheduler_stats, "num_waiting_reqs", 0)
        self.load.add(
            getattr(scheduler_stats, "num_running_reqs", 0),
            waiting + getattr(scheduler_stats, "num_skipped_waiting_reqs", 0),
            getattr(scheduler_stats, "kv_cache_usage", 0.0),
        )

    def log_engine_initialized(self) -> None:
        """Do nothing; called by vLLM."""

    def log(self) -> None:
        """Do nothing; called by vLLM."""

    def record_sleep_state(self, *_: Any, **_more: Any) -> None:
        """Do nothing, sleep is a phase of its own; called by vLLM."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Write the counters of one rollout, which gave these, and start the next."""
        write_tokens(completions)
        self.load.finish()


def write_tokens(completions: Sequence[Completion]) -> None:
    """Write the tokens of one rollout of one rank."""
    prompt_tokens = sum(completion.prompt_tokens for completion in completions)
    count_tokens(prompt_tokens, [len(completion.tokens) for completion in completions])
