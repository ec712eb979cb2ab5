"""ms-swift's real Megatron GRPO trainer on a CPU without Megatron: its own order of calls.

Real: `train`, `run_train_step`, `train_step`, `on_log`, the rollout buffer, generation with its
weight sync and offload, scoring, advantages, log-probs of old policy and reference. Stand-ins for
what needs Megatron or a GPU: model, optimizer, engine, export of weights, encoding, collectives,
forward and backward; they sleep as TIMES says (JSON, seconds by name).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import os
import sys
import time
import types
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock

TIMES: dict[str, float] = json.loads(os.environ["TIMES"])
ABSENT = ("megatron", "mcore", "transformer_engine")
Namespace = types.SimpleNamespace


class Absent(types.ModuleType):
    """A module that has whatever is asked of it."""

    __version__ = "0.16.0"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {}) if name[0].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(ABSENT):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, AbsentFinder())
installed = importlib.metadata.version


def version(distribution_name: str) -> str:
    return "0.16.0" if distribution_name.startswith(ABSENT) else installed(distribution_name)


importlib.metadata.version = version

import torch  # noqa: E402
from swift.megatron.trainers import (  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
    base,
    grpo_trainer,
    rollout_mixin,
)
from swift.rl_core.data import (  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
    GRPOSample,
)

COMPLETIONS, TOKENS = 4, 3


def same(value: Any, *_: Any, **__: Any) -> Any:
    return value


def spend(part: str) -> None:
    time.sleep(TIMES[part])


def collate(samples: list[Any], *_: Any, **__: Any) -> tuple[dict[str, Any], Any]:
    shape = (len(samples), TOKENS)
    batch = Namespace(
        seq_lengths=torch.tensor([TOKENS] * len(samples)), completion_mask=torch.ones(shape),
        teacher_per_token_logps=None, ref_per_token_logps=None, old_per_token_logps=None,
        advantages=None,
    )  # fmt: skip
    return {"input_ids": torch.zeros(shape)}, batch


def forward_backward(**keywords: Any) -> list[Any]:
    for _ in range(keywords["num_microbatches"]):
        keywords["forward_step_func"](keywords["data_iterator"], keywords["model"][0])
    return []


STANDINS: dict[Any, dict[str, Any]] = {
    base: {
        "logical_and_across_model_parallel_group": same,
        "reduce_max_stat_across_model_parallel_group": same,
        "should_disable_forward_pre_hook": lambda _: False,
        "maybe_finalize_async_save": lambda *_, **__: None,
        "get_forward_backward_func": lambda: forward_backward,
    },
    grpo_trainer: {
        "gather_object": same, "gather": same, "encode_sample": lambda *_: {"input_ids": [1]},
        "collate_to_grpo_micro_batch": collate, "build_opsd_samples": lambda _: False,
        "get_padding_to": lambda _: None, "expand_advantage_to_per_token": same,
        "should_compute_local_teacher_logps": lambda **_: False,
    },
    rollout_mixin: {"gather_object": same, "RerunDataIterator": same},
}  # fmt: skip
for module, functions in STANDINS.items():
    for function, standin in functions.items():
        setattr(module, function, standin)
grpo_trainer.mpu.get_data_parallel_world_size = lambda: 1


class Optimizer:
    def zero_grad(self) -> None:
        pass

    def step(self) -> tuple[bool, float, None]:
        spend("optimizer")
        return True, 1.0, None


class Model(torch.nn.Module):
    def zero_grad_buffer(self) -> None:
        pass


class Engine:
    engine = Namespace()
    inner_model_executor = Namespace(is_sleeping=False)

    def infer(self, infer_requests: list[Any], **_: Any) -> list[Any]:
        spend("rollout")
        return infer_requests


class Length:
    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        spend("reward")
        return [float(number) for number in range(len(completions))]


class Trainer(grpo_trainer.MegatronGRPOTrainer):  # type: ignore[misc, unused-ignore]
    process_index, is_main_process, world_size = 0, True, 1

    def __init__(self) -> None:
        shared = {
            "global_batch_size": COMPLETIONS, "micro_batch_size": 2, "vllm_mode": "colocate",
        }  # fmt: skip
        self.args = Namespace(
            **shared, train_iters=3, num_microbatches=2, seq_length=8, sleep_level=0, report_to=[],
            offload_model=True, offload_optimizer=False, router_replay_mode="disabled", seed=1,
            rlhf_type="grpo", tuner_type="lora", mtp_num_layers=None, dsa_indexer_loss_coeff=None,
            torch_dtype=torch.bfloat16, max_length=64,
        )  # fmt: skip
        self.__dict__.update(
            **shared, optimizer=Optimizer(), wrapped_models=[Model()], unwrapped_models=[Model()],
            state=Namespace(iteration=0, should_log=True, should_eval=False, should_save=False),
            config=Namespace(num_moe_experts=None), opt_param_scheduler=MagicMock(),
            template=Namespace(padding_free=False), device="cpu", engine=Engine(), callbacks=[],
            reward_funcs=[Length()], reward_func_names=["Length"], reward_model_plugins=[None],
            reward_weights=torch.ones(1), request_config=Namespace(), loss_type="grpo",
            num_generations=COMPLETIONS, scale_rewards="group", advantage_estimator="grpo",
            truncation_strategy="left", beta=0.1, temperature=1.0, steps_per_generation=1,
            vllm_tensor_parallel_size=1, enable_offload=True,
            _train_metrics={}, _start_iteration=-1, _step=0, _last_loaded_step=-1,
            _metrics={"train": defaultdict(list)},
            _logs={"advantages": deque(), "rewards": defaultdict(deque)},
        )  # fmt: skip
        off = (
            "enable_routing_replay", "dynamic_sample", "use_teacher_api", "_has_teacher",
            "_has_teacher_explicit", "_is_dynamic_self_distillation", "kl_in_reward",
            "log_completions", "use_gym_env", "rollout_enable_lora", "base_sync_done",
        )  # fmt: skip
        self.__dict__.update(dict.fromkeys(off, False))

    def setup_training(self, train_dataset: Any, _: Any) -> Any:
        return self._prepare_data_iterator(train_dataset)

    def _prepare_dataloader(self, train_dataset: Any, _: Any = None) -> Any:
        return train_dataset, None

    def cyclic_iter(self, iterable: Any, **_: Any) -> Iterator[Any]:
        while True:
            for item in iterable:
                spend("dataload")
                yield item

    def finalize_training(self) -> None: ...
    def _get_rollout_group(self) -> None: ...
    def _reset_vllm_cache(self) -> None: ...

    def get_num_iters_per_step(self) -> int:
        return 1

    def to_samples(self, rows: list[Any]) -> list[Any]:
        chat = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
        return [GRPOSample(messages=chat) for _ in rows for _ in range(COMPLETIONS)]

    get_local_rollout_batch = _preprocess_inputs = samples2requests = lambda _, samples: samples

    def _postprocess_rollout_outputs(self, samples: list[Any], _: Any) -> list[Any]:
        return samples

    def _move_full_model_to_vllm(self) -> None:
        spend("sync")

    def compute_per_token_logps(self, *_: Any, **__: Any) -> tuple[Any, None]:
        spend("logprob")
        return torch.zeros(2, TOKENS), None

    def forward_step(self, data_iterator: Any, _: Any) -> None:
        next(data_iterator)
        spend("train")

    def _get_reported_learning_rate(self) -> float:
        return 1e-6

    @contextmanager
    def null_ref_context(self) -> Iterator[list[None]]:
        yield [None]

    @contextmanager
    def _template_context(self, _: Any) -> Iterator[None]:
        yield


if __name__ == "__main__":
    Trainer().train([[{"prompt": "1+1"}]], None)
