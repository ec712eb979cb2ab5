"""verl's shape: a driver with timers that trainers take by name, and workers of other roles."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.analysis import analyse
from grpo_doctor.phases import PHASES
from tests.unit.probes.hooks.hooked_job import recorded, run_job, span_names, step_numbers

PROFILER = """
from contextlib import contextmanager
import time

@contextmanager
def marked_timer(name, timing_raw, color=None, domain=None, category=None):
    begun = time.perf_counter()
    yield
    timing_raw[name] = timing_raw.get(name, 0) + time.perf_counter() - begun

simple_timer = marked_timer
"""
TRACKING = """
class Tracking:
    def __init__(self, project_name, experiment_name, default_backend="console", config=None):
        self.config = config

    def log(self, data, step, backend=None):
        self.latest = step, data
"""
TRAINER = """
import subprocess, sys, time
from verl.utils.debug import marked_timer
from verl.utils.tracking import Tracking

CONFIG = {
    "actor_rollout_ref": {"rollout": {"n": 8}, "actor": {"optim": {"lr": 1e-6}}},
    "trainer": {"nnodes": 1, "n_gpus_per_node": 2}, "data": {"train_batch_size": 4},
}

class PPOTrainer:
    def init(self):
        self.global_steps = 0

    def fit(self, agent_loop_manager):
        self.logger = Tracking("p", "e", "console", config=CONFIG)
        self.global_steps = 1
        while self.global_steps <= 3:
            timing = {}
            with marked_timer("step", timing):
                self._add_batch_to_generate()
                for name in ("gen", "old_log_prob", "ref", "adv", "update_actor", "unknown",
                             "update_weights"):
                    with marked_timer(name, timing, color="red"):
                        time.sleep(0.01)
            with marked_timer("testing", timing):
                with marked_timer("gen", timing):
                    pass
            self.logger.log(data={"critic/rewards/mean": 0.5}, step=self.global_steps)
            self.global_steps += 1
        return timing

    def _add_batch_to_generate(self):
        return self._fetch_one_gen_batch()

    def _fetch_one_gen_batch(self):
        return []
"""
WORKER = """
import os

class Worker:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
"""
ENGINE_WORKERS = """
from verl.single_controller.base.worker import Worker

class TrainingWorker(Worker):
    def train_batch(self, data):
        return self.engine.optimizer_step()

    def infer_batch(self, data):
        return data

class ActorRolloutRefWorker(Worker):
    def __init__(self):
        super().__init__()
        from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
        self.actor = TrainingWorker()
        self.actor.engine = FSDPEngine()

    def compute_log_prob(self, data):
        return self.actor.infer_batch(data)

    compute_log_prob.dispatch = "attribute of a decorator"

    def update_actor(self, data):
        return self.actor.train_batch(data)

    async def update_weights(self, global_steps=None, mode="auto"):
        return global_steps
"""
ENGINE = """
class FSDPEngine:
    def optimizer_step(self):
        return "stepped"
"""
MODULES = {
    "verl.utils.profiler": PROFILER,
    "verl.utils.debug": "from verl.utils.profiler import marked_timer",
    "verl.utils.tracking": TRACKING,
    "verl.trainer.ppo.v1.trainer_base": TRAINER,
    "verl.single_controller.base.worker": WORKER,
    "verl.workers.engine_workers": ENGINE_WORKERS,
    "verl.workers.engine.fsdp.transformer_impl": ENGINE,
}
DRIVER = """
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

trainer = PPOTrainer()
trainer.init()
print(sorted(trainer.fit(None)))
"""
JOB = (
    """
import os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
import verl.utils.debug

def work(rank):
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
    subprocess.run([sys.executable, "actor.py"], env=environment, check=True)

for rank in (1, 0):
    work(rank)
"""
    + DRIVER
)
ACTOR = """
import asyncio
from verl.workers.engine_workers import ActorRolloutRefWorker

worker = ActorRolloutRefWorker()
assert worker.compute_log_prob.dispatch == "attribute of a decorator"
assert asyncio.iscoroutinefunction(worker.update_weights)
assert worker.compute_log_prob([1]) == [1]
assert worker.update_actor([1]) == "stepped"
assert asyncio.run(worker.update_weights(7)) == 7
"""


def test_the_driver_has_steps_phases_settings_and_metrics(tmp_path: Path) -> None:
    result = run_job(tmp_path, DRIVER, modules=MODULES)
    assert (result.returncode, result.stderr) == (0, "")
    assert "'old_log_prob'" in result.stdout
    trace = recorded(tmp_path)
    assert [(p.role, p.rank) for p in trace.processes] == [("driver", 0)]
    assert step_numbers(trace) == [1, 2, 3]
    of_step = [
        "rollout/submit", "dataload", "rollout", "logprob/old", "logprob/reference",
        "reward/advantages", "train", "sync", "eval",
    ]  # fmt: skip
    assert span_names(trace) == ["init", *of_step * 3]
    assert (trace.run.framework, trace.run.world_size) == ("verl", 2)
    assert trace.run.knobs["rollout.num_generations"] == 8
    assert trace.metrics.steps.tolist() == [1, 2, 3]
    assert not trace.loss.missing_ranks
    assert analyse(trace).ranks == (0,)


def test_workers_are_processes_of_their_own_roles(tmp_path: Path) -> None:
    (tmp_path / "actor.py").write_text(ACTOR)
    result = run_job(tmp_path, JOB, modules=MODULES)
    assert (result.returncode, result.stderr) == (0, "")
    trace = recorded(tmp_path)
    assert [(p.role, p.rank) for p in trace.processes] == [
        ("driver", 0), ("actor", 0), ("actor", 1),
    ]  # fmt: skip
    own = trace.spans.select(trace.spans.process == 1)
    names = [trace.names[name] for name in own.name]
    assert names == ["logprob/old", "train", "train/mini_batch", "optimizer", "sync"]
    assert not trace.loss.missing_ranks
    analysis = analyse(trace)
    assert analysis.ranks == (0, 1)
    assert analysis.steps.numbers.tolist() == [1, 2, 3]
    assert analysis.seconds[:, 1, PHASES.index("rollout")].min() > 0.009
