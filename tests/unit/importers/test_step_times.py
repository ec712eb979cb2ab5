"""ms-swift's `logging.jsonl`: its metrics, and the times by its speeds and clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace
from tests.unit.importers.trainer_rows import swift_row


def swift_log(folder: Path, *rows: dict[str, Any], end: str = "") -> Trace:
    path = folder / "logging.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + end)
    return load(path)


def test_the_wall_time_of_ms_swift_is_in_its_speed(tmp_path: Path) -> None:
    trace = swift_log(tmp_path, *(swift_row(n, 7.5 * n, step_time=5.0) for n in (1, 2, 4, 6)))
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [1, 2, 4, 6]
    assert analysis.steps.seconds[:, 0].tolist() == pytest.approx([7.5] * 4, abs=1e-4)
    assert trace.run.framework == "ms-swift"


def test_a_resumed_ms_swift_job_has_step_time_only(tmp_path: Path) -> None:
    rows = [swift_row(n, 7.5 * n, step_time=5.0) for n in (51, 52)]
    for row in rows:
        row["elapsed_time"] = "8s"
    analysis = analyse(swift_log(tmp_path, *rows))
    assert analysis.steps.seconds[:, 0].tolist() == [5.0, 5.0]


def test_half_a_row_of_ms_swift_is_left_out(tmp_path: Path) -> None:
    trace = swift_log(tmp_path, swift_row(1, 7.5), swift_row(2, 15.0), end='{"loss": 0.1, "rew')
    assert trace.loss.truncated
    assert trace.metrics.steps.tolist() == [1, 2]


def test_a_damaged_row_of_ms_swift_has_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    lines = [json.dumps(swift_row(n, 7.5 * n)) for n in (1, 2, 3)]
    lines[1] = lines[1].replace(":", "=", 1)
    path.write_text("\n".join(lines) + "\n")
    trace = load(path)
    assert trace.metrics.steps.tolist() == [1, 2, 3]
    assert trace.metrics.absent["epoch"].tolist() == [False, True, False]


def test_steps_per_second_are_a_speed_too(tmp_path: Path) -> None:
    rows = [swift_row(n, 7.5 * n) for n in (1, 2, 3)]
    for row, step in zip(rows, (1, 2, 3), strict=True):
        del row["train_speed(s/it)"]
        row["train_speed(iter/s)"] = round(1 / 7.5, 6)
        assert step
    seconds = analyse(swift_log(tmp_path, *rows)).steps.seconds[:, 0].tolist()
    assert seconds == pytest.approx([7.5] * 3, rel=1e-4)


@pytest.mark.parametrize("speed", [0.0, -1.0, "fast", None])
def test_a_speed_that_is_none_is_passed_over(speed: Any, tmp_path: Path) -> None:
    rows = [swift_row(n, 7.5 * n, step_time=5.0) for n in (1, 2, 3)]
    rows[1]["train_speed(s/it)"] = speed
    seconds = analyse(swift_log(tmp_path, *rows)).steps.seconds[:, 0].tolist()
    # The third row is the mean of two steps.
    assert seconds == pytest.approx([7.5, 7.5], abs=1e-4)
    for row in rows:
        row["train_speed(s/it)"] = speed
        row["train_speed(iter/s)"] = speed
    assert analyse(swift_log(tmp_path, *rows)).steps.seconds[:, 0].tolist() == [5.0] * 3


def test_a_clock_that_goes_back_or_is_too_coarse_tells_no_wall_time(tmp_path: Path) -> None:
    back = [swift_row(n, s, step_time=5.0) for n, s in ((1, 7.5), (2, 15.0), (3, 14.0))]
    assert analyse(swift_log(tmp_path, *back)).steps.seconds[:, 0].tolist() == [5.0] * 3
    # After 200,000 steps a difference of two speeds is rounded by 0.2 s of 7.5.
    coarse = [swift_row(n, 7.5 * n, step_time=5.0) for n in (1, 200_000, 200_001)]
    for row in coarse:
        row["elapsed_time"] = f"{round(7.5 * int(row['global_step/max_steps'].split('/')[0]))}s"
    assert analyse(swift_log(tmp_path, *coarse)).steps.seconds[:, 0].tolist() == [5.0] * 3
    fine = [swift_row(n, 7.5 * n, step_time=5.0) for n in (1, 100_000)]
    for row in fine:
        row["elapsed_time"] = f"{round(7.5 * int(row['global_step/max_steps'].split('/')[0]))}s"
    walls = analyse(swift_log(tmp_path, *fine)).steps.seconds[:, 0].tolist()
    assert walls == pytest.approx([7.5, 7.5], abs=1e-4)


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [
        ("1m 15s", 7.5), ("1m 18s", 7.5), ("1m 12s", 7.5), ("1m 19s", 5.0), ("1m 11s", 5.0),
        ("0d 0h 1m 15s", 7.5), ("", 5.0),
    ],
)  # fmt: skip
def test_a_clock_that_agrees_with_the_speed_shows_that_training_was_not_resumed(
    clock: str, seconds: float, tmp_path: Path
) -> None:
    row = swift_row(10, 75.0, step_time=5.0)
    row["elapsed_time"] = clock
    length_s = analyse(swift_log(tmp_path, row)).steps.seconds[0, 0]
    assert length_s == pytest.approx(seconds, abs=1e-4)


def test_rows_of_a_run_that_was_resumed_into_its_log_replace_those_from_before(
    tmp_path: Path,
) -> None:
    rows = [swift_row(n, 7.5 * n, tag=tag) for tag, n in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 4))]
    rows[1]["only_before"] = 1.0
    trace = swift_log(tmp_path, *rows)
    assert trace.metrics.steps.tolist() == [1, 2, 4]
    assert trace.metrics.values["tag"].tolist() == [0, 1, 1]
    assert "only_before" not in trace.metrics.values


def test_rows_of_one_step_belong_together_and_others_are_no_steps(tmp_path: Path) -> None:
    evaluated = {"eval_reward": 0.75, "global_step/max_steps": "1/100", "eval_runtime": 2.0}
    other = {"train_runtime": 1.0, "global_step/max_steps": "9/100"}
    trace = swift_log(
        tmp_path, swift_row(1, 7.5, step_time=5.0), evaluated, other, {"note": "x"},
        {"global_step/max_steps": "x/9"},
    )  # fmt: skip
    assert trace.metrics.steps.tolist() == [1]
    assert trace.metrics.values["eval_reward"].tolist() == [0.75]
    assert trace.metrics.values["reward"].tolist() == [0.5]


def bar(step: int, seconds: int, total: int = 200, name: str = "") -> str:
    clock = f"{seconds // 60:02}:{seconds % 60:02}"
    return f"{name} {100 * step // total:3}%|##  | {step}/{total} [{clock}<1:00:00, 7.00s/it]"


def trl(bars: list[str], path: Path) -> Trace:
    row = "{{'loss': 0.1, 'grad_norm': 0.2, 'reward': 0.{0}, 'reward_std': 0.1}}"
    text = "".join(f"{each}\n{row.format(n)}\n" for n, each in enumerate(bars, 1))
    path.write_text(bar(13, 2, 13, "Map:") + "\n" + bar(0, 0) + "\n" + text)
    return load(path)


def test_a_progress_bar_times_and_numbers_the_rows_of_trl(tmp_path: Path) -> None:
    bars = [f"{bar(n, 8 * n)}\r{bar(1, 2, 9)}{bar(n, 8 * n)}" for n in (10, 20, 30)]
    trace = trl(bars, tmp_path / "job.log")
    assert trace.metrics.steps.tolist() == [10, 20, 30]
    lengths = [e - s for s, e in zip(trace.spans.start_ns, trace.spans.end_ns, strict=True)]
    assert lengths == pytest.approx([8e9] * 3)
    assert any("by its progress bar" in note for note in trace.run.notes)
    assert trace.run.duration_ns == 0  # each row is of ten steps: nobody knows the others


@pytest.mark.parametrize("bars", [[bar(1, 3), bar(2, 6)], [bar(5, 40), bar(5, 80)], ["", ""]])
def test_a_bar_that_is_coarse_or_lags_says_nothing(tmp_path: Path, bars: list[str]) -> None:
    trace = trl(bars, tmp_path / "job.log")
    assert trace.metrics.steps.tolist() == [1, 2]
    assert any("no step times" in note for note in trace.run.notes)


def test_the_history_in_the_last_row_of_ms_swift_is_no_trainer_state(tmp_path: Path) -> None:
    end = json.dumps({"log_history": [{"step": 1, "reward": 0.5}]}) + "\n"
    assert swift_log(tmp_path, swift_row(1, 7.5), end=end).run.framework == "ms-swift"
