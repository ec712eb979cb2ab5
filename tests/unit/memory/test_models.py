from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.memory.models import (
    UnknownModelError,
    UnknownShapeError,
    model_shape,
    published,
    quantized_bits,
    shape_of,
)

COUNTED = {name: row for name, row in published().items() if row["parameters"]}
# A module of transformers per family; the largest ones take seconds to lay out.
LAID_OUT = (
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen1.5-MoE-A2.7B",
    "Qwen/Qwen2-VL-7B-Instruct",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3-VL-8B-Instruct",
    "meta-llama/Llama-3.2-3B",
    "mistralai/Mistral-7B-v0.3",
    "google/gemma-2-9b",
    "google/gemma-3-4b-it",
    "moonshotai/Moonlight-16B-A3B-Instruct",
)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_exact_to_the_tensor(name: str) -> None:
    row = published()[name]
    assert shape_of(name, row["config"], row["source"]).parameters == row["parameters"]


@pytest.mark.parametrize("name", published())
def test_each_row_of_the_table_says_where_it_was_read(name: str) -> None:
    assert published()[name]["source"].startswith("https://")


@pytest.mark.parametrize("name", LAID_OUT)
def test_parameters_equal_those_that_transformers_lays_out(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = published()[name]["config"]
    own_config = transformers.AutoConfig.for_model(**config)
    auto = (
        transformers.AutoModelForImageTextToText
        if "vision_config" in config
        else transformers.AutoModelForCausalLM
    )
    with torch.device("meta"):
        model = auto.from_config(own_config)
    model.tie_weights()
    assert model_shape(name).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("Qwen2-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("/data/models/Qwen2.5-VL-7B-Instruct/", "Qwen/Qwen2.5-VL-7B-Instruct"),
        ("Qwen/Qwen2.5-VL-72B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-VL-72B-Instruct"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B"),
        ("mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-v0.3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen/Qwen2.5-7B"),
        ("qwen-1_8b-chat", "Qwen/Qwen1.5-1.8B"),
    ],
)
def test_names_are_met_as_people_write_them(name: str, meant: str, tmp_path: Path) -> None:
    assert model_shape(name, home=tmp_path).name == meant


def test_an_unknown_model_is_said_with_near_ones_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match=r"near: .*Qwen.*local folder"):
        model_shape("Qwen/Qwen2.5-8B-Instruct", home=tmp_path)


def test_a_local_config_wins_over_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen2.5-7B"
    folder.mkdir()
    config = {**published()["Qwen/Qwen2.5-0.5B"]["config"], "num_hidden_layers": 2}
    (folder / "config.json").write_text(json.dumps(config))
    shape = model_shape(str(folder))
    assert shape.layers == 2
    assert shape.source == str(folder / "config.json")


def test_the_cache_of_hugging_face_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    snapshot = Path(".cache/huggingface/hub/models--me--mine/snapshots/abc")
    folder = tmp_path / snapshot
    folder.mkdir(parents=True)
    config = published()["Qwen/Qwen3-0.6B"]["config"]
    (folder / "config.json").write_text(json.dumps(config))
    assert model_shape("me/mine", home=tmp_path).parameters == 596_049_920


def test_a_config_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"train_batch_size": 8}')
    with pytest.raises(UnknownShapeError, match="no hidden_size"):
        model_shape(str(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": "large"},
        {"num_hidden_layers": [1]},
        {"num_hidden_layers": 0},
        {"num_attention_heads": 1e400},
        {"kv_lora_rank": 512},
        {"vision_config": {"depth": 2}, "model_type": "qwen2_5_vl"},
    ],
)
def test_sizes_that_are_none_are_refused(change: dict[str, Any]) -> None:
    config = {**published()["Qwen/Qwen2.5-0.5B"]["config"], **change}
    with pytest.raises(UnknownShapeError, match="can't be understood"):
        shape_of("mine", config, "config.json")


def test_a_damaged_config_does_not_hide_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen2.5-7B"
    folder.mkdir()
    (folder / "config.json").write_text("{")
    assert model_shape(str(folder)).parameters == 7_615_616_512


@pytest.mark.parametrize(
    ("name", "bits"), [("Qwen2.5-7B-AWQ", 4), ("Qwen-7B-GPTQ-Int8", 8), ("Qwen2.5-7B", None)]
)
def test_a_name_promises_its_quantization(name: str, bits: int | None) -> None:
    assert quantized_bits(name) == bits


def test_vision_pixels_become_tokens() -> None:
    vision = model_shape("Qwen/Qwen2.5-VL-7B-Instruct").vision
    assert vision is not None
    assert 1_003_520 // vision.pixels_per_token == 1280
