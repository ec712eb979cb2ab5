"""The predicted split of an asynchronous run's GPUs, against simulated runs of that split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.rule import Finding
from grpo_doctor.findings.rules import gd027_starved_trainer as rule
from grpo_doctor.findings.sides import best_split, sides_of
from grpo_doctor.trace.model import RolloutServer
from tests.build import TraceBuilder

STEPS = 40


@dataclass(frozen=True)
class Job:
    """GPU seconds of a batch on both sides, and seconds of the trainer that no GPU shortens; the
    queue holds one batch."""

    trains: float
    generates: float
    fixed: float = 0.5
    noise: float = 0.1
    engine: int = 1

    def run(self, train: int, generate: int, seed: int = 0) -> TraceBuilder:
        dice = np.random.default_rng(seed)
        knobs = {"vllm.tensor_parallel_size": self.engine,
                 "vllm.data_parallel_size": generate // self.engine}  # fmt: skip
        build = TraceBuilder(ranks=train + 1, framework="openrlhf", knobs=knobs)
        build.roles[train] = "rollout-loop"
        taken, ready, at = 0.0, self.generates / generate, self.generates / generate
        for number in range(STEPS):
            waits = max(0.0, ready - at)
            own = self.trains / train * dice.uniform(1 - self.noise, 1 + self.noise)
            for rank in range(train):
                parts = {"rollout/wait": waits, "train": own, "sync": self.fixed}
                build.step(rank, number, at, parts)
            taken = at + waits  # the loop begins the next batch once there is room for it
            begins = max(taken, ready)
            if begins > ready:
                build.span(train, "rollout/queue", ready, begins)
            busy = self.generates / generate * dice.uniform(1 - self.noise, 1 + self.noise)
            build.span(train, "rollout/generate", begins, begins + busy)
            at, ready = taken + own + self.fixed, begins + busy
        return build


def step_s(build: TraceBuilder) -> float:
    return RunView.of(build.build()).step_s


@pytest.mark.parametrize(("job", "now", "best"), [
    (Job(trains=20, generates=60), (4, 4), (2, 6)),
    (Job(trains=60, generates=20), (4, 4), (6, 2)),
    (Job(trains=60, generates=20, noise=0.3), (4, 4), (6, 2)),
    (Job(trains=30, generates=90, engine=2), (8, 8), (4, 12)),
    (Job(trains=40, generates=24, engine=4, fixed=2.0), (4, 12), (12, 4)),
])  # fmt: skip
def test_the_step_of_another_split_is_what_was_predicted(
    job: Job, now: tuple[int, int], best: tuple[int, int]
) -> None:
    build = job.run(*now)
    view = RunView.of(build.build())
    answer = rule.check(view)
    assert isinstance(answer, Finding)
    (fix,) = (view.predicted(fix) for fix in answer.fixes)
    assert f"move {abs(now[0] - best[0])} of the" in fix.spelling
    measured = 100 * (step_s(job.run(*best, seed=1)) / view.step_s - 1)
    assert fix.predicted is not None
    assert fix.predicted.low <= measured <= fix.predicted.high
    assert fix.predicted.mid == pytest.approx(measured, abs=7)


@pytest.mark.parametrize(("job", "split", "why"), [
    (Job(trains=20, generates=30, engine=2), (2, 2), "no other split of the 4 GPUs is faster"),
    (Job(trains=40, generates=40), (4, 4), "no other split of the 8 GPUs is faster"),
])  # fmt: skip
def test_a_split_that_gains_nothing_is_not_advised(
    job: Job, split: tuple[int, int], why: str
) -> None:
    view = RunView.of(job.run(*split).build())
    assert best_split(view, sides_of(view)) == why


def test_copies_of_the_model_that_do_not_fill_a_side_are_not_modeled() -> None:
    build = Job(trains=20, generates=60).run(4, 4)
    build.knobs["parallel.tensor"] = 8
    build.framework, build.framework_version = "ms-swift", "4.6.0"
    view = RunView.of(build.build())
    assert "not modeled: 4 GPUs for copies of 8" in str(best_split(view, sides_of(view)))


def test_a_server_with_flags_of_its_own_is_known_once_it_joins() -> None:
    build = Job(trains=20, generates=60).run(4, 4)
    build.knobs, build.framework, build.framework_version = {}, "trl", "1.16.0"
    for index in range(8):
        build.gpu(f"GPU-{index}", index=index)
    view = RunView.of(build.build())
    assert "unknown" in str(best_split(view, sides_of(view)))
    serve = ("vllm", "serve", "m", "--tensor-parallel-size", "2", "--data-parallel-size=2")
    build.servers.append(RolloutServer("vm", 9, serve))
    view = RunView.of(build.build())
    assert sides_of(view).gpus == (4, 4)
    split = best_split(view, sides_of(view))
    assert isinstance(split, tuple)
    assert split[:2] == (2, 4)
