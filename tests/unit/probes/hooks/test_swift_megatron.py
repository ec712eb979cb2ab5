"""ms-swift's phases on Megatron, under torchrun and with a Ray driver, in its shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.unit.probes.hooks.hooked_job import recorded, run_job, span_names, step_numbers

_TRAINERS, _RAY = "swift.megatron.trainers", "swift.ray.megatron"
UTILS = """
def offload_megatron_model_to_cpu(models): pass
def load_megatron_model_to_gpu(models): pass
"""
BASE = """
class State:
    iteration = 0

class Optimizer:
    def step(self): return True, 1.0, None

class Chained(Optimizer):
    pass

class Arguments:
    def __init__(self):
        self.train_iters, self.tuner_type, self.micro_batch_size, self._hidden = 2, "lora", 4, 1

class BaseMegatronTrainer:
    def __init__(self):
        self.args, self.state, self.optimizer = Arguments(), State(), Chained()

    def _prepare_data_iterator(self, train_dataset, val_dataset=None):
        return iter(train_dataset), None

    def train(self, train_dataset, val_dataset):
        iterator, _ = self._prepare_data_iterator(train_dataset, val_dataset)
        while self.state.iteration < self.args.train_iters:
            self.train_step(iterator)
            self.state.iteration += 1
            self.on_log(logs={"n_steps": 1, "loss": 0.5})
        self.evaluate(iterator)
        self.save_checkpoint()

    def train_step(self, train_data_iterator):
        for batch in self._replace_data_iterator(train_data_iterator):
            self.loss_func(batch)
        return self.optimizer.step()

    def on_log(self, logs, prefix=""): logs.pop("n_steps")
    def evaluate(self, iterator): self.loss_func(None)
    def save_checkpoint(self): pass
"""
MIXIN = """
from swift.megatron.trainers.utils import load_megatron_model_to_gpu, offload_megatron_model_to_cpu

class MegatronRolloutMixin:
    def _replace_data_iterator(self, iterator): return self._build_rollout_buffer(iterator)

    def _generate_completions(self, samples):
        self._move_model_to_vllm()
        offload_megatron_model_to_cpu([])
        samples = self._colocate_rollout(samples)
        load_megatron_model_to_gpu([])
        return samples

    def _colocate_rollout(self, samples): return samples
    def _move_model_to_vllm(self): pass
"""
TRAINER = """
from swift.megatron.trainers.base import BaseMegatronTrainer
from swift.megatron.trainers.rollout_mixin import MegatronRolloutMixin

class MegatronGRPOTrainer(MegatronRolloutMixin, BaseMegatronTrainer):
    def __init__(self, reward_funcs):
        super().__init__()
        self.reward_funcs, self.reward_func_names = reward_funcs, ["Length"]
        self.reward_model_plugins = [None]

    def _build_rollout_buffer(self, iterator):
        return self._generate_and_score_completions([next(iterator)])

    def _generate_and_score_completions(self, inputs):
        samples = self._generate_completions(inputs)
        self._score_completions(samples)
        self._maybe_compute_logps(samples)
        self._compute_advantages(samples)
        return samples

    def _score_completions(self, samples): return [f(samples) for f in self.reward_funcs]
    def _maybe_compute_logps(self, batch): pass
    def _compute_advantages(self, samples): pass
    def loss_func(self, output): pass
"""
MODULES = {
    f"{_TRAINERS}.utils": UTILS,
    f"{_TRAINERS}.base": BASE,
    f"{_TRAINERS}.rollout_mixin": MIXIN,
    f"{_TRAINERS}.grpo_trainer": TRAINER,
}
PROGRAM = """
from swift.megatron.trainers.grpo_trainer import MegatronGRPOTrainer

class Length:
    def __call__(self, samples): return [1.0]

