"""OpenRLHF's own GRPO jobs under `grpo-doctor run`: phases against the times that it logs.

Needs OpenRLHF in an environment of its own: `python -m tests.frameworks openrlhf --build`, in the
folder that FRAMEWORK_ENVIRONMENTS names (/tmp/framework-environments without it).
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

STEPS, SLEEP_S = 6, 0.2
PROMPTS, COMPLETIONS = 4, 16  # of a step
PYTHON = environments.python_of(ENVIRONMENTS / "env-openrlhf")
# Names of our driver's spans by those of OpenRLHF's times.
TIMES = {
    "rollout": "generation", "logprob": "make_experience", "train/update": "ppo_train",
    "sync": "broadcast",
}  # fmt: skip
OPTIONS = {
    "data.max_samples": STEPS * PROMPTS, "train.num_episodes": 1,
    "reward.remote_url": CODE / "openrlhf_stopwatch.py",
    "ckpt.save_steps": 5,
    "rollout.top_p": 1e-6, "algo.advantage.estimator": "reinforce",
}  # fmt: skip

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"needs OpenRLHF: {PYTHON} is not there"),
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Done(RayJob):
    @cached_property
    def logged(self) -> dict[int, dict[str, float]]:
        """What OpenRLHF logged of each step, by its names."""
        rows = re.findall(r"Global step (\d+): (\{.*\})\s*$", self.log, re.MULTILINE)
        number = r"'([\w/.]+)': (-?[\d.]+(?:e-?\d+)?)"
        return {int(step): {k: float(v) for k, v in re.findall(number, row)} for step, row in rows}

    @property
    def rewards(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """In the order in which they began."""
        calls = super().rewards
        return calls[np.argsort(calls[:, 0])]


def job(folder: Path, *prefix: str) -> Done:
    folder.mkdir()
    model, data = write_model(folder.parent / "model"), write_prompts(folder.parent / "data")
    options = [text for name, value in OPTIONS.items() for text in (f"--{name}", str(value))]
    options += ["--ckpt.path", str(folder / "checkpoints"), "--train.full_determinism_enable"]
    more = {"REWARD_SLEEP_S": str(SLEEP_S), "REWARD_LOG": str(folder / "rewards.txt")}
    setting = Setting("openrlhf", PYTHON, model, data, folder, tuple(options), more)
    words, variables = command(setting)
    return Done(run_logged([*prefix, *words], variables, folder), folder)


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("openrlhf") / "hooked"
    done = job(folder, *recording(folder / "run"))
    assert done.code == 0, done.log[-3000:]
    return done


def test_each_phase_is_as_long_as_openrlhf_says(hooked: Done) -> None:
    assert sorted(hooked.logged) == list(range(1, STEPS + 1))
    assert hooked.analysis.steps.numbers.tolist() == list(range(1, STEPS + 1))
    for step, logged in hooked.logged.items():
        for name, time in TIMES.items():
            measured = hooked.driver_seconds(step, name)
            assert measured == pytest.approx(logged[f"timing/{time}"], rel=0.05, abs=0.001)
    assert hooked.analysis.share("unattributed") < 0.05


def test_ranks_are_the_actors_and_none_is_missing(hooked: Done) -> None:
    analysis, trace = hooked.analysis, hooked.trace
    roles = sorted(p.role for p in trace.processes)
    assert roles == ["actor", "actor", "driver", "engine", "rollout"]
    assert analysis.ranks == (0, 1)
    assert (trace.run.world_size, trace.loss.missing_ranks) == (2, ())
    seconds = {phase: analysis.seconds[:, :, code] for code, phase in enumerate(PHASES)}
    for phase in ("dataload", "rollout", "reward", "logprob", "train", "optimizer", "sync"):
        assert seconds[phase].min() > 0, phase
    assert seconds["checkpoint"].sum(axis=1).nonzero()[0].tolist() == [4]


def test_a_slow_reward_comes_back_as_reward(hooked: Done) -> None:
    """Spans of the calls are as long as the calls; the phase is what is left of them when nothing
    is generated any more."""
    trace, truth = hooked.trace, hooked.rewards
    name = trace.names.index("reward/length_score")
    calls = trace.spans.select(trace.spans.name == name)
    spent = (calls.end_ns - calls.start_ns).sum()
    assert len(calls) == len(truth) == COMPLETIONS * STEPS
    assert spent == pytest.approx((truth[:, 1] - truth[:, 0]).sum(), rel=0.01)
    together = union(truth[:, 0], np.maximum.accumulate(truth[:, 1])).total_ns / 1e9
    in_phase = float(hooked.analysis.seconds[:, 0, PHASES.index("reward")].sum())
    assert 0.5 * together < in_phase < 1.05 * together


def test_the_report_speaks_of_openrlhf(hooked: Done) -> None:
    run = hooked.trace.run
    assert (run.framework, run.framework_version) == ("openrlhf", "0.11.2")
    assert run.knobs["rollout.num_generations"] == 4
    curve = hooked.trace.metrics.values["rollout/reward_mean"].tolist()
    assert curve == [logged["rollout/reward_mean"] for logged in hooked.logged.values()]


def test_exit_code_steps_and_schedule_are_those_of_the_job_alone(
    hooked: Done, tmp_path: Path
) -> None:
    """Rewards can't be compared: two runs of OpenRLHF alone differ too, since its controller
    shuffles prompts without a seed."""
    alone = job(tmp_path / "alone")
    assert alone.code == hooked.code == 0
    assert [(step, set(row), row["actor_lr"]) for step, row in alone.logged.items()] == [
        (step, set(row), row["actor_lr"]) for step, row in hooked.logged.items()
    ]
