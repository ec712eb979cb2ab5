"""The server's statistics as counters of the trace, under the names of `statistics.py`.

What the whole engine did is recorded by rank 0 alone, for all ranks; its own prompts and
completions are recorded by every rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_doctor_probes import counter
from grpo_doctor_trainer.rollout.vllm.statistics import EngineStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.serve.protocol import Progress
    from grpo_doctor_trainer.serve.state import RolloutStatistics


def record_progress(progress: Progress) -> None:
    """Records the engine as it is now, about once a second."""
    counter("engine/running_requests", float(progress.running))
    counter("engine/waiting_requests", float(progress.waiting))
    counter("engine/kv_cache_pct", 100 * progress.kv_cache)


def record(
    found: RolloutStatistics,
    prompt_tokens: Sequence[int],
    completion_tokens: Sequence[int],
    ranks: Ranks,
) -> None:
    """Records one rollout.

    Args:
        found: the engine's, while it worked for this rank.
        prompt_tokens: the length of each prompt of this rank.
        completion_tokens: the length of each completion of this rank.
        ranks: this process among the others.
    """
    for name, value in totals(found, prompt_tokens, completion_tokens, main=ranks.is_main).items():
        counter(f"engine/{name}", value)


def totals(
    found: RolloutStatistics,
    prompt_tokens: Sequence[int],
    completion_tokens: Sequence[int],
    *,
    main: bool,
) -> dict[str, float]:
    """Sums up one rollout of one rank, by the counters' names without `engine/`."""
    engines = {
        "steps": float(found.steps),
        "running_requests_peak": float(found.running_peak),
        "running_requests_mean": found.running_mean,
        "waiting_requests_peak": float(found.waiting_peak),
        "waiting_requests_mean": found.waiting_mean,
        "kv_cache_peak_pct": 100 * found.kv_cache_peak,
        "preemptions": float(found.preemptions),
        "prefix_cache_queried_tokens": float(found.prefix_queries),
        "prefix_cache_hit_tokens": float(found.prefix_hits),
    }
    every = EngineStatistics().totals(prompt_tokens, completion_tokens)
    own = {name: value for name, value in every.items() if name not in engines}
    return own | (engines if main else {})
