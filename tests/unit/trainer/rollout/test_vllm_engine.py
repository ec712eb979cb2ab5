"""What a rank asks of the vLLM inside it, with a vLLM that only answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer  # noqa: E402
from grpo_doctor_trainer.rollout.vllm import engine as local_engine  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.colocate import load_in_parts, reload_at_once  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.engine import start_engine  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.statistics import EngineStatistics  # noqa: E402
from tests.unit.trainer.rollout import fake_vllm  # noqa: E402
from tests.unit.trainer.rollout.colocated import CPU, config  # noqa: E402


@pytest.fixture
def vllm_log() -> Iterator[None]:
    logger = logging.getLogger("vllm")
    handlers = list(logger.handlers)
    yield
    for handler in set(logger.handlers) - set(handlers):
        handler.close()
    logger.handlers = handlers


@pytest.mark.usefixtures("vllm_log")
def test_an_engine_starts_with_the_ranks_options_and_reports_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(monkeypatch)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_NO_USAGE_STATS", "VLLM_CONFIGURE_LOGGING"):
        monkeypatch.setenv(name, "")
    statistics = EngineStatistics()
    ranks: Any = SimpleNamespace(rank=0, local_rank=0, world_size=1, device=CPU)
    loaded: Any = SimpleNamespace(context=32)
    options = config("--model", "some/model", "--dataset", "rows.jsonl", ranks=8)
    engine = start_engine(options, loaded, ranks, tmp_path / "rank.log", statistics)
    assert (engine.arguments.model, engine.arguments.max_model_len) == ("some/model", 32)
    assert engine.arguments.distributed_executor_backend == "external_launcher"
    engine.step()
    engine.step()
    counted = statistics.load.summary()
    assert (counted["steps"], counted["waiting_requests_peak"], counted["preemptions"]) == (2, 2, 2)
    assert counted["prefix_cache_queried_tokens"] == 20
    assert counted["prefix_cache_hit_tokens"] == 8
    statistics.finish([])
    engine.step()
    assert statistics.load.summary()["prefix_cache_queried_tokens"] == 10


def test_a_model_without_weights_keeps_the_buffers_that_no_sync_brings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_vllm.install(monkeypatch)
    local_engine.register_format()
    model = torch.nn.BatchNorm1d(2)  # `running_var`, made as ones
    fake_vllm.LOADERS[local_engine.UNLOADED]().load_weights(model, None)
    assert model.weight.tolist() == [7, 7]
    assert model.state_dict()["running_var"].tolist() == [1, 1]


class Engine:
    """A `LLMEngine` around a model that takes over weights under their own names."""

    def __init__(self) -> None:
        self.model = tiny_model(tiny_tokenizer())
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.zero_()
        self.model.load_weights = self._load  # the model's own method, as vLLM's have it
        self.calls: list[str] = []

    def apply_model(self, function: Callable[[Any], Any]) -> list[Any]:
        return [function(self.model)]

    def collective_rpc(self, method: str, *, kwargs: dict[str, Any]) -> None:
        self.calls.append(method)
        self.model.load_weights(kwargs["weights_iterator"])

    def _load(self, weights: Any) -> set[str]:
        parameters, loaded = dict(self.model.named_parameters()), set()
        with torch.no_grad():
            for name, tensor in weights:
                if name in parameters:
                    parameters[name].copy_(tensor)
                    loaded.add(name)
        return loaded


@pytest.mark.parametrize("repacks", [False, True])
def test_the_engine_has_the_policys_weights_after_a_sync(repacks: bool) -> None:
    policy, vllm = tiny_model(tiny_tokenizer()), Engine()
    engine: Any = SimpleNamespace(module=policy, zero_stage=None)
    options: Any = SimpleNamespace(train_type="full", move_model_batches=3)
    (reload_at_once if repacks else load_in_parts)(vllm, engine, options)
    parameters = dict(vllm.model.named_parameters())
    assert all(weight.equal(parameters[name]) for name, weight in policy.named_parameters())
    assert vllm.calls == (["reload_weights"] if repacks else [])