MegatronGRPOTrainer([Length()]).train([[1], [2], [3]], None)
"""
STEP = [
    "train", "rollout", "dataload", "sync", "offload", "rollout/generate", "offload", "reward",
    "reward/Length", "logprob", "reward/advantages", "train/loss", "optimizer",
]  # fmt: skip


def run(folder: Path, program: str, modules: Mapping[str, str]) -> None:
    result = run_job(folder, program, modules=modules)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_step_on_megatron_has_all_its_phases(tmp_path: Path) -> None:
    run(tmp_path, PROGRAM, MODULES)
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2]
    assert span_names(trace) == [*STEP, *STEP, "eval", "checkpoint"]
    job = json.loads((tmp_path / "run" / "job.json").read_text())
    assert job["framework"] == "ms-swift"
    settings = {"train_iters": 2, "tuner_type": "lora", "micro_batch_size": 4}
    assert {name: job["config"].get(name) for name in settings} == settings
    assert "_hidden" not in job["config"]


DRIVER = {
    f"{_RAY}.driver_utils": "def extract_iteration(results): return results",
    f"{_RAY}.worker_group": """
class WorkerGroup:
    world_size = 2
    def __init__(self): self.done = 0
    def execute(self, method_name, *args, dispatch="broadcast", collect="all"):
        if method_name == "train_step":
            self.done += 1
        return self.done
""",
    f"{_RAY}.checkpoint_engine.manager": """
class CheckpointEngineManager:
    def __init__(self, group): self.group = group
    def sync_weights(self, merge_and_sync=True):
        self.wake_up_rollout()
        self.group.execute("update_weights")
    def wake_up_rollout(self, tags=None): pass
""",
    f"{_RAY}.base_trainer": """
class BaseRayTrainer:
    def __init__(self, args): self.args = args
    def _build_dataloader(self): self._data_iter = iter([[1], [2], [3]])
    def train(self, group):
        self._build_dataloader()
        return self._train_loop(group, 2, 0)
""",
    f"{_RAY}.grpo_trainer": """
from swift.ray.megatron.base_trainer import BaseRayTrainer
from swift.ray.megatron.checkpoint_engine.manager import CheckpointEngineManager
from swift.ray.megatron.driver_utils import extract_iteration

class GRPOTrainer(BaseRayTrainer):
    def _train_loop(self, tg, train_iters, iteration):
        weights = CheckpointEngineManager(tg)
        while iteration < train_iters:
            weights.sync_weights()
            batch = next(self._data_iter)
            self.score_completions(self._generate(batch))
            tg.execute("compute_logps", batch)
            tg.execute("compute_ref_logps", batch)
            iteration = extract_iteration(tg.execute("train_step", batch))
        return iteration
    def _generate(self, samples): return samples
    def score_completions(self, samples): return [f(samples) for f in self.reward_funcs]
""",
}
RAY_PROGRAM = """
from swift.ray.megatron.grpo_trainer import GRPOTrainer
from swift.ray.megatron.worker_group import WorkerGroup

class Arguments:
    def __init__(self): self.tuner_type = "lora"

def short(samples): return [0.0]

trainer = GRPOTrainer(Arguments())
trainer.reward_funcs, trainer.reward_func_names = [short], ["short"]
assert trainer.train(WorkerGroup()) == 2
"""


def test_a_ray_driver_carries_the_steps_and_waits_in_its_workers_phases(tmp_path: Path) -> None:
    run(tmp_path, RAY_PROGRAM, DRIVER)
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2]
    step = [
        "sync", "offload", "sync/send", "dataload", "rollout", "reward", "reward/short",
        "logprob/old", "logprob/reference", "train",
    ]  # fmt: skip
    assert span_names(trace) == [*step, *step]
    assert [process.role for process in trace.processes] == ["driver"]
    assert json.loads((tmp_path / "run" / "job.json").read_text())["world_size"] == 2


WORKER = """
class MegatronWorker:
    def __init__(self): self._megatron = None
    def train_step(self, micro_batches): return {}
    def compute_logps(self, micro_batches): return []
    def update_weights(self, adapter_only=False): pass
"""


def test_a_rays_worker_has_a_role_and_no_steps(tmp_path: Path) -> None:
    program = """
    from swift.ray.megatron.megatron_worker import MegatronWorker
    worker = MegatronWorker()
    worker.update_weights()
    worker.compute_logps([])
    worker.train_step([])
    """
    run(tmp_path, program, {f"{_RAY}.megatron_worker": WORKER})
    trace = recorded(tmp_path)
    assert [process.role for process in trace.processes] == ["actor"]
    assert span_names(trace) == ["sync", "logprob/old", "train"]
