"""Reads the engine's own statistics at each step."""

from __future__ import annotations

from typing import Any

from grpo_doctor_trainer.serve.state import EngineSnapshot


class EngineWatch:
    """Keeps the latest numbers that vLLM's scheduler reports.

    Attributes:
        now: the engine as of its last step.
    """

    def __init__(self) -> None:
        self.now = EngineSnapshot()

    def logger(self) -> Any:
        """Gives what vLLM calls a stat logger factory."""
        from vllm.v1.metrics.loggers import StatLoggerBase  # noqa: PLC0415 - takes ten seconds

        watch = self

        class Logger(StatLoggerBase):  # type: ignore[misc, unused-ignore]
            def __init__(self, *_: Any, **__: Any) -> None:
                pass

            def record(
                self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any
            ) -> None:
                watch.record(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                pass

        return Logger

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Takes in the numbers of one step; either may be missing."""
        last = self.now
        preempted = 0 if iteration is None else iteration.num_preempted_reqs
        if scheduler is None:
            return
        prefix = scheduler.prefix_cache_stats
        self.now = EngineSnapshot(
            running=scheduler.num_running_reqs,
            waiting=scheduler.num_waiting_reqs,
            kv_cache=float(scheduler.kv_cache_usage),
            preemptions=last.preemptions + preempted,
            prefix_queries=last.prefix_queries + (prefix.queries if prefix else 0),
            prefix_hits=last.prefix_hits + (prefix.hits if prefix else 0),
        )
