"""The records of other people's jobs, and how near the estimate comes to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory_accuracy
from benchmarks.memory_points import POINTS, fit, held_out, predicted_bytes, read
from grpo_doctor.memory import GIB
from grpo_doctor.memory.estimate import ledger_of
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.models import UnknownModelError

SETUP = {"model": "Qwen/Qwen2.5-7B-Instruct", "card_bytes": 80 * GIB, "method": "lora"}


def record(**facts: Any) -> dict[str, Any]:
    return {"id": "a1", "source": "a@1", "framework": "trl", "quality": "A", "setup": SETUP} | facts


def written(folder: Path, *records: dict[str, Any]) -> Path:
    file = folder / "points.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    return file


def test_a_line_is_a_job_in_the_words_of_its_setup(tmp_path: Path) -> None:
    setup = SETUP | {"beside": ["Qwen/Qwen2.5-0.5B"], "rollout_engine": {"memory_share": 0.5}}
    file = written(tmp_path, record(gib=22.0, setup=setup), {"id": "b", "unscored": "no model"})
    (point,), unscored = read(file)
    assert (point.measured_bytes, point.fitted, point.group) == (22 * GIB, None, "training")
    assert (point.setup.model.layers, point.setup.method) == (28, "lora")
    assert [model.hidden for model in point.setup.beside] == [896]
    assert point.setup.rollout_engine.memory_share == 0.5
    assert unscored == ["no model"]


@pytest.mark.parametrize(
    ("setup", "error"),
    [({"model": "nobody/knows-it"}, UnknownModelError), ({"lora": 8}, TypeError)],
)
def test_a_model_or_a_word_that_nobody_knows_is_refused(
    tmp_path: Path, setup: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(written(tmp_path, record(setup=SETUP | setup)))


def test_what_the_allocator_does_not_see_is_left_out(tmp_path: Path) -> None:
    points, _ = read(written(tmp_path, record(gib=22.0), record(gib=22.0, reserved_only=True)))
    ledger = ledger_of(points[0].setup)
    whole, seen = (predicted_bytes(point, ledger) for point in points)
    outside = [e.bytes for e in ledger.train.peak.components if e.name == "CUDA context"]
    assert whole - seen >= sum(outside) > 0


def test_factors_are_fitted_on_other_sources_alone(tmp_path: Path) -> None:
    near = [record(id=name, source=name, gib=gib) for name, gib in (("a", 18.0), ("b", 30.0))]
    points, _ = read(written(tmp_path, *near))
    larger = fit(points[1:])
    assert larger.fragmentation_varied > calibration().fragmentation_varied
    assert held_out(points)["a"] == ledger_of(points[0].setup, larger)


def test_the_stored_records_are_scored_as_the_page_says() -> None:
    points, unscored = read()
    counts = f"{len(points)} of {len(points) + len(unscored)} records can be scored"
    assert counts in memory_accuracy.PAGE.read_text()
    assert len({point.id for point in points}) == len(points) > 250
    assert POINTS.stat().st_size < 200_000
