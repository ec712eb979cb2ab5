"""What the logs of transformers' trainers share: numbers, phases, the framework, settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.importers.reconstruct import LoggedStep
from grpo_doctor.importers.trainer_state import LIMITS, facts, framework_of, logged_step, numbers
from tests.unit.importers.trainer_rows import trainer_state, trl_row


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        (("loss", "reward"), "unknown"),
        (("loss", "reward", "reward_std"), "trl"),
        (("critic/score/mean",), "verl"),
        (("rollout/reward_mean",), "openrlhf"),
        (("loss", "completions/mean_length"), "trl"),
        (("reward", "completions/mean_length"), "trl"),
        (("loss", "grad_norm"), "unknown"),
        ((), "unknown"),
    ],
)
def test_a_framework_is_known_by_keys_of_its_own(keys: tuple[str, ...], framework: str) -> None:
    assert framework_of([LoggedStep(1, None, metrics=dict.fromkeys(keys, 0.5))]) == framework


def test_numbers_of_a_row_are_numbers_and_text_that_is_one() -> None:
    row = {"a": 1, "b": 0.5, "c": "0.25", "d": "nan", "e": "NaN", "f": True, "g": None, "h": "x",
           "i": [1], "j": "inf"}  # fmt: skip
    metrics = numbers(row)
    assert set(metrics) == {"a", "b", "c", "d", "e", "j"}
    assert (metrics["a"], metrics["b"], metrics["c"]) == (1.0, 0.5, 0.25)
    assert math.isnan(metrics["d"])
    assert math.isnan(metrics["e"])
    assert math.isinf(metrics["j"])


def test_of_functions_that_do_one_thing_the_first_that_was_timed_counts() -> None:
    def phases(**profiled: float) -> tuple[tuple[str, float], ...]:
        rows = {f"profiling/Time taken: T.{name}": value for name, value in profiled.items()}
        return logged_step(1, [rows], 9.0).phases

    assert phases(_move_model_to_vllm=2.0, generate=3.0) == (("sync", 2.0), ("rollout/generate", 3))
    assert phases(sync_weights=1.0, _move_model_to_vllm=2.0) == (("sync", 1.0),)
    assert phases(other=1.0) == ()
    assert logged_step(1, [{"eval_runtime": 0.0}], 9.0).beside == (("eval", 0.0),)
    assert logged_step(1, [{}], 9.0).beside == ()


@pytest.mark.parametrize(
    ("steps", "text"), [((1, 2, 3), None), ((2, 4, 6, 7), "every 2"), ((5,), None), ((), None)]
)
def test_how_many_steps_a_row_is_of(steps: tuple[int, ...], text: str | None) -> None:
    logged = [LoggedStep(step, 1.0, metrics={"reward": 1.0}) for step in steps]
    notes = [n for n in facts("a log", Path("x/y"), logged, ()).notes if "one row" in n]
    assert bool(notes) is (text is not None)
    assert text is None or text in notes[0]


@pytest.mark.parametrize(
    ("phases", "limited"),
    [((), True), ((("eval", 1.0),), True), ((("train", 1.0), ("eval", 1.0)), False)],
)
def test_where_time_goes_is_open_without_timed_functions(
    phases: tuple[tuple[str, float], ...], limited: bool
) -> None:
    log_facts = facts("a log", Path("x/y"), [LoggedStep(1, 1.0, phases, {"reward_std": 0.1})], ())
    assert (log_facts.limits == LIMITS) is limited
    assert set(log_facts.spans) == {name for name, _ in phases}


@pytest.mark.parametrize(
    ("arguments", "framework", "ranks"),
    [
        ({"rlhf_type": "grpo", "world_size": 4}, "ms-swift", 4),
        ({"swift_version": "4.6.0", "global_world_size": 8, "world_size": 4}, "ms-swift", 8),
        ({"swift_version": "4.6.0"}, "ms-swift", 0),
        ({"other": 1}, "trl", 0),
        (None, "trl", 0),
    ],
)
@pytest.mark.parametrize("inner", ["", "checkpoint-5"])
def test_settings_lie_beside_the_log_or_beside_the_checkpoints_folder(
    arguments: dict[str, Any] | None, framework: str, ranks: int, inner: str, tmp_path: Path
) -> None:
    if arguments is not None:
        (tmp_path / "args.json").write_text(json.dumps(arguments))
    folder = tmp_path / inner
    folder.mkdir(exist_ok=True)
    run = trainer_state(folder, trl_row(1, step_time=1.0)).run
    assert (run.framework, run.world_size) == (framework, ranks)


def test_damaged_settings_are_told(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text("{")
    trace = trainer_state(tmp_path, trl_row(1, step_time=1.0))
    assert trace.loss.notes
    assert trace.loss.notes[0].startswith("args.json is damaged")
