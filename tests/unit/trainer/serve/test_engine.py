"""What the server asks of vLLM, and what it makes of its answers, with a vLLM that only answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("safetensors", reason="needs the trainer extra")

from grpo_doctor_trainer.config.server import ServeConfig  # noqa: E402
from grpo_doctor_trainer.serve.engine import VllmEngine  # noqa: E402
from grpo_doctor_trainer.serve.loop import NewSequence, RequestError  # noqa: E402
from grpo_doctor_trainer.serve.protocol import Completion, Prompt, Sampling  # noqa: E402
from grpo_doctor_trainer.serve.worker import WeightWorker  # noqa: E402
from tests.unit.trainer.rollout import fake_vllm  # noqa: E402

SAMPLING = Sampling(5, 0.7, 0.9, -1, 1.1, (3,), (9,))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeConfig:
    fake_vllm.install(monkeypatch)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    return ServeConfig(model="some/model", output_dir=str(tmp_path), max_num_seqs=4)


def test_a_completion_is_asked_for_with_the_trainers_sampling(config: ServeConfig) -> None:
    engine = VllmEngine(config)
    (vllm,) = fake_vllm.LLMEngine.started
    assert vllm.arguments.worker_extension_cls == "grpo_doctor_trainer.serve.worker.WeightWorker"
    assert vllm.arguments.max_num_seqs == 4
    engine.add(NewSequence("a", Prompt(1, [4, 5]), SAMPLING, 11))
    assert engine.step() == [("a", Completion([7, 8], [-7.0, -8.0], 2))]
    prompt, sampling = vllm.history[-1]
    assert prompt == {"prompt_token_ids": [4, 5]}
    assert vars(sampling) == {
        "max_tokens": 5, "temperature": 0.7, "top_p": 0.9, "top_k": 0, "repetition_penalty": 1.1,
        "ignore_eos": True, "stop_token_ids": [3], "logit_bias": {9: -100.0}, "seed": 11,
        "logprobs": 0, "detokenize": False, "output_kind": "final only",
    }  # fmt: skip
    engine.close()
    assert vllm.calls[-2:] == ["grpo_leave", "shutdown"]


def test_a_prompt_that_vllm_refuses_is_the_requests_error(config: ServeConfig) -> None:
    engine = VllmEngine(config)
    with pytest.raises(RequestError, match="vLLM refused a prompt: token 0"):
        engine.add(NewSequence("a", Prompt(1, [0]), SAMPLING, None))
    with pytest.raises(RequestError, match="no PNG in base64"):
        engine.add(NewSequence("a", Prompt(1, text="x", images=["@"]), SAMPLING, None))


def test_the_engine_is_seen_as_of_its_last_step(config: ServeConfig) -> None:
    engine = VllmEngine(config)  # its warm-up is a step
    engine.add(NewSequence("a", Prompt(1, [4]), SAMPLING, None))
    engine.step()
    snapshot = engine.snapshot()
    assert (snapshot.running, snapshot.waiting, snapshot.kv_cache) == (1, 2, 0.5)
    assert (snapshot.preemptions, snapshot.prefix_queries, snapshot.prefix_hits) == (2, 20, 8)


def test_health_says_what_vllm_made_of_the_model(config: ServeConfig) -> None:
    assert VllmEngine(config).facts() == {
        "shape": {"vocab_size": 300, "hidden_size": 128, "num_hidden_layers": 1},
        "max_model_len": 64, "dtype": "float32", "device": "cpu", "workers": 2, "vllm": "0",
    }  # fmt: skip


def test_new_weights_come_with_their_signature(config: ServeConfig) -> None:
    engine = VllmEngine(dataclasses.replace(config, gpu_memory_utilization=0.5))
    assert engine.load_files(["x.safetensors"]) == ("signature", 3)
    resets = ["reset_prefix_cache", "reset_encoder_cache"]
    assert fake_vllm.LLMEngine.started[-1].calls[-3:] == ["grpo_load_files", *resets]


class Model:
    """Of vLLM's: it says which weights it has loaded."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def named_parameters(self) -> list[tuple[str, Any]]:
        return [("weight", 0), ("bias", 0)]

    def load_weights(self, weights: Iterator[tuple[str, Any]]) -> set[str]:
        loaded = dict(weights)
        self.values |= loaded
        return set(loaded)


def worker_with(model: Model, device: str) -> WeightWorker:
    worker = WeightWorker()
    worker.device = torch.device(device)
    worker.model_runner = SimpleNamespace(
        get_model=lambda: model,
        reload_weights=lambda *, weights_iterator: model.load_weights(weights_iterator),
    )
    return worker


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_weights_that_are_missing_are_found_out_in_the_worker(device: str) -> None:
    model = Model()
    worker = worker_with(model, device)
    every: list[tuple[str, Any]] = [("weight", 1), ("bias", 2)]
    worker._grpo_load(iter(every))
    assert model.values == {"weight": 1, "bias": 2}
    with pytest.raises(ValueError, match="nothing was sent for 1 weights, such as bias"):
        worker._grpo_load(iter(every[:1]))
    assert "load_weights" not in vars(model)  # as it was


def test_files_are_loaded_and_signed_in_the_worker(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from grpo_doctor_trainer.rollout.vllm.weight_checks import Signature

    tensors = {"weight": torch.arange(3.0), "bias": torch.ones(2)}
    save_file(tensors, tmp_path / "part.safetensors")
    signature = Signature()
    for name, tensor in tensors.items():
        signature.add(name, tensor)
    worker = worker_with(Model(), "cpu")
    answer = worker.grpo_load_files([str(tmp_path / "part.safetensors")])
    assert answer == (signature.value(), 2)
