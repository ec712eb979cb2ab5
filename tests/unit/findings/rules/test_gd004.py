from __future__ import annotations

import random
from typing import Any

from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import straggling
from tests.unit.findings.rules.saying import even, rows, run, with_knobs
from tests.unit.findings.rules.test_gd035 import NO_REWARD, slow_at_it
from tests.unit.findings.rules.test_gd035 import sick as scoring_alone


def chained() -> TraceBuilder:
    """Rank 0 trains 2 s longer; rank 1 waits for it, and rank 2 then waits for rank 1."""
    build = TraceBuilder(ranks=3)
    for number in range(6):
        at = 10.0 * number
        for rank, train in ((0, 5.0), (1, 3.0), (2, 3.0)):
            build.span(rank, "train", at, at + train)
        build.collective(0, number, at + 5.0, at + 5.1, group="pair-a")
        build.collective(1, number, at + 3.0, at + 5.1, group="pair-a")
        build.collective(1, number, at + 5.2, at + 5.3, group="pair-b")
        build.collective(2, number, at + 3.0, at + 5.3, group="pair-b")
        for rank in range(3):
            build.collective(rank, number, at + 5.4, at + 5.5)
            build.step(rank, number, at, {}, end_s=at + 5.6)
    return build


def spread(always_late_s: float, steps: int = 12) -> TraceBuilder:
    """Eight ranks whose rollouts spread by 1.2 s; rank 7's take some seconds more, in every step.

    The collective behind the rollout returns at once, and each rank blocks in a later wait.
    """
    draw = random.Random(3)
    build = TraceBuilder(ranks=8)
    for number in range(steps):
        at = 20.0 * number
        rollouts = [5.0 + 1.2 * draw.random() for _ in range(8)]
        rollouts[7] += always_late_s
        last = at + max(rollouts)
        for rank, rollout in enumerate(rollouts):
            build.span(rank, "rollout", at, at + rollout)
            build.collective(rank, number, at + rollout, at + rollout + 0.001)
            args, waits = {"group": "world"}, (at + rollout + 0.01, last + 0.1)
            build.span(rank, "train", at + rollout, last + 3.0)
            build.row(
                Kind.COLLECTIVE_WAIT, rank, "wait", *waits, depth=2, value=float(number), args=args
            )
            build.step(rank, number, at, {}, end_s=last + 3.1)
    return build


def saving(
    train_s: tuple[float, float] = (3.0, 3.0), duty: str = "checkpoint", **run: Any
) -> TraceBuilder:
    """Rank 0 writes a checkpoint in every step, and the ranks meet after the next passes."""
    build = TraceBuilder(ranks=2, **run)
    meets = max(train_s[0] + 2.0, train_s[1])
    for number in range(12):
        at = 10.0 * number
        for rank, train in enumerate(train_s):
            begin = at if rank else at + 2.0
            build.span(rank, "train", begin, begin + train)
            build.collective(rank, number, begin + train, at + meets)
            build.step(rank, number, at, {}, end_s=at + 9.9)
        build.span(0, duty, at, at + 2.0)
    return build


def a_rank_that_is_late_by_chance_is_not_the_straggler() -> TraceBuilder:
    build, now = TraceBuilder(ranks=2), 0.0
    for step, extra in enumerate([0.2, 0.2, 0.2, 3.0, 0.2, 0.2, 0.2, 3.0, 0.2]):
        end = now + 4.1 + extra
        for rank, train in ((0, 4.0), (1, 4.0 + extra)):
            build.span(rank, "train", now, end)
            build.collective(rank, step, now + train, end)
            build.step(rank, step, now, {}, end_s=end)
        now = end
    return build


def always_last() -> TraceBuilder:
    return spread(1.3)


RUNS = {
    "who alone scores is told once": scoring_alone,
    "a rank that is slow at what all do": lambda: slow_at_it(
        run(NO_REWARD, slow={1: {"reward": 2.0}})),
    "without collectives the signal is missing": lambda: even({"train": 5.0}, ranks=2),
    "a rank that the server answers last is not slow": lambda: run(slow={2: {"rollout": 2.0}},
        knobs=with_knobs(vllm__mode="server")),
    "who is always last is named though the others spread too": lambda: spread(1.3),
    "spread alone names nobody": lambda: spread(0.0),
    "a few steps do not make always": lambda: spread(1.3, steps=5),
    **rows(
        "who alone sends the weights is not late",
        lambda framework, mode: saving(
            duty="sync",
            framework=framework,
            knobs={"vllm.use": True, "vllm.mode": mode} if mode else {},
        ),
        ("openrlhf", None),
        ("trl", "server"),
        ("ms-swift", "server"),
        ("trl", "colocate"),
        ("verl", None),
    ),
    "who alone takes the samples of a rollout beside it is not late":
        lambda: saving(duty="rollout/wait", framework="trl"),
    "who writes the checkpoints can be slow besides": lambda: saving((6.0, 3.0)),
    **rows("six steps make always", lambda steps: spread(1.3, steps=steps), 6, 5),
    "the straggler is named with its own host": lambda: run(slow={2: {"rollout": 2.0}},
        hosts=["host-a", "host-b", "host-c", "host-d"], memory_gib=None),
    "a rank that is slow in everything has no phase to name": lambda:
        run(slow={2: dict.fromkeys(("dataload", "rollout", "reward", "logprob", "train"), 0.5)}),
    "it is named with its phase and replayed": straggling,
    "two slow ranks are not one": lambda: run(slow={1: {"rollout": 2.0}, 2: {"rollout": 2.0}}),
}  # fmt: skip
