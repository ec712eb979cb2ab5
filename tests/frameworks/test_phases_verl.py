"""verl's own GRPO jobs under `grpo-doctor run`: phases against verl's timers, which it logs.

Needs verl in an environment of its own: `python -m tests.frameworks verl --build`, in the folder
that FRAMEWORK_ENVIRONMENTS names (/tmp/framework-environments without it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.phases import PHASES
from grpo_doctor.trace.intervals import union
from tests.frameworks import environments
from tests.frameworks.inputs import write_model, write_prompts
from tests.frameworks.jobs import CODE, Setting, command
from tests.frameworks.recorded_jobs import ENVIRONMENTS, RayJob, recording, run_logged

STEPS, SLEEP_S = 5, 1.0
PYTHON = environments.python_of(ENVIRONMENTS / "env-verl")
REWARD, ACTOR = "reward.custom_reward_function.", "actor_rollout_ref.actor."
# Names of our driver's spans by those of verl's timers.
TIMERS = {
    "rollout": "gen", "logprob/old": "old_log_prob", "train": "update_actor",
    "sync": "update_weights", "reward/advantages": "adv",
}  # fmt: skip
TIMED = re.compile("timing|perf/|time")

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"needs verl: {PYTHON} is not there"),
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Done(RayJob):
    @cached_property
    def output(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log)

    @cached_property
    def logged(self) -> dict[int, dict[str, float]]:
        """What verl logged of each step, by its names."""
        number = r"([\w/()-]+):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?)"
        rows = re.findall(r"step:(\d+) - (.*)", self.output)
        return {int(step): {k: float(v) for k, v in re.findall(number, row)} for step, row in rows}


def job(folder: Path, *prefix: str, options: tuple[str, ...] = (), **more: str) -> Done:
    folder.mkdir()
    model, data = write_model(folder.parent / "model"), write_prompts(folder.parent / "data")
    options = (
        f"trainer.total_training_steps={STEPS}", f"{REWARD}path={CODE / 'verl_stopwatch.py'}",
        f"{REWARD}name=length_score", *options,
    )  # fmt: skip
    more = {"REWARD_SLEEP_S": str(SLEEP_S), "REWARD_LOG": str(folder / "rewards.txt"), **more}
    words, variables = command(Setting("verl", PYTHON, model, data, folder, options, more))
    return Done(run_logged([*prefix, *words], variables, folder), folder)


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("verl") / "hooked"
    done = job(folder, *recording(folder / "run"))
    assert done.code == 0, done.output[-3000:]
    return done


def test_each_step_and_phase_is_as_long_as_verl_says(hooked: Done) -> None:
    assert sorted(hooked.logged) == list(range(1, STEPS + 1))
    lengths = hooked.analysis.steps.seconds[:, 0]
    for step, logged in hooked.logged.items():
        assert lengths[step - 1] == pytest.approx(logged["timing_s/step"], rel=0.05, abs=0.02)
        for name, timer in TIMERS.items():
            measured = hooked.driver_seconds(step, name)
            assert measured == pytest.approx(logged[f"timing_s/{timer}"], rel=0.05, abs=0.001)
    assert hooked.analysis.share("unattributed") < 0.05


def test_ranks_are_the_actors_and_none_is_missing(hooked: Done) -> None:
    analysis, trace = hooked.analysis, hooked.trace
    roles = [p.role for p in trace.processes]
    assert (roles.count("driver"), roles.count("actor"), roles.count("trainer")) == (1, 2, 0)
    assert analysis.ranks == (0, 1)
    assert (trace.run.world_size, trace.loss.missing_ranks) == (2, ())
    optimizer = analysis.used_seconds[:, :, PHASES.index("optimizer")]
    assert optimizer.min() > 0


def test_a_slow_reward_comes_back_as_reward(hooked: Done) -> None:
    """The spans of the calls take as long as the calls; what is left when nothing is generated
    any more is the phase."""
    trace = hooked.trace
    name = trace.names.index("reward/length_score")
    calls = trace.spans.select(trace.spans.name == name)
    truth = hooked.rewards
    spent = (calls.end_ns - calls.start_ns).sum()
    assert len(calls) == len(truth) == 16 * STEPS
    assert spent == pytest.approx((truth[:, 1] - truth[:, 0]).sum(), rel=0.01)
    together = union(np.sort(truth[:, 0]), truth[np.argsort(truth[:, 0]), 1]).total_ns / 1e9
    in_phase = float(hooked.analysis.seconds[:, 0, PHASES.index("reward")].sum())
    assert 0.5 * together < in_phase < 1.05 * together


def test_the_report_speaks_of_verl(hooked: Done) -> None:
    run = hooked.trace.run
    assert (run.framework, run.framework_version) == ("verl", "0.9.1")
    assert run.knobs["rollout.num_generations"] == 4
    curve = hooked.trace.metrics.values["critic/rewards/mean"]
    assert curve.tolist() == pytest.approx(
        [logged["critic/rewards/mean"] for logged in hooked.logged.values()]
    )


def test_metrics_and_exit_code_are_those_of_the_job_alone(tmp_path: Path) -> None:
    """In which order verl trains on the samples of a batch differs from run to run, so here they
    are of one prompt, and alike; entropy moves the weights."""
    alike = (
        "data.train_batch_size=1", f"{ACTOR}ppo_mini_batch_size=1", f"{ACTOR}entropy_coeff=1",
        f"{ACTOR}ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
    )  # fmt: skip
    folder = tmp_path / "hooked"
    hooked = job(folder, *recording(folder / "run"), options=alike, ROLLOUT="greedy")
    alone = job(tmp_path / "alone", options=alike, ROLLOUT="greedy")
    assert alone.code == hooked.code == 0
    assert sorted(alone.logged) == sorted(hooked.logged) == list(range(1, STEPS + 1))
    for step, logged in alone.logged.items():
        curves = {name: value for name, value in logged.items() if not TIMED.search(name)}
        assert {name: hooked.logged[step][name] for name in curves} == curves
