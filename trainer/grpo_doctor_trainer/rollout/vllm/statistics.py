"""What an engine did during a rollout, as counters in the trace.

An engine inside a rank writes `engine/running_requests`, `engine/waiting_requests` and
`engine/kv_cache_pct` while it generates, at most every 50 ms; the trainer writes those of a server
several times a second. At the end of a rollout it writes peaks and means of these, preemptions,
tokens, prefix cache, and how many completions there were of each length.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from grpo_doctor_probes import counter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_doctor_trainer.rollout.vllm.requests import Completion

_EVERY_S = 0.05
_TOTALS = ("steps", "preemptions", "prefix_cache_queried_tokens", "prefix_cache_hit_tokens")


class EngineWork:
    """Samples of an engine while it works for one rollout.

    Attributes:
        loads: running and waiting sequences, and the share of the KV cache in use, of each sample.
        totals: since the engine started.
    """

    def __init__(self, totals: Mapping[str, float] | None = None) -> None:
        self.loads: list[tuple[float, float, float]] = []
        self.totals = Counter(totals or {})
        self._before = Counter(self.totals)

    def add(self, running: float, waiting: float, kv_cache: float) -> None:
        """Add a sample."""
        self.loads.append((running, waiting, kv_cache))

    def write_load(self) -> None:
        """Write the last sample."""
        running, waiting, kv_cache = self.loads[-1]
        counter("engine/running_requests", float(running))
        counter("engine/waiting_requests", float(waiting))
        counter("engine/kv_cache_pct", 100 * kv_cache)

    def summary(self) -> dict[str, float]:
        """Sum up the rollout, by the counters' names without `engine/`."""
        running, waiting, kv_cache = zip(*self.loads or [(0.0, 0.0, 0.0)])
        summary = {
            "running_requests_peak": max(running),
            "running_requests_mean": sum(running) / len(running),
            "waiting_requests_peak": max(waiting),
            "waiting_requests_mean": sum(waiting) / len(waiting),
            "kv_cache_peak_pct": 100 * max(kv_cache),
        }
        return summary | {name: self.totals[name] - self._before[name] for name in _TOTALS}


class EngineStatistics:
    """vLLM's stat logger of an engine inside this rank.

    vLLM's numbers are read with defaults: it says of them that they may change.
    """

    def __init__(self) -> None:
        self.work = EngineWork()
        self._shown_at = 0.0

    def __call__(self, *_config_and_index: Any) -> EngineStatistics:
        """Return itself: vLLM asks a factory for the logger of each engine, and there is one."""
        return self

    def record(
        self, scheduler_stats: Any | None, iteration_stats: Any | None, *_: Any, **_more: Any
    ) -> None:
        """Add the numbers of one step, either of which may be missing; called by vLLM."""
        work = self.work
        work.totals["preemptions"] += getattr(iteration_stats, "num_preempted_reqs", 0)
        if scheduler_stats is None:
            return
        prefix = getattr(scheduler_stats, "prefix_cache_stats", None)
        work.totals["steps"] += 1
        work.totals["prefix_cache_queried_tokens"] += getattr(prefix, "queries", 0)
        work.totals["prefix_cache_hit_tokens"] += getattr(prefix, "hits", 0)
        waiting = getattr(scheduler_stats, "num_waiting_reqs", 0)
        work.add(
            getattr(scheduler_stats, "num_running_reqs", 0),
            waiting + getattr(scheduler_stats, "num_skipped_waiting_reqs", 0),
            float(getattr(scheduler_stats, "kv_cache_usage", 0.0)),
        )
        if (now := time.monotonic()) - self._shown_at >= _EVERY_S:
            self._shown_at = now
            work.write_load()

    def log_engine_initialized(self) -> None:
        """Do nothing; called by vLLM."""

    def log(self) -> None:
        """Do nothing; called by vLLM."""

    def record_sleep_state(self, *_: Any, **_more: Any) -> None:
        """Do nothing, sleep is a phase of its own; called by vLLM."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Write the counters of one rollout, which gave these, and start the next."""
        write_totals(self.work, completions)
        self.work = EngineWork(self.work.totals)


def write_totals(work: EngineWork | None, completions: Sequence[Completion]) -> None:
    """Write the counters of one rollout of one rank; without `work` only the rank's own."""
    lengths = [len(completion.tokens) for completion in completions]
    totals = {} if work is None else work.summary()
    totals["prompt_tokens"] = sum(completion.prompt_tokens for completion in completions)
    totals["generated_tokens"] = sum(lengths)
    low, high = 0, 1
    while low < max(lengths, default=0):  # of 1, 2, 3 to 4, 5 to 8, ... tokens
        count = sum(low < length <= high for length in lengths)
        totals[f"completions_of_{low + 1}_to_{high}_tokens"] = count
        low, high = high, 2 * high
    for name, value in totals.items():
        counter(f"engine/{name}", float(value))
