"""Counters, instants, metrics and what the job says of itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from grpo_doctor_probes import counter, describe, instant, metrics, phase, step
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE
from tests.recording import read_rows, spans_file
from tests.unit.probes.conftest import Recorded


def lines(recording: Recorded) -> list[dict[str, Any]]:
    text = (recording.run_dir / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def job(recording: Recorded) -> dict[str, Any]:
    facts = json.loads((recording.run_dir / "job.json").read_text(), parse_constant=_refuse)
    assert isinstance(facts, dict)
    return facts


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_nothing_is_written_without_a_recording(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    counter("tokens", 1)
    instant("oom")
    metrics(1, {"loss": 1})
    describe("trl")
    with step(1), phase("rollout", direction="to_cpu"):
        pass
    assert recorder.ACTIVE is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "say",
    [
        lambda: counter("tokens", 1),
        lambda: instant("oom"),
        lambda: metrics(1, {"loss": 1}),
        lambda: describe("trl"),
        step(3)(lambda: None),
    ],
    ids=["counter", "instant", "metrics", "describe", "step"],
)
def test_the_first_word_starts_the_recording_that_the_environment_asks_for(
    say: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    say()
    assert recorder.ACTIVE is not None
    assert spans_file(tmp_path).exists()
    written = [row.name for row in read_rows(spans_file(tmp_path))]
    assert written or (tmp_path / "metrics.jsonl").exists() or (tmp_path / "job.json").exists()


def test_one_metric_that_is_no_number_costs_only_itself(recording: Recorded) -> None:
    metrics(1, {"loss": 0.5, "note": "warming up", "none": None, "list": [1]})  # type: ignore[dict-item]
    assert lines(recording)[0]["metrics"] == {"loss": 0.5, "none": "nan"}
    assert recording.header.errors == 0


def test_the_job_is_described_without_its_secrets(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    settings = {"hub_token": "hf_" + "a" * 30, "learning_rate": 1e-6, "nested": {"api_key": "k"}}
    versions = {"torch": "2.13.0"}
    describe("trl", "1.16.0", config=MappingProxyType(settings), versions=versions)
    facts = job(recording)
    assert (facts["framework"], facts["framework_version"]) == ("trl", "1.16.0")
    assert facts["world_size"] == 8
    assert facts["versions"] == versions
    assert facts["config"]["learning_rate"] == 1e-6
    assert "hf_a" not in json.dumps(facts)
    assert facts["config"]["nested"] == {"api_key": "[redacted]"}


def test_a_configuration_of_anything_is_written_as_json(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    config: Any = {"clip": math.inf, "dtype": int, "path": "\udcff", 1: {2: {math.nan, 3}}}
    describe("trl", config=config)
    facts = job(recording)
    assert facts["world_size"] == 1
    said = [facts["config"][name] for name in ("clip", "dtype", "path")]
    assert said == ["inf", "<class 'int'>", "?"]
    assert recording.header.errors == 0


def test_what_fails_to_print_or_contains_itself_is_counted_and_not_raised(
    recording: Recorded,
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    endless: dict[str, Any] = {}
    endless["self"] = endless
    describe("trl", config=endless)
    describe("trl", config={"broken": Broken()})
    metrics("seven", {})  # type: ignore[arg-type]
    counter("tokens", "many")  # type: ignore[arg-type]
    assert recording.header.errors == 4
    assert not (recording.run_dir / "job.json").exists()
