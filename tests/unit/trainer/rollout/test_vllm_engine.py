"""What a rank asks of the vLLM inside it, with a vLLM that only answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer.errors import RolloutError  # noqa: E402
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer  # noqa: E402
from grpo_doctor_trainer.rollout.vllm import local_engine  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.colocate import ColocatedRollout  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.deadline import EngineDeadline  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.loading import WeightLoader  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.local_engine import start_engine  # noqa: E402
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
    counted = statistics.statistics()
    assert (counted.steps, counted.waiting_peak, counted.preemptions) == (2, 2, 2)
    assert (counted.prefix_queries, counted.prefix_hits) == (20, 8)
    statistics.finish([])
    engine.step()
    assert statistics.statistics().prefix_queries == 10


class OneByOne(fake_vllm.LLMEngine):
    """Finishes the requests one in each step, the last one first, and nothing in the first step."""

    def step(self) -> list[Any]:
        self.calls.append("step")
        if len(self.calls) == 1:
            return []
        key, (prompt, _) = self.requests.popitem()
        return [self._output(key, prompt)]


def test_a_rank_hears_of_its_own_completions_as_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(monkeypatch)
    rollout = object.__new__(ColocatedRollout)
    rollout.log = tmp_path / "rank.log"
    rollout._config, rollout._lora = config(), None
    rollout._loaded = SimpleNamespace(end_tokens=(8,), vision=None)  # type: ignore[assignment]
    rollout._deadline = EngineDeadline(60, rollout.log)
    requests = [{"prompt_token_ids": [number]} for number in range(1, 5)]
    own = slice(1, 3)  # the engine is shared with another rank, which has the others
    heard: list[Mapping[int, list[int]]] = []
    rollout._vllm = OneByOne(fake_vllm.EngineArgs(), [])
    completions = rollout._sample(requests, own, heard.append)
    assert heard == [{}, {}, {1: [7, 8]}, {0: [7, 8]}, {}]
    rollout._vllm = OneByOne(fake_vllm.EngineArgs(), [])
    assert rollout._sample(requests, own, None) == completions


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

    def __init__(self, forgets: str = "") -> None:
        self.model = tiny_model(tiny_tokenizer())
        self.forgets = forgets
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
                if name != self.forgets and name in parameters:
                    parameters[name].copy_(tensor)
                    loaded.add(name)
        return loaded


def loader(vllm: Engine, policy: Any, *, repacks: bool) -> WeightLoader:
    engine: Any = SimpleNamespace(module=policy, zero_stage=None)
    options: Any = SimpleNamespace(train_type="full", move_model_batches=3)
    return WeightLoader(vllm, engine, options, repacks=repacks)


@pytest.mark.parametrize("repacks", [False, True])
def test_the_engine_has_the_policys_weights_after_a_sync(repacks: bool) -> None:
    policy, vllm = tiny_model(tiny_tokenizer()), Engine()
    loader(vllm, policy, repacks=repacks).load()
    parameters = dict(vllm.model.named_parameters())
    assert all(weight.equal(parameters[name]) for name, weight in policy.named_parameters())
    assert vllm.calls == (["reload_weights"] if repacks else [])


@pytest.mark.parametrize("repacks", [False, True])
def test_a_weight_that_the_engine_forgot_is_named(repacks: bool) -> None:
    policy, vllm = tiny_model(tiny_tokenizer()), Engine(forgets="model.norm.weight")
    with pytest.raises(RolloutError, match=r"sent nothing for model\.norm\.weight"):
        loader(vllm, policy, repacks=repacks).load()
