"""One `/generate` request under way, and what its connection waits for."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grpo_doctor_trainer.serve.protocol import Generated, Progress
from grpo_doctor_trainer.serve.state import EngineSnapshot, RolloutStatistics

if TYPE_CHECKING:
    from grpo_doctor_trainer.serve.protocol import Completion, GenerateRequest


@dataclass
class Job:
    """One `/generate` request under way; the loop writes it, the connection's thread reads it."""

    request: GenerateRequest
    keys: list[str]
    open_keys: set[str]
    before: EngineSnapshot
    done: threading.Event = field(default_factory=threading.Event)
    completions: dict[str, Completion] = field(default_factory=dict)
    error: Exception | None = None
    now: EngineSnapshot = field(default_factory=EngineSnapshot)
    running_peak: int = 0
    running_sum: int = 0
    waiting_peak: int = 0
    waiting_sum: int = 0
    kv_cache_peak: float = 0.0
    steps: int = 0

    def watch(self, now: EngineSnapshot) -> None:
        """Notes the engine's state after a step."""
        self.now = now
        self.steps += 1
        self.running_peak = max(self.running_peak, now.running)
        self.running_sum += now.running
        self.waiting_peak = max(self.waiting_peak, now.waiting)
        self.waiting_sum += now.waiting
        self.kv_cache_peak = max(self.kv_cache_peak, now.kv_cache)

    def progress(self) -> Progress:
        """Says how far it is."""
        now = self.now
        return Progress(len(self.completions), now.running, now.waiting, now.kv_cache)

    def result(self) -> Generated:
        """Gives the completions, once done; raises what went wrong instead, if anything did."""
        if self.error is not None:
            raise self.error
        made = [self.completions[key] for key in self.keys]
        statistics = RolloutStatistics(
            running_peak=self.running_peak,
            running_mean=self.running_sum / max(1, self.steps),
            waiting_peak=self.waiting_peak,
            waiting_mean=self.waiting_sum / max(1, self.steps),
            kv_cache_peak=self.kv_cache_peak,
            preemptions=self.now.preemptions - self.before.preemptions,
            prefix_queries=self.now.prefix_queries - self.before.prefix_queries,
            prefix_hits=self.now.prefix_hits - self.before.prefix_hits,
            steps=self.steps,
        )
        return Generated(made, statistics)


def wait_for(job: Job, seconds: float) -> bool:
    """Waits until a job is done, or until the engine has made a step and `seconds` are over.

    Returns:
        whether it is done. False means that there is progress to tell.
    """
    steps = job.steps
    ends = time.monotonic() + seconds
    while not job.done.wait(max(0.05, ends - time.monotonic())):
        if job.steps > steps:
            return False
        ends = time.monotonic() + seconds
    return True
