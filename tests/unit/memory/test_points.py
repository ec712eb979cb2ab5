from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory_accuracy import main, replace_section
from benchmarks.memory_points import point_of, read
from benchmarks.memory_records import UnreadableError
from benchmarks.memory_tools import alloc
from grpo_doctor.memory import GIB
from grpo_doctor.memory.models import UnknownModelError


def record(config: dict[str, Any], **measured: Any) -> dict[str, Any]:
    return {
        "id": "a1",
        "source": "someone/somewhere@abc:README.md",
        "config": {"framework": "ms-swift", "model": "Qwen/Qwen2.5-7B-Instruct", **config},
        "measured": measured,
        "notes": "",
        "grpo": False,
        "quality": "A",
    }


LORA = {"tuner_type": "lora", "lora_rank": "16", "max_length": 2048, "gpus": 1, "script": "a.sh"}


def test_a_measurement_becomes_a_setup() -> None:
    point = point_of(record(LORA, gb_per_gpu=22.0, unit="GiB", kind="reported_peak_rounded"))
    assert point.measured_bytes == 22 * GIB
    assert point.fitted is None
    assert point.setup.lora_rank == 16
    assert point.setup.card_bytes == pytest.approx(80 * GIB, rel=0.02)
    assert point.source == "someone/somewhere@abc"


def test_a_full_card_says_only_that_it_fitted() -> None:
    point = point_of(record(LORA, gb_per_gpu=78.0, kind="measured"))
    assert point.measured_bytes is None
    assert point.fitted is True


def test_text_in_place_of_a_flag_is_understood() -> None:
    config = {**LORA, "gradient_checkpointing": "false", "padding_free": "true", "packing": "false"}
    setup = point_of(record(config, gb_per_gpu=22.0)).setup
    assert setup.recompute == "none"
    assert setup.padding_free
    assert not setup.packing


def test_zero_and_its_offload() -> None:
    config = {**LORA, "deepspeed": "zero3_offload", "gpus": 8, "nproc_per_node": "8"}
    setup = point_of(record(config, gb_per_gpu=22.0)).setup
    assert (setup.engine, setup.zero_stage, setup.ranks) == ("deepspeed", 3, 8)
    assert setup.zero_offload_optimizer
    assert setup.zero_offload_parameters


def test_without_vllm_transformers_rolls_out() -> None:
    config = {**LORA, "rlhf_type": "grpo", "gpus": 4, "gradient_accumulation_steps": 2}
    assert point_of(record(config, outcome="fits", capacity_gb=80)).setup.rollout == "generate"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"rlhf_type": "grpo"}, "how many completions are generated at once is not said"),
        ({"framework": "torchtune"}, "torchtune is not modeled"),
        ({"fp8_format": "e4m3"}, "training in 8 bits is not modeled"),
        ({"optimizer_in_bwd": True}, "an optimizer in the backward pass"),
    ],
)
def test_what_is_not_said_or_modeled_is_not_scored(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        point_of(record({**LORA, **changed}, outcome="fits", capacity_gb=80))


@pytest.mark.parametrize(("size", "fitted"), [(75.0, True), (80.0, True), (95.0, None)])
def test_a_full_card_fits_and_a_larger_one_is_another(size: float, fitted: bool | None) -> None:
    point = point_of(record(LORA, gb_per_gpu=size))
    assert (point.fitted, point.measured_bytes is None) == (fitted, fitted is True)


def test_fsdp_recomputes_by_itself() -> None:
    config = {**LORA, "fsdp": "fsdp2", "gradient_checkpointing": False}
    assert point_of(record(config, gb_per_gpu=14.7)).setup.recompute == "full"


def test_a_note_of_unsloth_counts() -> None:
    with pytest.raises(UnreadableError, match="unsloth"):
        point_of({**record(LORA, gb_per_gpu=5), "notes": "tuner_backend unsloth"})


def test_a_server_on_other_cards_is_no_part_of_the_trainer() -> None:
    config = {**LORA, "rlhf_type": "grpo", "use_vllm": True, "vllm_mode": "server", "gpus": 8}
    setup = point_of(record(config, outcome="fits", capacity_gb=80)).setup
    assert setup.rollout == "server"
    assert setup.is_grpo


@pytest.mark.parametrize(
    ("config", "measured", "reason"),
    [
        (LORA, {"kind": "vendor_breakdown", "gb_per_gpu": 5}, "no measurement"),
        (LORA, {"where": "HOST", "outcome": "OOM"}, "memory of the host"),
        ({**LORA, "task_type": "reranker"}, {"gb_per_gpu": 5}, "how many texts"),
        ({**LORA, "tuner_backend": "unsloth"}, {"gb_per_gpu": 5}, "unsloth"),
        ({**LORA, "tuner_type": "boft"}, {"gb_per_gpu": 5}, "tuner not modeled"),
        ({"gpus": 1}, {"gb_per_gpu": 5}, "neither LoRA nor full"),
        (LORA, {"outcome": "engine init error"}, "neither a number"),
    ],
)
def test_what_can_not_be_scored_says_why(
    config: dict[str, Any], measured: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnreadableError, match=reason):
        point_of(record(config, **measured))


def test_a_model_without_a_shape_is_said() -> None:
    with pytest.raises(UnknownModelError):
        point_of(record({**LORA, "model": "nobody/knows-it"}, gb_per_gpu=5))


def test_damaged_lines_cost_only_themselves(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    good = json.dumps(record(LORA, gb_per_gpu=22.0))
    file.write_text(f'{good}\n{{\n\n{{"id": "b2"}}\n')
    points, unreadable = read(file)
    assert [point.identity for point in points] == ["a1"]
    assert [identity for identity, _ in unreadable] == ["line 2", "b2"]


def test_the_table_is_written_into_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "points.jsonl"
    rows = [record(LORA, gb_per_gpu=size) | {"id": str(size)} for size in (18, 20, 22)]
    rows.append(record(LORA, outcome="OOM", capacity_gb=16) | {"id": "oom"})
    file.write_text("\n".join(json.dumps(row) for row in rows))
    document = tmp_path / "accuracy.md"
    document.write_text("# Accuracy\n\n<!-- section other -->\n\nkept\n")
    monkeypatch.setattr(
        "sys.argv", ["memory_accuracy", "--points", str(file), "--write", str(document)]
    )
    assert main() == 0
    assert main() == 0
    text = document.read_text()
    assert text.count("<!-- section memory -->") == 1
    assert "kept" in text
    assert "transformer-math" in capsys.readouterr().out
    replace_section(document, "short")
    assert document.read_text().rstrip().endswith("short")


def test_alloc_is_told_size_width_batch_and_length_and_asked_once(tmp_path: Path) -> None:
    program = tmp_path / "alloc"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho \'{{"total_gb": 12.5}}\'\n')
    program.chmod(0o755)
    estimate = alloc(program)
    setup = point_of(record(LORA, gb_per_gpu=22.0)).setup
    assert estimate(setup) == estimate(setup) == 12.5 * GIB
    (arguments,) = (tmp_path / "asked").read_text().splitlines()
    assert f"--hidden-dim {setup.model.hidden}" in arguments
    assert f"--seq-length {setup.prompt_tokens}" in arguments
