"""Plausible step times: who works how long, who waits for whom, what the samplers saw."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_doctor.phases import PHASES

# A phase after which every rank waits for the slowest.
_MEETING_PHASES = frozenset({"train", "sync"})
_MOST_SAMPLES = 500  # of a series, as documents have
_MOVED = {"offload": 0.9, "sync": 0.6}  # parts of a phase's own time that move data


@dataclass(frozen=True, slots=True)
class Shape:
    """What a made-up run looks like: mean work per phase (s), and one rank that is slower."""

    ranks: int
    steps: int
    phases_s: Mapping[str, float]
    slow_rank: int | None = None
    slow_factor: float = 1.0
    noise: float = 0.06
    gpus: bool = True


Spans = dict[tuple[int, int], list[tuple[str, float, float]]]  # (rank, step): phase, work, wait


def simulate(shape: Shape, rng: random.Random) -> Spans:
    """Return the phases of every rank and step, in order, with work and wait seconds."""
    spans: Spans = {(r, s): [] for r in range(shape.ranks) for s in range(shape.steps)}
    for step in range(shape.steps):
        clock = [0.0] * shape.ranks
        for phase, mean_s in shape.phases_s.items():
            works = [_work(shape, phase, mean_s, rank, rng) for rank in range(shape.ranks)]
            done = max(at + work for at, work in zip(clock, works, strict=True))
            for rank, work in enumerate(works):
                waits = phase in _MEETING_PHASES
                wait = done - clock[rank] - work if waits else 0.0
                spans[rank, step].append((phase, work, wait))
                clock[rank] += work + wait
    return spans


def _work(shape: Shape, phase: str, mean_s: float, rank: int, rng: random.Random) -> float:
    slow = shape.slow_factor if rank == shape.slow_rank and phase == "rollout" else 1.0
    spread = 3 * shape.noise if phase == "rollout" else shape.noise
    return max(0.2 * mean_s, mean_s * slow * rng.gauss(1.0, spread))


def summary_of(shape: Shape, spans: Spans, unattributed_s: float) -> dict[str, Any]:
    """Return the summary's numbers (without the verdict)."""
    totals = sorted(
        sum(work + wait for _, work, wait in spans[0, step]) + unattributed_s
        for step in range(shape.steps)
    )
    mean_step = sum(totals) / len(totals)
    phases, start_s = {}, 0.0
    for phase in shape.phases_s:
        phases[phase] = {"start_s": start_s, **_phase(phase, spans, mean_step)}
        start_s += phases[phase]["seconds"]
    return {
        "step_time_s": mean_step,
        "step_time_p10_s": _quantile(totals, 0.1),
        "step_time_p90_s": _quantile(totals, 0.9),
        "steps": shape.steps,
        "steps_total": shape.steps + 2,
        "warmup_steps": 2,
        "phases": phases,
        "unattributed": {
            "seconds": unattributed_s,
            "share": unattributed_s / mean_step,
            "start_s": start_s,
            "work_seconds": unattributed_s,
            "p10_s": 0.5 * unattributed_s,
            "p90_s": 2 * unattributed_s,
        },
        "gpu_busy_pct": 57.3 if shape.gpus else None,
        "tokens_per_s": 5_230.0,
    }


def _phase(phase: str, spans: Spans, mean_step_s: float) -> dict[str, float]:
    rows = [(work, wait) for row in spans.values() for name, work, wait in row if name == phase]
    totals = sorted(work + wait for work, wait in rows)
    mean = sum(totals) / len(totals)
    work = sum(work for work, _ in rows) / len(rows)
    moved = _MOVED.get(phase, 0.0) * work
    return {
        "seconds": mean,
        "share": mean / mean_step_s,
        "work_seconds": work - moved,
        "wait_seconds": sum(wait for _, wait in rows) / len(rows),
        "transfer_seconds": moved,
        "idle_seconds": 0.0,
        "p10_s": _quantile(totals, 0.1),
        "p90_s": _quantile(totals, 0.9),
    }


