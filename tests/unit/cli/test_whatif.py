from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.trace.write import write_trace
from tests.unit.whatif.laws.runs import run


@pytest.fixture
def recording(tmp_path: Path) -> str:
    patient = run({"offload": 2.0, "train": 8.0}, {"offload.optimizer": True})
    write_trace(patient.build(), tmp_path / "trace.json")
    return str(tmp_path / "trace.json")


def whatif(*arguments: str) -> int:
    return main(["whatif", *arguments])


def test_a_table_by_phase_with_the_interval(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif(recording, "--set", "offload.optimizer=false") == 0
    out = capsys.readouterr().out
    assert "offload.optimizer: true to false  (--offload_optimizer false)" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert rows["offload"][:3] == ["2.0000", "s", "0.0000"]
    assert rows["train"][:3] == ["8.0000", "s", "8.0000"]
    assert rows["step"][4] == "-20.0"
    assert "Between -2" in out
    assert "Assumed: that memory suffices" in out


@pytest.mark.parametrize("name", ["offload_optimizer", "--offload_optimizer", "offload-optimizer"])
def test_the_frameworks_own_flag_is_understood(
    recording: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif(recording, f"--set={name}=false", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"][0]["knob"] == "offload.optimizer"
    assert found["predicted"]["mid"] == -20
    assert found["phases"]["offload"] == {"before_s": 2.0, "after_s": 0.0}


def test_what_the_run_does_not_say_is_said_to_be_unknown(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif(recording, "--set", "checkpoint.save_steps=100") == 0
    assert "Unknown: no checkpoint was written" in capsys.readouterr().out
    assert whatif(recording, "--set", "checkpoint.save_steps=100", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["predicted"], found["phases"]) == (None, {})
    assert found["reason"].startswith("no checkpoint")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ofload.optimizer=false", "Did you mean offload.optimizer?"),
        ("offload.optimizer=maybe", "takes a value of type bool"),
        ("offload.optimizer", "give KNOB=VALUE"),
    ],
)
def test_a_setting_that_is_wrong_is_a_usage_error(
    recording: str, given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif(recording, "--set", given) == 2
    assert said in capsys.readouterr().err


def test_a_recording_that_is_not_there_ends_with_3(tmp_path: Path) -> None:
    assert whatif(str(tmp_path / "no.json"), "--set", "offload.model=false") == 3
