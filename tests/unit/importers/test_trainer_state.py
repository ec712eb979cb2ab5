"""`trainer_state.json`: its metrics, and what they tell of time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.learning import curve
from grpo_doctor.document import build_document
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.load import load
from grpo_doctor.importers.trainer_state import recognises as recognises_state
from tests.unit.importers.trainer_rows import state_text, trainer_state, trl_row


def test_a_log_history_alone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps([{"step": 5 * n, "reward": 0.1 * n} for n in range(1, 4)]))
    assert load(path).metrics.steps.tolist() == [5, 10, 15]


def test_step_times_and_metrics_of_a_trainer_state(tmp_path: Path) -> None:
    trace = trainer_state(tmp_path, *(trl_row(n, step_time=4.0 + n) for n in range(1, 6)))
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [1, 2, 3, 4, 5]
    assert analysis.steps.seconds[:, 0].tolist() == pytest.approx([5.0, 6.0, 7.0, 8.0, 9.0])
    length = curve(trace, "length")
    assert length is not None
    assert length.values.tolist() == [101.0, 102.0, 103.0, 104.0, 105.0]
    assert trace.run.framework == "trl"


def test_a_trainer_state_without_step_times_has_its_metrics(tmp_path: Path) -> None:
    end = {"step": 40, "train_runtime": 400.0, "total_flos": 0.0}
    trace = trainer_state(tmp_path, *(trl_row(n) for n in (5, 10, 15)), end)
    assert len(analyse(trace).steps.numbers) == 0
    assert trace.metrics.steps.tolist() == [5, 10, 15]
    notes = " ".join(trace.run.notes)
    assert "since 0.26" in notes
    assert "10 s a step" in notes
    assert "one row for every 5 steps" in notes


@pytest.mark.parametrize(
    ("step", "words"), [(1, "1 step logged, "), (10, "1 row logged up to step")]
)
def test_the_first_row_may_be_of_several_steps(tmp_path: Path, step: int, words: str) -> None:
    document = build_document(trainer_state(tmp_path, trl_row(step)))
    assert document.summary.verdict.startswith(words)


def test_evaluation_lies_beside_the_step(tmp_path: Path) -> None:
    evaluated = {"step": 1, "eval_reward": 0.25, "eval_runtime": 30.0}
    trace = trainer_state(
        tmp_path, trl_row(1, step_time=10.0), evaluated, trl_row(2, step_time=10.0)
    )
    assert analyse(trace).steps.start_ns[:, 0].tolist() == [0, 40_000_000_000]
    assert trace.metrics.values["eval_reward"][0] == 0.25


def test_profiled_functions_are_phases(tmp_path: Path) -> None:
    profiled = {
        "profiling/Time taken: GRPOTrainer.vLLM.generate": 6.0,
        "profiling/Time taken: GRPOTrainer._calculate_rewards": 1.0,
        "profiling/Time taken: GRPOTrainer.sync_weights": 0.5,
    }
    analysis = analyse(trainer_state(tmp_path, trl_row(1, step_time=10.0, **profiled)))
    assert analysis.share("rollout") == pytest.approx(0.6)
    assert analysis.share("reward") == pytest.approx(0.1)
    assert analysis.share("sync") == pytest.approx(0.05)


def test_a_trainer_state_that_is_cut_off_keeps_its_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    text = state_text(*(trl_row(n, step_time=1.0) for n in range(1, 6)))
    path.write_text(text[: text.rindex("grad_norm")])
    trace = load(path)
    assert trace.loss.truncated
    assert trace.metrics.steps.tolist() == [1, 2, 3, 4]


def test_a_damaged_trainer_state_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": 7}')
    with pytest.raises(TraceError, match=r"trainer_state.json is damaged: .*log_history"):
        load(path)


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("trainer_state.json", '{"a": 1', True), ("x.json", ' {"log_history": [', True),
        ("x.json", '{"a": 1', False), ("trainer_state.json", "[1", False),
        ("x.json", '["log_history"', False),
    ],
)  # fmt: skip
def test_a_trainer_state_is_known_by_its_name_or_its_key(name: str, text: str, known: bool) -> None:
    assert recognises_state(Path(name), text.encode()) is known


@pytest.mark.parametrize("global_step", [0, 40])
def test_what_the_whole_training_took_is_told_a_step(global_step: int, tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(state_text(trl_row(1), {"train_runtime": 400.0}, global_step=global_step))
    mentioned = any("10 s a step" in note for note in load(path).run.notes)
    assert mentioned is (global_step == 40)


def test_rows_without_a_step_and_those_of_the_whole_run_are_no_steps(tmp_path: Path) -> None:
    rows = ({"reward": 9.0}, trl_row(2, step_time=1.0), {"step": 7, "train_runtime": 4.0})
    metrics = trainer_state(tmp_path, *rows).metrics
    assert metrics.steps.tolist() == [2]
    assert "step" not in metrics.values
    assert "train_runtime" not in metrics.values


def test_rows_of_a_state_are_by_step_and_the_first_time_of_a_step_counts(tmp_path: Path) -> None:
    rows = (trl_row(2, step_time=4.0), {"step": 1, "reward": 1.0}, trl_row(1, step_time=3.0),
            trl_row(1, step_time=9.0))  # fmt: skip
    analysis = analyse(trainer_state(tmp_path, *rows))
    assert analysis.steps.numbers.tolist() == [1, 2]
    assert analysis.steps.seconds[:, 0].tolist() == [3.0, 4.0]


def test_a_damaged_state_says_how_many_lines_it_has(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{\n"log_history": [\n7')
    with pytest.raises(TraceError, match="the file has 3 lines"):
        load(path)
