# ruff: noqa: RUF001 (the minus sign is what is printed)
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.cli import main
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder
from tests.unit.cli.attached import Captured
from tests.unit.whatif.models.runs import run


def recorded(folder: Path, settings: dict[str, Any], **facts: Any) -> str:
    patient = run({"offload": 2.0, "train": 8.0}, settings, **facts)
    write_trace(patient.build(), folder / "trace.json")
    return str(folder / "trace.json")


@pytest.fixture
def recording(tmp_path: Path) -> str:
    return recorded(tmp_path, {"offload.optimizer": True})


def whatif(*arguments: str) -> int:
    return main(["whatif", *arguments])


def test_a_table_by_phase_with_the_interval(recording: str, capsys: Captured) -> None:
    assert whatif(recording, "--set", "offload.optimizer=false") == 0
    out = capsys.readouterr().out
    assert "offload.optimizer: true to false  (--offload_optimizer false)" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert rows["offload"] == ["2", "s", "0", "s", "−2", "s"]
    assert rows["train"] == ["8", "s", "8", "s"]
    assert rows["step"] == ["10", "s", "8", "s", "−20%"]
    assert out.splitlines()[0].endswith("trace.json, 6 steps")
    assert "Between −2" in out
    assert "Assumed: that the model fits in memory" in out


def test_a_start_value_that_the_run_does_not_say_is_marked(
    recording: str, capsys: Captured
) -> None:
    assert whatif(recording, "--set", "train.beta=0.1") == 0
    assert "train.beta: 0.04 (default) to 0.1" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["offload_optimizer", "--offload_optimizer", "offload-optimizer"])
def test_the_frameworks_own_flag_is_understood(recording: str, name: str, capsys: Captured) -> None:
    assert whatif(recording, f"--set={name}=false", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"][0]["knob"] == "offload.optimizer"
    assert answer["predicted"]["mid"] == -20
    assert answer["phases"]["offload"] == {"before_s": 2.0, "after_s": 0.0}


def test_a_run_under_megatron_has_its_own_flags(tmp_path: Path, capsys: Captured) -> None:
    settings = {"offload.optimizer": True, "parallel.strategy": "megatron"}
    trace = recorded(tmp_path, settings, framework="verl", framework_version="0.7.0")
    flag = "actor_rollout_ref.actor.megatron.optimizer_offload"
    assert whatif(trace, "--set", f"{flag}=False", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"][0]["knob"] == "offload.optimizer"


def test_a_flag_with_values_of_its_own_is_read_as_its_framework_does(
    tmp_path: Path, capsys: Captured
) -> None:
    flag = "actor_rollout_ref.rollout.free_cache_engine"
    settings = {"vllm.sleep_level": 2}
    trace = recorded(tmp_path, settings, framework="verl", framework_version="0.7.0")
    assert whatif(trace, "--set", f"{flag}=false", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    (setting,) = answer["settings"]
    assert (setting["knob"], setting["to"]) == ("vllm.sleep_level", 0)
    assert answer["predicted"]["mid"] == -20
    assert whatif(trace, "--set", f"{flag}=perhaps") == 2


def test_a_run_of_one_step_gets_an_answer_in_words(tmp_path: Path, capsys: Captured) -> None:
    build = TraceBuilder(knobs={"offload.optimizer": True})
    build.step(0, 0, 0.0, {"offload": 2.0, "train": 8.0})
    write_trace(build.build(), tmp_path / "trace.json")
    assert whatif(str(tmp_path / "trace.json"), "--set", "offload.optimizer=false") == 0
    out = capsys.readouterr().out
    assert "Unknown: a prediction needs at least 3 steps, this run has 1." in out
    assert out.splitlines()[0].endswith("trace.json, 1 step")


def test_what_the_run_does_not_say_is_said_to_be_unknown(recording: str, capsys: Captured) -> None:
    assert whatif(recording, "--set", "checkpoint.save_steps=100") == 0
    assert "Unknown: no checkpoint was written" in capsys.readouterr().out
    assert whatif(recording, "--set", "checkpoint.save_steps=100", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["predicted"], answer["phases"]) == (None, {})
    assert answer["reason"].startswith("no checkpoint")


def test_a_setting_that_is_so_already_changes_nothing(recording: str, capsys: Captured) -> None:
    assert whatif(recording, "--set", "offload.optimizer=true") == 0
    out = capsys.readouterr().out
    assert "offload.optimizer: true already\n\nNothing changes" in out


@pytest.mark.parametrize(
    "text",
    [
        "sync.move_model_batches=none",
        "sync.move_model_batches=",
        "train.loss_type=",
        "train.loss_type=dapo",
    ],
)
def test_nothing_is_a_value_of_texts_and_of_a_few_numbers(recording: str, text: str) -> None:
    assert whatif(recording, "--set", text) == 0
