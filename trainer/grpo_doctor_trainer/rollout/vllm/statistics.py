"""What an engine says of itself in each of its steps, as counters in the trace.

An engine inside a rank writes `engine/running_requests`, `engine/waiting_requests` and
`engine/kv_cache_pct` while it generates, at most every 50 ms; of a server the trainer writes them
some times a second. At the end of a rollout, once: peaks and means of these, preemptions, tokens,
prefix cache, and how many completions there were of each length.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grpo_doctor_probes import counter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.rollout.vllm.sampling import Completion

_EVERY_S = 0.05


@dataclass(frozen=True)
class EngineSnapshot:
    """The engine at one moment; totals count from its start.

    Attributes:
        running: sequences that are decoded.
        waiting: sequences that wait for room.
        kv_cache: share of the KV cache in use, 0 to 1.
        preemptions: sequences that had to give up their room and start again, in total.
        prefix_queries: prompt tokens looked up in the prefix cache, in total.
        prefix_hits: those found there, in total.
        steps: forward passes, in total.
    """

    running: int = 0
    waiting: int = 0
    kv_cache: float = 0.0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    steps: int = 0


@dataclass(frozen=True)
class RolloutStatistics:
    """The engine during one rollout, whatever other clients it served meanwhile.

    Attributes:
        running_peak: most sequences decoded at once; and their mean.
        waiting_peak: most sequences that waited for room; and their mean.
        kv_cache_peak: largest share of the KV cache in use, 0 to 1.
        preemptions: sequences that had to start again for lack of room.
        prefix_queries: prompt tokens looked up in the prefix cache.
        prefix_hits: those found there.
        steps: forward passes of the engine.
    """

    running_peak: int
    running_mean: float
    waiting_peak: int
    waiting_mean: float
    kv_cache_peak: float
    preemptions: int
    prefix_queries: int
    prefix_hits: int
    steps: int


@dataclass
class Tally:
    """Sums up samples of an engine while it works for one rollout.

    Attributes:
        before: the engine when that begins.
        samples: how many there are.
    """

    before: EngineSnapshot = field(default_factory=EngineSnapshot)
    samples: int = 0
    _running_peak: int = 0
    _running_sum: int = 0
    _waiting_peak: int = 0
    _waiting_sum: int = 0
    _kv_cache_peak: float = 0.0

    def add(self, now: EngineSnapshot) -> None:
        """Takes in the engine at a moment."""
        self.samples += 1
        self._running_peak = max(self._running_peak, now.running)
        self._running_sum += now.running
        self._waiting_peak = max(self._waiting_peak, now.waiting)
        self._waiting_sum += now.waiting
        self._kv_cache_peak = max(self._kv_cache_peak, now.kv_cache)

    def statistics(self, now: EngineSnapshot) -> RolloutStatistics:
        """Sums up what there was from `before` to now."""
        return RolloutStatistics(
            running_peak=self._running_peak,
            running_mean=self._running_sum / max(1, self.samples),
            waiting_peak=self._waiting_peak,
            waiting_mean=self._waiting_sum / max(1, self.samples),
            kv_cache_peak=self._kv_cache_peak,
            preemptions=now.preemptions - self.before.preemptions,
            prefix_queries=now.prefix_queries - self.before.prefix_queries,
            prefix_hits=now.prefix_hits - self.before.prefix_hits,
            steps=now.steps - self.before.steps,
        )


class EngineStatistics:
    """Gathers over one rollout of an engine inside this rank, and writes its counters.

    What vLLM calls a stat logger, by its methods. vLLM's numbers are read with defaults: it says of
    them that they may change.

    Attributes:
        now: the engine as of its last step.
    """

    def __init__(self) -> None:
        self.now = EngineSnapshot()
        self._shown_at = 0.0
        self._tally = Tally()

    def __call__(self, *_config_and_index: Any) -> EngineStatistics:
        """Gives itself: vLLM asks a factory for the logger of each engine, and there is one."""
        return self

    def record(
        self, scheduler_stats: Any | None, iteration_stats: Any | None, *_: Any, **_more: Any
    ) -> None:
        """Takes in the numbers of one step, either of which may be missing; called by vLLM."""
        last = self.now
        preemptions = last.preemptions + getattr(iteration_stats, "num_preempted_reqs", 0)
        if scheduler_stats is None:
            self.now = replace(last, preemptions=preemptions)
            return
        waiting = getattr(scheduler_stats, "num_waiting_reqs", 0)
        prefix = getattr(scheduler_stats, "prefix_cache_stats", None)
        self.now = EngineSnapshot(
            running=getattr(scheduler_stats, "num_running_reqs", 0),
            waiting=waiting + getattr(scheduler_stats, "num_skipped_waiting_reqs", 0),
            kv_cache=float(getattr(scheduler_stats, "kv_cache_usage", 0.0)),
            preemptions=preemptions,
            prefix_queries=last.prefix_queries + getattr(prefix, "queries", 0),
            prefix_hits=last.prefix_hits + getattr(prefix, "hits", 0),
            steps=last.steps + 1,
        )
        self._tally.add(self.now)
        if (now := time.monotonic()) - self._shown_at >= _EVERY_S:
            self._shown_at = now
            write_load(self.now)

    def log_engine_initialized(self) -> None:
        """Has nothing to say; called by vLLM."""

    def log(self) -> None:
        """Has nothing to log; called by vLLM."""

    def record_sleep_state(self, *_: Any, **_more: Any) -> None:
        """Sleep is a phase of its own; called by vLLM."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Writes the counters of one rollout, which gave these, and starts the next."""
        write_totals(self.statistics(), completions)
        self._tally = Tally(self.now)

    def statistics(self) -> RolloutStatistics:
        """The rollout until now."""
        return self._tally.statistics(self.now)


