"""The options of a colocated engine and its start, as far as they work without vLLM."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.errors import ConfigError, RolloutError
from grpo_doctor_trainer.rollout.vllm import engine as local_engine
from grpo_doctor_trainer.rollout.vllm.engine import cache_bytes, engine_options, require_vllm
from grpo_doctor_trainer.rollout.vllm.requests import longest_sequence
from tests.unit.trainer.rollout.colocated import CPU, config


def test_the_options_become_those_of_the_engine() -> None:
    options = engine_options(
        config("--vllm_max_num_seqs", "7"), model="folder", context=None, cache_bytes=None
    )
    assert options["max_num_seqs"] == 7
    assert options["load_format"] == local_engine.UNLOADED
    assert not options["enforce_eager"]
    assert not options["enable_sleep_mode"]
    assert "kv_cache_memory_bytes" not in options


def test_an_engine_decodes_a_whole_rollout_at_once_unless_told_otherwise() -> None:
    chosen = config("--per_device_train_batch_size", "32")
    assert engine_options(chosen, model="", context=None, cache_bytes=5)["max_num_seqs"] == 32


def test_the_longest_sequence_is_prompt_and_completion_within_the_model() -> None:
    assert longest_sequence(config(), None) == 2048 + 8
    assert longest_sequence(config(), 1024) == 1024
    assert longest_sequence(config("--vllm_max_model_len", "99"), 1024) == 99


def test_without_a_device_the_cache_is_a_share_of_the_host_divided_by_its_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ranks: Any = SimpleNamespace(device=CPU, world_size=4)
    size = cache_bytes(config("--vllm_gpu_memory_utilization", "0.5"), ranks)
    assert size == pytest.approx(host / 4, rel=1e-6)
    ranks = SimpleNamespace(device=torch.device("cuda"), world_size=4)
    assert cache_bytes(config(), ranks) is None


def test_what_is_missing_is_said_before_the_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    with pytest.raises(ConfigError, match="no sleep mode; use --sleep_level 0"):
        require_vllm(config("--sleep_level", "1"), CPU)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "vllm" or None)
    with pytest.raises(RolloutError, match="import torchvision, which is not installed"):
        require_vllm(config("--model", "embedded-vl"), CPU, with_images=True)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RolloutError, match="pip install"):
        require_vllm(config(), CPU)
