"""Where the shape of a named model is looked for, and in which order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_doctor.memory.models.find import UnknownModelError, model_shape, quantized_bits

CONFIG = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "num_attention_heads": 8}
NAME = "me/mine"


@pytest.fixture(autouse=True)
def without_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "MODELSCOPE_CACHE"):
        monkeypatch.delenv(name, raising=False)


def config(folder: Path, layers: int = 2) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    return folder


def snapshot(cache: Path, layers: int, commit: str = "abc") -> Path:
    return config(cache / "models--me--mine" / "snapshots" / commit, layers)


def test_caches_of_the_home_are_looked_into(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="me/mine is unknown"):
        model_shape(NAME, home=tmp_path)
    config(tmp_path / ".cache/modelscope/hub" / NAME, 5)
    assert model_shape(NAME, home=tmp_path).layers == 5
    config(tmp_path / ".cache/modelscope/hub/models" / NAME, 4)
    assert model_shape(NAME, home=tmp_path).layers == 4
    snapshot(tmp_path / ".cache/huggingface/hub", 3)
    assert model_shape(NAME, home=tmp_path).layers == 3


@pytest.mark.parametrize(
    ("variable", "folder"), [("HF_HOME", "hub"), ("HF_HUB_CACHE", ""), ("MODELSCOPE_CACHE", "")]
)
def test_a_cache_may_be_elsewhere(
    variable: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "elsewhere" / folder
    if variable == "MODELSCOPE_CACHE":
        config(cache / NAME, 7)
    else:
        snapshot(cache, 7)
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert model_shape(NAME, home=tmp_path).layers == 7
    assert model_shape(NAME, home=tmp_path).source.startswith(str(cache))


def test_the_users_home_is_meant_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    snapshot(tmp_path / ".cache/huggingface/hub", 6)
    assert model_shape(NAME).layers == 6
    config(tmp_path / "models/own", 8)
    assert model_shape("~/models/own").layers == 8


def test_a_folder_comes_before_the_caches_and_a_file_that_is_no_object_is_passed_over(
    tmp_path: Path,
) -> None:
    snapshot(tmp_path / ".cache/huggingface/hub", 3, "b")
    assert model_shape(str(config(tmp_path / "own", 9)), home=tmp_path).layers == 9
    damaged = snapshot(tmp_path / ".cache/huggingface/hub", 4, "a")
    assert model_shape(NAME, home=tmp_path).layers == 4
    (damaged / "config.json").write_text("[1]")
    assert model_shape(NAME, home=tmp_path).layers == 3


def test_the_table_is_asked_last_variant_by_variant(tmp_path: Path) -> None:
    for name in ("Qwen/Qwen2.5-7B", "qwen2.5-7b-instruct-gptq-int4", "/x/Qwen2.5-7B-Instruct-AWQ/"):
        assert model_shape(name, home=tmp_path).parameters == 7_615_616_512
    positions = {
        "Qwen/Qwen3-4B": 40_960, "Qwen3-4B-Instruct-2507": 262_144, "Qwen3-4B-Base": 32_768,
        "Qwen/Qwen2.5-7B": 131_072, "Qwen2.5-7B-Instruct-AWQ": 32_768, "Llama-3-8B-Instruct": 8192,
        "Qwen2.5-Math-7B-Instruct": 4096, "DeepSeek-R1-Distill-Qwen-1.5B": 131_072, "QwQ-32B": None,
    }  # fmt: skip
    found = {name: model_shape(name, home=tmp_path).max_positions for name in positions}
    assert found == positions


def test_near_names_are_told_where_there_are_some(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="near: Qwen/"):
        model_shape("Qwen/Qwen2.5-77B", home=tmp_path)
    with pytest.raises(UnknownModelError, match=r"zzzzzz is unknown\. Name"):
        model_shape("zzzzzz", home=tmp_path)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("m-AWQ", 4), ("m-GPTQ-Int8", 8), ("m-GPTQ", 4), ("m-int8", 8), ("m-bnb-4bit", 4),
        ("m-8bit", 8), ("m-nf4", 4), ("m-7B", None), ("m-FP8", 8), ("m-BF16", 16),
    ],
)  # fmt: skip
def test_a_name_promises_bits(name: str, bits: int | None) -> None:
    assert quantized_bits(name) == bits