def write_totals(statistics: RolloutStatistics | None, completions: Sequence[Completion]) -> None:
    """Writes the counters of one rollout of one rank; arguments as in `totals`."""
    for name, value in totals(statistics, completions).items():
        counter(f"engine/{name}", value)


def totals(
    statistics: RolloutStatistics | None, completions: Sequence[Completion]
) -> dict[str, float]:
    """Sums up one rollout of one rank, by the counters' names without `engine/`.

    Args:
        statistics: of the whole engine; none where they are not this rank's to record.
        completions: those of this rank.
    """
    lengths = [len(completion.tokens) for completion in completions]
    own = {
        "prompt_tokens": float(sum(completion.prompt_tokens for completion in completions)),
        "generated_tokens": float(sum(lengths)),
    } | _histogram(lengths)
    if statistics is None:
        return own
    return {
        "steps": float(statistics.steps),
        "running_requests_peak": float(statistics.running_peak),
        "running_requests_mean": statistics.running_mean,
        "waiting_requests_peak": float(statistics.waiting_peak),
        "waiting_requests_mean": statistics.waiting_mean,
        "kv_cache_peak_pct": 100 * statistics.kv_cache_peak,
        "preemptions": float(statistics.preemptions),
        "prefix_cache_queried_tokens": float(statistics.prefix_queries),
        "prefix_cache_hit_tokens": float(statistics.prefix_hits),
    } | own


def write_load(now: EngineSnapshot) -> None:
    """Writes how an engine is at a moment."""
    counter("engine/running_requests", float(now.running))
    counter("engine/waiting_requests", float(now.waiting))
    counter("engine/kv_cache_pct", 100 * now.kv_cache)


def _histogram(lengths: Sequence[int]) -> dict[str, float]:
    """Counts completions by length: of up to 1, 2, 4, 8, ... tokens, none of them twice."""
    if not lengths:
        return {}
    counts: dict[str, float] = {}
    low, high = 0, 1
    while low < max(lengths):
        count = sum(low < length <= high for length in lengths)
        counts[f"completions_of_{low + 1}_to_{high}_tokens"] = float(count)
        low, high = high, 2 * high
    return counts
