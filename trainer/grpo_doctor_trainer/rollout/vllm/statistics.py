"""What the engine says of itself in each of its steps, as counters in the trace.

While it generates, at most every 50 ms: `engine/running_requests`, `engine/waiting_requests` and
`engine/kv_cache_pct`. At the end of a rollout, once: peaks and means of these, preemptions, tokens,
prefix cache, and how many completions there were of each length.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from grpo_doctor_probes import counter

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVERY_S = 0.05


class EngineStatistics:
    """Gathers over one rollout; what vLLM calls a stat logger, by its methods.

    Its fields are read with defaults: vLLM says of them that they may change.
    """

    def __init__(self) -> None:
        self._shown_at = 0.0
        self._clear()

    def __call__(self, *_config_and_index: Any) -> EngineStatistics:
        """Gives itself: vLLM asks a factory for the logger of each engine, and there is one."""
        return self

    def record(
        self, scheduler_stats: Any | None, iteration_stats: Any | None, *_: Any, **_more: Any
    ) -> None:
        """Takes in one step of the engine; called by vLLM."""
        if scheduler_stats is not None:
            self._take_scheduler(scheduler_stats)
        if iteration_stats is not None:
            self._preemptions += getattr(iteration_stats, "num_preempted_reqs", 0)

    def log_engine_initialized(self) -> None:
        """Has nothing to say; called by vLLM."""

    def log(self) -> None:
        """Has nothing to log; called by vLLM."""

    def record_sleep_state(self, *_: Any, **_more: Any) -> None:
        """Sleep is a phase of its own; called by vLLM."""

    def finish(self, prompt_tokens: Sequence[int], completion_tokens: Sequence[int]) -> None:
        """Writes the counters of one rollout and starts the next.

        Args:
            prompt_tokens: the length of each prompt.
            completion_tokens: the length of each completion.
        """
        for name, value in self.totals(prompt_tokens, completion_tokens).items():
            counter(f"engine/{name}", value)
        self._clear()

    def totals(
        self, prompt_tokens: Sequence[int], completion_tokens: Sequence[int]
    ) -> dict[str, float]:
        """Sums up the rollout, by the counters' names without `engine/`."""
        steps = max(1, self._steps)
        return {
            "steps": float(self._steps),
            "running_requests_peak": float(self._running_peak),
            "running_requests_mean": self._running_sum / steps,
            "waiting_requests_peak": float(self._waiting_peak),
            "waiting_requests_mean": self._waiting_sum / steps,
            "kv_cache_peak_pct": self._cache_peak_pct,
            "preemptions": float(self._preemptions),
            "prompt_tokens": float(sum(prompt_tokens)),
            "generated_tokens": float(sum(completion_tokens)),
            "prefix_cache_queried_tokens": float(self._queried),
            "prefix_cache_hit_tokens": float(self._hit),
        } | _histogram(completion_tokens)

    def _clear(self) -> None:
        self._steps = self._preemptions = self._queried = self._hit = 0
        self._running_peak = self._running_sum = self._waiting_peak = self._waiting_sum = 0
        self._cache_peak_pct = 0.0

    def _take_scheduler(self, stats: Any) -> None:
        running = getattr(stats, "num_running_reqs", 0)
        waiting = getattr(stats, "num_waiting_reqs", 0)
        waiting += getattr(stats, "num_skipped_waiting_reqs", 0)
        cache_pct = 100.0 * getattr(stats, "kv_cache_usage", 0.0)
        self._steps += 1
        self._running_sum += running
        self._waiting_sum += waiting
        self._running_peak = max(self._running_peak, running)
        self._waiting_peak = max(self._waiting_peak, waiting)
        self._cache_peak_pct = max(self._cache_peak_pct, cache_pct)
        if (prefix := getattr(stats, "prefix_cache_stats", None)) is not None:
            self._queried += getattr(prefix, "queries", 0)
            self._hit += getattr(prefix, "hits", 0)
        if (now := time.monotonic()) - self._shown_at >= _EVERY_S:
            self._shown_at = now
            counter("engine/running_requests", float(running))
            counter("engine/waiting_requests", float(waiting))
            counter("engine/kv_cache_pct", cache_pct)


def _histogram(lengths: Sequence[int]) -> dict[str, float]:
    """Counts completions by length: of up to 1, 2, 4, 8, ... tokens, none of them twice."""
    if not lengths:
        return {}
    found: dict[str, float] = {}
    low, high = 0, 1
    while low < max(lengths):
        count = sum(low < length <= high for length in lengths)
        found[f"completions_of_{low + 1}_to_{high}_tokens"] = float(count)
        low, high = high, 2 * high
    return found