def views_of(shape: Shape, spans: Spans, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return heatmap, timeline and metrics."""
    return {
        "heatmap": _heatmap(shape, spans),
        "timeline": timeline_of(shape, spans, float(summary["unattributed"]["seconds"])),
        "metrics": metrics_of(shape.steps),
    }


def _heatmap(shape: Shape, spans: Spans) -> dict[str, Any]:
    def rows(take: Any) -> list[list[float]]:
        return [
            [sum(take(*span) for span in spans[rank, step]) for step in range(shape.steps)]
            for rank in range(shape.ranks)
        ]

    return {
        "ranks": list(range(shape.ranks)),
        "steps": list(range(3, 3 + shape.steps)),
        "step_seconds": rows(lambda _, work, wait: work + wait),
        "wait_seconds": rows(lambda _, __, wait: wait),
        "phase_seconds": {
            phase: rows(lambda name, work, wait, p=phase: work + wait if name == p else 0.0)
            for phase in sorted(shape.phases_s, key=PHASES.index)
        },
    }


def timeline_of(shape: Shape, spans: Spans, gap_s: float) -> dict[str, Any]:
    """Return bands of every rank (for `with_drawn`) and sampled tracks, from 20 s of init on."""
    bands, end_s = [], 20.0
    for rank in range(shape.ranks):
        now = 20.0
        bands.append(_band(rank, "init", 0.0, now))
        for step in range(shape.steps):
            for phase, work, wait in spans[rank, step]:
                bands.append(_band(rank, phase, now, now + work + wait))
                now += work + wait
            now += gap_s
        end_s = max(end_s, now)
    tracks = tracks_of(shape, end_s, [b for b in bands if b["rank"] == 0])
    return {"end_s": end_s, "bands": bands, "tracks": tracks}


def _band(rank: int, phase: str, start_s: float, end_s: float) -> dict[str, Any]:
    return {"rank": rank, "phase": phase, "start_s": start_s, "end_s": end_s, "open": False}


def tracks_of(shape: Shape, end_s: float, bands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return GPU, host and process tracks whose levels follow the phases of rank 0."""
    count = min(_MOST_SAMPLES, max(20, int(end_s)))
    times = [end_s * at / (count - 1) for at in range(count)]
    busy = _busy(times, bands)
    rng = random.Random(1)
    tracks = []
    if shape.gpus:
        for gpu in range(shape.ranks):
            for name, unit, low, high in _GPU_TRACKS:
                values = [_level(low, high, level, rng) for level in busy]
                tracks.append(_track(name, f"GPU {gpu}", unit, times, values))
    for name, unit, low, high in _HOST_TRACKS:
        values = [_level(low, high, 1 - level, rng) for level in busy]
        tracks.append(_track(name, "node-a", unit, times, values))
    for rank in range(shape.ranks):
        values = [_level(9e9, 31e9, level, rng) for level in busy]
        tracks.append(_track("rank.rss", f"rank {rank}", "bytes", times, values))
    return tracks


_GPU_TRACKS = (
    ("gpu.util", "%", 12.0, 97.0),
    ("gpu.memory_used", "bytes", 4.1e10, 7.6e10),
    ("gpu.power", "W", 120.0, 640.0),
    ("gpu.sm_clock", "MHz", 1_755.0, 1_980.0),
)
_HOST_TRACKS = (
    ("host.cpu", "%", 8.0, 62.0),
    ("host.memory_available", "bytes", 4e11, 7e11),
    ("host.psi_io", "%", 0.0, 40.0),
)


def _busy(times: list[float], bands: list[dict[str, Any]]) -> list[float]:
    levels = {"rollout": 0.75, "train": 1.0, "logprob": 0.9, "optimizer": 0.3}
    busy, at = [], 0
    for time in times:
        while at < len(bands) - 1 and bands[at]["end_s"] <= time:
            at += 1
        busy.append(levels.get(bands[at]["phase"], 0.05))
    return busy


def _level(low: float, high: float, level: float, rng: random.Random) -> float:
    return max(0.0, min(high, low + (high - low) * level * rng.uniform(0.85, 1.05)))


def _track(
    name: str, label: str, unit: str, times: list[float], values: list[float]
) -> dict[str, Any]:
    group = name.partition(".")[0]
    return {"name": name, "label": label, "unit": unit, "group": group, "t_s": times, "v": values}


def metrics_of(steps: int) -> dict[str, Any]:
    """Return training metrics that learn something."""
    rng = random.Random(2)
    learned = [1 - math.exp(-3 * at / max(1, steps)) for at in range(steps)]
    return {
        "steps": list(range(3, 3 + steps)),
        "series": {
            "loss": [0.04 * (1 - x) + rng.gauss(0, 0.006) for x in learned],
            "reward": [0.1 + 0.6 * x + rng.gauss(0, 0.03) for x in learned],
            "reward_std": [0.35 - 0.15 * x + rng.gauss(0, 0.02) for x in learned],
            "kl": [0.02 * x + abs(rng.gauss(0, 0.002)) for x in learned],
            "completion_length": [420 + 380 * x + rng.gauss(0, 25) for x in learned],
            "grad_norm": [1.2 - 0.5 * x + abs(rng.gauss(0, 0.2)) for x in learned],
        },
    }


def _quantile(ordered: list[float], fraction: float) -> float:
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]
