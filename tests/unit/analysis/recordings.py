"""Recordings whose moments are whole seconds: spans, steps and samples often meet exactly."""

from __future__ import annotations

import random
from dataclasses import replace

from grpo_doctor.trace.model import Exit, Kind, Trace
from tests.build import TraceBuilder

RANKS, STEPS = 3, 6
GIB = 2**30
_PARTS = ("dataload/read", "rollout/generate", "rollout/generate/http", "reward/a", "train/forward")


def recording(seed: int, steps: int = STEPS) -> Trace:
    """A run of three ranks on two hosts: late ranks, nested and empty spans, two groups, an end."""
    dice = random.Random(seed)
    build = TraceBuilder(
        RANKS,
        hosts=["host-a", "host-a", "host-b"],
        knobs={"rollout.num_generations": 4},
        exit=Exit(state=dice.choice(["finished", "failed", "hung"]), code=seed % 2),
    )
    begins = [0.0] * RANKS
    for number in range(steps):
        now = [begin + dice.choice([0, 0, 1]) for begin in begins]
        _work(build, dice, number, now)
        last_s = max(now)
        for rank in range(RANKS):
            # The last step of the last rank does not end.
            is_open = seed % 2 == 1 and (number, rank) == (steps - 1, RANKS - 1)
            build.row(
                Kind.STEP, rank, "step", begins[rank], last_s, depth=0, value=number, open=is_open
            )
            begins[rank] = last_s + dice.choice([0, 0, 1])
    if seed % 2:
        build.open_ranks.add(RANKS - 1)
    _sampled(build, dice, round(max(begins)))
    trace = build.build()
    processes = [
        replace(process, clock=replace(process.clock, error_ns=error_ns))
        for process, error_ns in zip(trace.processes, (0, 500_000_000, 1_000_000_000), strict=True)
    ]
    return replace(trace, processes=tuple(processes))


def _work(build: TraceBuilder, dice: random.Random, number: int, now: list[float]) -> None:
    """The phases of one step; `now` becomes the moments at which they end."""
    extra = {3: "eval", 4: "checkpoint"}.get(number)
    for phase in ("dataload", "offload", "rollout", "reward", "train", *([extra] if extra else [])):
        arrived = {}
        for rank in range(RANKS):
            if phase == "checkpoint" and rank:
                continue
            seconds = dice.choice([0, 1, 2, 3]) if phase != "train" else dice.choice([2, 3])
            begin, now[rank] = now[rank], now[rank] + seconds
            _nested(build, dice, rank, phase, begin, now[rank])
            arrived[rank] = now[rank]
            build.span(rank, phase, begin, now[rank] + (phase == "train"))
            now[rank] += dice.choice([0, 0, 0, 1])
        if phase in ("rollout", "train"):
            members = sorted(arrived) if phase == "train" else sorted(arrived)[: 2 + number % 2]
            over_s = max(arrived[rank] for rank in members) + dice.choice([0, 1])
            call = 2 * number + (phase == "train")
            for rank in members:
                group = "world" if len(members) == RANKS else "pair"
                build.collective(rank, call, arrived[rank], over_s, group=group)
                build.row(
                    Kind.INSTANT, rank, "broadcast", arrived[rank], arrived[rank], depth=3,
                    value=call, args={"group": group, "source": "flight recorder"},
                )  # fmt: skip
                now[rank] = max(now[rank], over_s)


def _nested(
    build: TraceBuilder, dice: random.Random, rank: int, phase: str, begin: float, end: float
) -> None:
    for depth, name in enumerate((p for p in _PARTS if p.startswith(f"{phase}/")), start=2):
        begin = min(end, begin + dice.choice([0, 1]))
        build.span(rank, name, begin, end, depth=depth)


def _sampled(build: TraceBuilder, dice: random.Random, end_s: int) -> None:
    moments = [float(t) for t in range(0, end_s + 1, 2)]
    hosts, build.hosts = build.hosts, ["host-a"] * RANKS
    for rank in range(RANKS):
        gpu = f"GPU-{rank}"
        build.gpu(gpu, index=rank)
        for name, unit, least, most in (
            ("gpu.memory_used", "bytes", 10 * GIB, 80 * GIB),
            ("gpu.util", "percent", 0, 100),
            ("gpu.power", "W", 60, 400),
        ):
            values = [float(dice.randint(least, most)) for _ in moments]
            build.series(name, unit, moments, values, scope="gpu", gpu=gpu)
        build.series("gpu.power_limit", "W", moments[:1], [400.0], scope="gpu", gpu=gpu)
        tokens = [float(dice.randint(0, 900)) for _ in moments]
        build.series("rollout/tokens", "", moments, tokens, scope="counter", rank=rank)
        if dice.random() < 0.5:
            used = [float(dice.randint(0, 10)) for _ in moments]
            build.series(
                "gpu.process_memory", "bytes", moments, used, scope="gpu", gpu=gpu, rank=2 - rank
            )
    build.hosts = hosts
    build.series("host.cpu", "percent", moments, [float(dice.randint(0, 100)) for _ in moments])
