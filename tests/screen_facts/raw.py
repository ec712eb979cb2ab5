"""What a recording holds, added up from its events alone: no code of the product is used."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

_Span = tuple[float, float, str]
_PHASES = frozenset(
    (
        "init", "dataload", "rollout", "reward", "logprob", "train", "optimizer", "sync",
        "offload", "checkpoint", "eval",
    )
)  # fmt: skip


@dataclass(frozen=True)
class RawStep:
    """One step on one rank, in microseconds since the recording began."""

    number: int
    pid: int
    start_us: float
    end_us: float

    @property
    def seconds(self) -> float:
        return (self.end_us - self.start_us) / 1e6


@dataclass(frozen=True)
class Raw:
    """A trace.json as it was written."""

    head: dict[str, Any]
    events: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Raw:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            content = json.load(file)
        return cls(content["grpoDoctor"], content["traceEvents"])

    @cached_property
    def ranks(self) -> dict[int, int]:
        """The rank of each process that carries steps, by its number in the trace."""
        stepping = {e["pid"] for e in self.events if e.get("cat") == "grpo.step"}
        carriers = [p for p in self.head["processes"] if p["pid"] in stepping]
        drivers = [p for p in carriers if p["role"] == "driver"]
        return {p["pid"]: p["rank"] for p in drivers or carriers}

    @cached_property
    def has_driver(self) -> bool:
        """Whether one process carries the steps of others, as under Ray."""
        return any(process["role"] == "driver" for process in self.head["processes"])

    @cached_property
    def steps(self) -> list[RawStep]:
        return [
            RawStep(int(e["value"]), e["pid"], e["ts"], e["ts"] + e["dur"])
            for e in self.events
            if e.get("cat") == "grpo.step" and e["ph"] == "X" and e["pid"] in self.ranks
        ]

    @cached_property
    def last_begun(self) -> int:
        """The last step that began, also where its own span was lost with it; 0 without steps."""
        ended = {
            e["value"]: e["ts"] + e.get("dur", 0)
            for e in self.events
            if e.get("cat") == "grpo.step"
        }
        if not ended:
            return 0
        last = max(ended)
        goes_on = any(
            start >= ended[last] for pid in self.ranks for start, _, _ in self._spans[pid]
        )
        return int(last) + goes_on

    def whole(self) -> set[int]:
        """Steps that ended on every rank that carries steps."""
        ended: dict[int, set[int]] = defaultdict(set)
        for step in self.steps:
            ended[step.number].add(step.pid)
        return {number for number, pids in ended.items() if pids == set(self.ranks)}

    def step_seconds(self, numbers: set[int]) -> dict[int, list[float]]:
        """How long each step took on each rank."""
        lengths: dict[int, list[float]] = defaultdict(list)
        for step in self.steps:
            if step.number in numbers:
                lengths[step.number].append(step.seconds)
        return lengths

    def phase_seconds(self, numbers: set[int]) -> dict[str, float]:
        """Mean seconds of each phase over the steps and ranks; of nested spans the inner counts."""
        total: dict[str, float] = defaultdict(float)
        windows: dict[int, list[RawStep]] = defaultdict(list)
        for step in self.steps:
            if step.number in numbers:
                windows[step.pid].append(step)
        for pid, steps in windows.items():
            for phase, start, end in _own_parts(self._spans[pid]):
                for step in steps:
                    total[phase] += max(0.0, min(end, step.end_us) - max(start, step.start_us))
        count = sum(map(len, windows.values()))
        return {phase: us / 1e6 / count for phase, us in total.items()}

    @cached_property
    def _spans(self) -> dict[int, list[_Span]]:
        """Phases and their parts on the thread that carries the steps, by process."""
        spans: dict[int, list[_Span]] = defaultdict(list)
        for event in self.events:
            if event.get("cat") != "grpo.phase" or event["ph"] != "X" or event["tid"] != 1:
                continue
            phase = event["name"].partition("/")[0]
            if phase in _PHASES:
                spans[event["pid"]].append((event["ts"], event["ts"] + event["dur"], phase))
        return spans

    def mean_step_s(self, numbers: set[int]) -> float:
        """Mean over the steps, then over the ranks."""
        lengths = self.step_seconds(numbers)
        return mean(mean(seconds) for seconds in lengths.values()) if lengths else 0.0


def _own_parts(spans: list[_Span]) -> Iterator[tuple[str, float, float]]:
    """Stretches of time, each under the innermost span that covers it."""
    edges = sorted({moment for start, end, _ in spans for moment in (start, end)})
    ordered = sorted(spans, key=lambda span: (span[0], -span[1]))
    open_spans: list[_Span] = []
    position = 0
    for left, right in pairwise(edges):
        open_spans = [span for span in open_spans if span[1] > left]
        while position < len(ordered) and ordered[position][0] <= left:
            open_spans.append(ordered[position])
            position += 1
        if open_spans:
            yield open_spans[-1][2], left, right


def quantile(values: list[float], part: float) -> float:
    """The value below which so large a part lies, between neighbors by a line."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
