"""What vLLM's engine had to do, as the counters `engine/*`, for any trainer.

While it generates, at most every 50 ms: requests that run and wait, and the share of the KV cache
in use. At the end of a rollout, once: peaks and means of these, what was counted during it, such as
preemptions, and, where the process that asked is this one, tokens and how many completions there
were of each length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from grpo_doctor_probes import counter
from grpo_doctor_probes.record.recorder import quietly

_EVERY_S = 0.05
_NOW = ("engine/running_requests", "engine/waiting_requests", "engine/kv_cache_pct")


class EngineLoad:
    """Adds up one rollout.

    Attributes:
        samples: how often the engine was looked at since the last rollout.
        totals: what is counted, by the counters' names without `engine/`; one that is not in here
            is unknown, not 0.
    """

    def __init__(self, *counted: str) -> None:
        self.totals = dict.fromkeys(counted, 0.0)
        self._shown_at = 0.0
        self._asked = False
        self._start()

    def _start(self) -> None:
        self.samples = 0
        self.totals = dict.fromkeys(self.totals, 0.0)
        self._peaks = [0.0, 0.0, 0.0]
        self._sums = [0.0, 0.0, 0.0]

    def counts_preemptions(self) -> None:
        """From here on `preempted` is called for each; without it their number is unknown."""
        self.totals["preemptions"] = 0.0

    def preempted(self, *_: Any, **__: Any) -> None:
        """A request gave up its room in the cache, and has to start again."""
        self.totals["preemptions"] += 1

    def sample(self, scheduler: Any) -> None:
        """The engine after a step, by vLLM's scheduler."""
        running, waiting = scheduler.get_request_counts()
        self.add(running, waiting, scheduler.kv_cache_manager.usage)

    def add(self, running: float, waiting: float, kv_cache: float) -> None:
        """The engine at a moment: its requests, and the share of the KV cache in use."""
        load = (float(running), float(waiting), 100.0 * kv_cache)
        self.samples += 1
        self._peaks = [max(pair) for pair in zip(self._peaks, load, strict=True)]
        self._sums = [sum(pair) for pair in zip(self._sums, load, strict=True)]
        now = time.monotonic()
        if now - self._shown_at >= _EVERY_S:
            self._shown_at = now
            for name, value in zip(_NOW, load, strict=True):
                counter(name, value)

    def around(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """A rollout by this function, which returns vLLM's outputs; `chat` may call `generate`."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._asked:
                return ask(*args, **kwargs)
            self._asked = True
            try:
                outputs = ask(*args, **kwargs)
            finally:
                self._asked = False
            quietly(_count_outputs, outputs)
            quietly(self.finish)
            return outputs

        return wrapper

    def summary(self) -> dict[str, float]:
        """What there was since the last rollout, by the counters' names without `engine/`."""
        return {
            "steps": float(self.samples),
            "running_requests_peak": self._peaks[0],
            "running_requests_mean": self._sums[0] / self.samples,
            "waiting_requests_peak": self._peaks[1],
            "waiting_requests_mean": self._sums[1] / self.samples,
            "kv_cache_peak_pct": self._peaks[2],
            **self.totals,
        }

    def finish(self) -> None:
        """Writes what there was since the last rollout."""
        if not self.samples:  # the engine has a process of its own
            return
        totals = self.summary()
        self._start()
        for name, value in totals.items():
            counter(f"engine/{name}", value)


def _count_outputs(outputs: Iterable[Any]) -> None:
    lengths: list[int] = []
    prompt_tokens = 0
    for output in outputs:
        lengths += [len(completion.token_ids) for completion in output.outputs]
        prompt_tokens += len(output.prompt_token_ids or ()) * len(output.outputs)
    count_tokens(prompt_tokens, lengths)


def count_tokens(prompt_tokens: int, lengths: Sequence[int]) -> None:
    """Tokens of the prompts, once per completion, and of the completions, with their lengths."""
    counts: dict[int, int] = {}
    for length in lengths:
        end = 1 << max(0, length - 1).bit_length()  # 1, 2, 4, 8, ...
        counts[end] = counts.get(end, 0) + 1
    counter("engine/prompt_tokens", float(prompt_tokens))
    counter("engine/generated_tokens", float(sum(lengths)))
    for end, count in counts.items():
        counter(f"engine/completions_of_{end // 2 + 1}_to_{end}_tokens", float(count))


LOAD = EngineLoad()
