"""Modules of OpenRLHF's shape, with a `ray` whose actors are objects of the same process."""

from __future__ import annotations

RAY = """
import functools, inspect

class ActorClass:
    def __init__(self, modified_class):
        self.__ray_metadata__ = modified_class

def remote(cls):
    \"\"\"As Ray does: a subclass with a wrapped copy of each function that it has by now.\"\"\"
    modified = type(cls.__name__, (cls,), {"__module__": cls.__module__})
    for name, function in inspect.getmembers(modified, inspect.isfunction):
        setattr(modified, name, traced(function))
    return ActorClass(modified)

def traced(function):
    @functools.wraps(function)
    def call(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    @functools.wraps(function)
    async def call_async(self, *args, **kwargs):
        return await function(self, *args, **kwargs)

    return call_async if inspect.iscoroutinefunction(function) else call
"""
MANAGER = """
class FunctionActorManager:
    def _load_actor_class_from_gcs(self, actor_class):
        return actor_class.__ray_metadata__

def loaded(actor_class):
    return FunctionActorManager()._load_actor_class_from_gcs(actor_class)
"""
ENGINE = """
def batch_vllm_engine_call(engines, method_name, *args, **kwargs):
    return method_name
"""
SAMPLES = """
from openrlhf.trainer.ray.vllm_engine import batch_vllm_engine_call

def _collect_prompt_batch(loader, count):
    return ["prompt"] * count

class SamplesGenerator:
    def generate_samples(self, **kwargs):
        batch_vllm_engine_call([], "wake_up")
        prompts = _collect_prompt_batch(None, 2)
        batch_vllm_engine_call([], "get_load")
        return prompts
"""
EXPERIENCE = """
class RemoteExperienceMaker:
    def make_experience_batch(self, samples):
        return samples
"""
TRAINER = """
from argparse import Namespace
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from ray.actors import remote

class BasePPOTrainer:
    def __init__(self, args):
        self.strategy, self.args = Namespace(args=args), args
        self.samples_generator = SamplesGenerator()
        self.experience_maker = RemoteExperienceMaker()

    def train_step(self, samples, global_step):
        self.experience_maker.make_experience_batch(samples)
        status = self.ppo_train(global_step)
        self.broadcast_to_vllm()
        return status, global_step + 1

    def ppo_train(self, global_steps):
        return {"policy_loss": 0.5, "generated_samples": ["text"], "timing/ppo_train": 0.1}

    def broadcast_to_vllm(self):
        pass

    def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
        pass

    def init_checkpoint_states(self):
        return {"global_step": self.args.resume}

@remote
class PPOTrainer(BasePPOTrainer):
    def __init__(self, args):
        super().__init__(args)

    def fit(self, global_step=0):
        global_step = self.init_checkpoint_states()["global_step"]
        for _ in range(3):
            samples = self.samples_generator.generate_samples()
            status, global_step = self.train_step(samples, global_step)
            self.save_logs_and_checkpoints(global_step, status, {})
            if global_step % 2 == 0:
                self.evaluate(global_step, temperature=0.5)
        self.samples_generator.generate_samples()  # finds that nothing is left
        return global_step

    def evaluate(self, global_step, **kwargs):
        self.samples_generator.generate_samples()
        return {"eval_pass1": 0.25}
"""
LAUNCHER = """
from ray.actors import remote

class BaseModelActor:
    def _setup_distributed(self, strategy):
        self.strategy = strategy

@remote
class ReferenceModelActor(BaseModelActor):
    def forward(self, sequences):
        return sequences
"""
ACTOR = """
from openrlhf.trainer.ray.launcher import BaseModelActor
from ray.actors import remote

class ActorPPOTrainer:
    def ppo_train(self, kl_ctl):
        return [self.training_step(None, kl_ctl, step) for step in range(2)]

    def training_step(self, experience, kl_ctl, step):
        return step

@remote
class PolicyModelActor(BaseModelActor):
    def fit(self, kl_ctl=0):
        return ActorPPOTrainer().ppo_train(kl_ctl)

    def forward(self, sequences):
        return sequences

    def reload_states(self):
        pass

    def save_model(self):
        pass
"""
MODULES = {
    "ray.actors": RAY,
    "ray._private.function_manager": MANAGER,
    "openrlhf.trainer.ppo_trainer": TRAINER,
    "openrlhf.trainer.ppo_utils.samples_generator": SAMPLES,
    "openrlhf.trainer.ppo_utils.experience_maker": EXPERIENCE,
    "openrlhf.trainer.ray.launcher": LAUNCHER,
    "openrlhf.trainer.ray.ppo_actor": ACTOR,
    "openrlhf.trainer.ray.vllm_engine": ENGINE,
}
