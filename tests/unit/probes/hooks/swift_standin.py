"""ms-swift's shape of three times: who subclasses whom, what is where, and what calls what."""

from __future__ import annotations

from tests.unit.probes.hooks.hooked_job import TRAINER

LAZY = """
import importlib, sys, types

class _LazyModule(types.ModuleType):
    def __getattr__(self, name):
        if name == "GRPOTrainer":
            return importlib.import_module(".grpo_trainer", self.__name__).GRPOTrainer
        raise AttributeError(name)

lazy = _LazyModule(__name__)
lazy.__path__, lazy.__spec__ = __path__, __spec__
sys.modules[__name__] = lazy
"""
TRL = """
from transformers.trainer import Trainer

class GRPOTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        raise AssertionError("deleted by ms-swift")

    def log(self, logs, start_time=None):
        raise AssertionError("deleted by ms-swift")

    def _prepare_inputs(self, inputs):
        raise AssertionError("overridden")
"""
UTILS = """
def aggressive_empty_cache(): pass
def sleep_vllm_engine(engine, sleep_level): aggressive_empty_cache()
"""
_MOVES = """
    def offload_model(self, model): return True
    def load_model(self, model): pass
    def offload_optimizer(self): pass
    def load_optimizer(self): pass
"""
_ROLLOUT = """
    def _fast_infer(self, samples):
        if self.state.global_step != self.synced:
            self._move_model_to_vllm()
            self.synced = self.state.global_step
        self.offload_model(None)
        samples = self._infer(samples)
        self.load_model(None)
        return samples

    def _infer(self, samples):
        return self._postprocess_rollout_outputs(samples, self._engine_infer(samples))

    def _engine_infer(self, samples): return Template().encode(samples)
    def _postprocess_rollout_outputs(self, samples, outputs): return samples
    def _move_model_to_vllm(self): self._load_state_dict_to_vllm({})
    def _load_state_dict_to_vllm(self, state): pass
"""
_LOGPS = """
    def _prepare_batch_inputs(self, samples):
        Template().encode(samples)
        self.LOGPS(self.model, samples)
        if self.ref_model is not None:
            self.LOGPS(self.ref_model, samples)
        else:
            layer = self.model.layers[0]
            layer._disable_adapters = True
            self.LOGPS(self.model, samples)
            layer._disable_adapters = False
        return samples

    def compute_loss(self, model, inputs):
        return self.LOGPS(model, inputs)

    def LOGPS(self, model, inputs): return inputs
"""
_REWARDS = """
    def _compute_rewards_per_func(self, samples):
        for function, plugin in zip(self.reward_funcs, self.reward_model_plugins):
            if plugin is not None:
                plugin(inputs=samples)
            elif asyncio.iscoroutinefunction(function) or asyncio.iscoroutinefunction(
                getattr(function, "__call__", None)
            ):
                asyncio.run(function(samples))
            else:
                function(samples)

    def _score_completions(self, samples):
        self._compute_rewards_per_func(samples)
        if self.resample:
            self._generate_completions(samples)
            self._compute_rewards_per_func(samples)
        return samples
"""
_OLD_REWARDS = """
    def _score_completions(self, samples):
        for function in self.reward_funcs:
            function(samples)
        return samples
"""
_TRAINER = """
import asyncio
from trl.trainer.grpo_trainer import GRPOTrainer as HFGRPOTrainer
IMPORTS

del HFGRPOTrainer.__init__
del HFGRPOTrainer.log

class GRPOTrainer(BASES):
    def __init__(self, **kwargs):
        super().__init__(reward_funcs=kwargs.pop("reward_funcs"))
        self.synced, self.resample, self.ref_model = -1, False, None
        self.reward_func_names, self.multi_turn_scheduler = [], None
        self.reward_model_plugins = [None] * len(self.reward_funcs)
        vars(self).update(kwargs)

    def _prepare_inputs(self, inputs): return self._generate_and_score_completions(inputs)
    def log(self, logs, start_time=None): super().log(dict(logs, swift=1), start_time)
"""
_PIPELINE = """
    def _generate_and_score_completions(self, inputs):
        samples = self._generate_completions(inputs)
        samples = self._score_completions(samples)
        return self._prepare_batch_inputs(samples)

    def _generate_completions(self, samples): return self._fast_infer(samples)
"""
TEMPLATE = """
class Template:
    def encode(self, inputs): return inputs
"""
LAUNCH = """
class SwiftSft:
    def __init__(self, args): self.args = args
    def train(self, trainer): return trainer.train()
"""
MODEL = """
class Layer:
    _disable_adapters, active_adapters = False, ["default"]

class Model:
    def __init__(self): self.layers = [Layer()]
    def modules(self): return [self, *self.layers]
    def parameters(self): return []
"""


def _mixin(path: str, *parts: str) -> str:
    return f"from {path} import Template\n\nclass RolloutTrainerMixin:\n" + "".join(parts)


def _logps(name: str) -> str:
    return _LOGPS.replace("LOGPS", name)


def _trainer(imports: str, bases: str, *parts: str) -> str:
    return _TRAINER.replace("IMPORTS", imports).replace("BASES", bases) + "".join(parts)


_COMMON = {
    "transformers.trainer": TRAINER.replace(
        "self.compute_loss()", "self.compute_loss(self.model, self._prepare_inputs([]))"
    ),
    "trl.trainer.grpo_trainer": TRL,
    "model": MODEL,
}
_TEMPLATE, _OLD_TEMPLATE = "swift.template.base", "swift.llm.template.base"
_NEW = "_get_per_token_logps_and_entropies"
_WITH_MIXIN = "from {}.rollout_mixin import RolloutTrainerMixin, Template"
VERSION_4_6 = {
    **_COMMON,
    "swift.rlhf_trainers.__init__": LAZY,
    "swift.rlhf_trainers.utils": UTILS,
    "swift.rlhf_trainers.rollout_mixin": _mixin(_TEMPLATE, _MOVES, _ROLLOUT, _PIPELINE),
    "swift.rlhf_trainers.grpo_trainer": _trainer(
        _WITH_MIXIN.format("swift.rlhf_trainers"), "RolloutTrainerMixin, HFGRPOTrainer",
        _logps(_NEW), _REWARDS,
    ),
    _TEMPLATE: TEMPLATE,
    "swift.pipelines.train.sft": LAUNCH,
}  # fmt: skip
_OLD_PATH = "swift.trainers.rlhf_trainer"
VERSION_3_12 = {
    **_COMMON,
    f"{_OLD_PATH}.__init__": LAZY,
    f"{_OLD_PATH}.rollout_mixin": _mixin(_OLD_TEMPLATE, _MOVES, _ROLLOUT),
    f"{_OLD_PATH}.grpo_trainer": _trainer(
        _WITH_MIXIN.format(_OLD_PATH), "RolloutTrainerMixin, HFGRPOTrainer",
        _PIPELINE, _logps(_NEW), _REWARDS,
    ),
    _OLD_TEMPLATE: TEMPLATE,
    "swift.llm.train.sft": LAUNCH,
}  # fmt: skip
VERSION_3_6 = {
    **_COMMON,
    f"{_OLD_PATH}.__init__": LAZY,
    f"{_OLD_PATH}.grpo_trainer": _trainer(
        f"from {_OLD_TEMPLATE} import Template", "HFGRPOTrainer",
        _MOVES, _ROLLOUT, _PIPELINE, _logps("_get_per_token_logps"), _OLD_REWARDS,
    ),
    _OLD_TEMPLATE: TEMPLATE,
    "swift.llm.train.sft": LAUNCH,
}  # fmt: skip
