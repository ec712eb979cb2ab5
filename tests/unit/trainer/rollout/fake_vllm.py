"""A vLLM that completes at once, as far as the trainer and its server call it: names and calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest


class SamplingParams(SimpleNamespace):
    """Keeps its options."""


class EngineArgs(SimpleNamespace):
    """Keeps its options."""


class RandomLoader:
    """Changes every tensor, as vLLM's loader of random weights does."""

    def load_weights(self, model: Any, model_config: Any) -> None:
        del model_config
        for tensor in model.state_dict().values():
            tensor.fill_(7)


LOADERS: dict[str, Any] = {}


def register_loader(load_format: str) -> Callable[[Any], Any]:
    """Keeps the class as vLLM's registry does."""
    return lambda kind: LOADERS.setdefault(load_format, kind)


class LLMEngine:
    """Completes each request in one step, with tokens 7 and 8."""

    started: ClassVar[list[LLMEngine]] = []

    def __init__(self, arguments: EngineArgs, loggers: list[Any]) -> None:
        self.arguments = arguments
        self.loggers = [factory(SimpleNamespace(), 0) for factory in loggers]
        self.requests: dict[str, tuple[dict[str, Any], SamplingParams]] = {}
        self.history: list[tuple[dict[str, Any], SamplingParams]] = []
        self.calls: list[str] = []
        self.engine_core = SimpleNamespace(shutdown=lambda: self.calls.append("shutdown"))
        text = SimpleNamespace(vocab_size=300, hidden_size=128, num_hidden_layers=1)
        self.model_config = SimpleNamespace(
            max_model_len=64, dtype="torch.float32",
            hf_config=SimpleNamespace(get_text_config=lambda: text),
        )  # fmt: skip
        self.vllm_config = SimpleNamespace(
            device_config=SimpleNamespace(device_type="cpu"),
            parallel_config=SimpleNamespace(world_size=2),
        )

    @classmethod
    def from_engine_args(cls, arguments: EngineArgs, *, stat_loggers: list[Any]) -> LLMEngine:
        cls.started.append(cls(arguments, stat_loggers))
        return cls.started[-1]

    def add_request(
        self, key: str, prompt: dict[str, Any], sampling: SamplingParams, lora_request: Any = None
    ) -> None:
        del lora_request
        if prompt.get("prompt_token_ids") == [0]:
            raise ValueError("token 0")
        self.requests[key] = (prompt, sampling)
        self.history.append((prompt, sampling))

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    def step(self) -> list[Any]:
        scheduler = SimpleNamespace(
            num_running_reqs=len(self.requests), num_waiting_reqs=2, kv_cache_usage=0.5,
            prefix_cache_stats=SimpleNamespace(queries=10, hits=4),
        )  # fmt: skip
        for logger in self.loggers:
            logger.record(scheduler, SimpleNamespace(num_preempted_reqs=1), None, 0)
        finished = [self._output(key, prompt) for key, (prompt, _) in self.requests.items()]
        self.requests = {}
        return finished

    def reset_prefix_cache(self) -> None:
        self.calls.append("reset_prefix_cache")

    def reset_encoder_cache(self) -> None:
        self.calls.append("reset_encoder_cache")

    def collective_rpc(self, method: str, **_: Any) -> list[Any]:
        self.calls.append(method)
        return [("signature", 3)]

    @staticmethod
    def _output(key: str, prompt: dict[str, Any]) -> Any:
        logprobs = [{token: SimpleNamespace(logprob=-float(token))} for token in (7, 8)]
        made = SimpleNamespace(token_ids=(7, 8), logprobs=logprobs, finish_reason="stop")
        read = prompt.get("prompt_token_ids", [1, 2, 3])
        return SimpleNamespace(request_id=key, outputs=[made], prompt_token_ids=read, finished=True)


def install(monkeypatch: pytest.MonkeyPatch, *, on_cpu: bool = True) -> type[LLMEngine]:
    """Lets `import vllm` find it; gives the engine's class, whose `started` are the engines."""
    LLMEngine.started.clear()
    LOADERS.clear()
    contents: dict[str, dict[str, Any]] = {
        "vllm": {"EngineArgs": EngineArgs, "SamplingParams": SamplingParams, "__version__": "0"},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"EngineArgs": EngineArgs},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY="final only")},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {"register_model_loader": register_loader},
        "vllm.model_executor.model_loader.dummy_loader": {"DummyModelLoader": RandomLoader},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: on_cpu)},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.llm_engine": {"LLMEngine": LLMEngine},
    }
    for name, names in contents.items():
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    return LLMEngine
