"""What vLLM is asked to load for the server, and with which share of the memory."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer.config.server import ServeConfig
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.statistics import EngineWatch
from grpo_doctor_trainer.serve.starting import model_folder, start_engine
from tests.unit.trainer.rollout import fake_vllm


def settings(monkeypatch: pytest.MonkeyPatch, *, on_cpu: bool, **options: Any) -> dict[str, Any]:
    fake_vllm.install(monkeypatch, on_cpu=on_cpu)
    config = ServeConfig(model="m", gpu_memory_utilization=0.25, **options)
    start_engine(config, "folder", EngineWatch())
    (engine,) = fake_vllm.LLMEngine.started
    return vars(engine.arguments)


def test_a_gpu_is_shared_by_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    options = settings(monkeypatch, on_cpu=False, enforce_eager=False, max_num_seqs=None)
    assert options["gpu_memory_utilization"] == 0.25
    assert options["enforce_eager"] is False
    assert "kv_cache_memory_bytes" not in options
    assert "max_num_seqs" not in options
    assert options["model"] == "folder"


def test_on_a_cpu_the_share_is_of_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    options = settings(monkeypatch, on_cpu=True, enforce_eager=False, max_num_seqs=3)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert options["kv_cache_memory_bytes"] == memory // 4
    assert options["enforce_eager"] is True
    assert options["max_num_seqs"] == 3
    assert "gpu_memory_utilization" not in options


def test_without_vllm_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(monkeypatch)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(RolloutError, match=r"vLLM cannot be imported here .*pip install"):
        start_engine(ServeConfig(model="m"), "folder", EngineWatch())


@pytest.mark.parametrize(
    ("model", "folder"),
    [("org/name", "org/name"), ("/some/model", "/some/model"), ("~/model", "HOME/model")],
)
def test_a_model_is_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch, model: str, folder: str
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    with model_folder(ServeConfig(model=model)) as source:
        assert source == folder.replace("HOME", "/home/someone")


@pytest.mark.parametrize(("model", "sees"), [(None, False), ("embedded-vl", True)])
def test_an_embedded_model_is_in_a_folder_for_as_long_as_it_runs(
    tmp_path: Path, model: str | None, sees: bool
) -> None:
    config = dataclasses.replace(ServeConfig(output_dir=str(tmp_path)), model=model)
    with model_folder(config) as folder:
        assert Path(folder).parent == tmp_path
        assert (Path(folder) / "model.safetensors").is_file()
        assert (Path(folder) / "tokenizer.json").is_file()
        assert (Path(folder) / "preprocessor_config.json").is_file() == sees
    assert not Path(folder).exists()
