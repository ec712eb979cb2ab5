"""What TRL and ms-swift print of their steps."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace
from tests.unit.importers.trainer_rows import printed


def console(folder: Path, *rows: str, end: str = "\n") -> Trace:
    path = folder / "train.log"
    path.write_text("\n".join(["[2026-03-25 11:39:14] [INFO] started", *rows]) + end)
    return load(path)


def test_what_trl_prints(tmp_path: Path) -> None:
    rows = [printed(step_time="4.5", kl=math.nan), printed(step_time=5.5, kl=0.25)]
    trace = console(tmp_path, *rows, "{'train_runtime': '20.5', 'epoch': '1'}")
    assert analyse(trace).steps.seconds[:, 0].tolist() == [4.5, 5.5]
    assert trace.metrics.steps.tolist() == [1, 2]
    assert math.isnan(trace.metrics.values["kl"][0])
    assert trace.run.framework == "trl"
    assert any("counted from 1" in note for note in trace.run.notes)


def test_what_ms_swift_prints(tmp_path: Path) -> None:
    progress = "global_step/max_steps"
    command = "run sh: `python3 -m torch.distributed.run swift/cli/rlhf.py --num_generations 16`"
    rows = [printed(step_time="4.5", **{progress: f"{n}/40"}) for n in (5, 10, 15)]
    trace = console(tmp_path, command, *rows)
    assert analyse(trace).steps.numbers.tolist() == [5, 10, 15]
    assert trace.run.framework == "ms-swift"
    assert trace.run.knobs["rollout.num_generations"] == 16


def test_a_printed_row_that_is_cut_off(tmp_path: Path) -> None:
    row = printed(step_time="4.5")
    trace = console(tmp_path, printed(step_time="4.5"), row[: row.index("15.75") + 3], end="")
    assert trace.loss.truncated
    assert trace.metrics.steps.tolist() == [1, 2]
    assert "completions/mean_length" in trace.metrics.absent


def test_a_row_of_an_evaluation_is_of_the_step_before(tmp_path: Path) -> None:
    evaluated = "{'eval_reward': '0.75', 'eval_runtime': '2.0'}"
    trace = console(tmp_path, printed(step_time=4.0), evaluated, printed(step_time=5.0))
    assert trace.metrics.steps.tolist() == [1, 2]
    assert trace.metrics.values["eval_reward"][0] == 0.75
    assert analyse(trace).steps.start_ns[:, 0].tolist() == [0, 6_000_000_000]


def test_the_first_command_of_a_known_program_is_the_jobs(tmp_path: Path) -> None:
    commands = [f"+ trl grpo --num_generations {n}" for n in (4, 6)]
    run = console(tmp_path, "+ python x.py", *commands, printed()).run
    assert run.command == ("trl", "grpo", "--num_generations", "4")
    assert run.knobs["rollout.num_generations"] == 4
    assert console(tmp_path, printed()).run.command == ()


def test_a_table_of_something_else_has_no_steps(tmp_path: Path) -> None:
    example = '    "| Step | Reward |\\n",', '    "| 7 | 0.5 |\\n",'  # in a notebook's cell
    trace = console(tmp_path, printed(), *example, "| step | tokens |", "| 9 | 512 |")
    assert trace.metrics.steps.tolist() == [1]


@pytest.mark.parametrize(("times", "text"), [({}, "since 0.26"), ({"step_time": 1.0}, "optimizer")])
def test_what_step_times_cover_is_told(times: dict[str, float], text: str, tmp_path: Path) -> None:
    assert any(text in note for note in console(tmp_path, printed(**times)).run.notes)


@pytest.mark.parametrize(
    ("total", "rows", "last"), [(1875, 93, 1860), (200, 40, 200), (200, 200, 200), (200, 67, 67)]
)
def test_a_bar_at_its_end_numbers_rows_that_came_late(
    total: int, rows: int, last: int, tmp_path: Path
) -> None:
    bar = "".join(f" 1%|#| {n}/{total} [{n // 60:02}:{n % 60:02}<" for n in (0, total))
    path = tmp_path / "x.log"
    path.write_text(bar + "\n" + "{'loss': 0.1, 'reward': 0.5}\n" * rows)
    run, steps = load(path).run, load(path).metrics.steps
    assert (len(steps), steps[-1]) == (rows, last)
    assert f"took {total} s, 1 s a step" in " ".join(run.notes)


def test_the_last_of_two_training_runs_in_one_log_is_read_with_its_own_bar(tmp_path: Path) -> None:
    row = "{'loss': 0.1, 'reward': 0.5, 'reward_std': 0.1}\n"
    bar = "100%%|##########| %d/%d [%s<00:00, 1.00s/it]\n"
    path = tmp_path / "train.log"
    first = f"{'  0%|          | 0/3 [00:00<?, ?it/s]'}\n{row * 3}{{'train_runtime': 90.0}}\n"
    second = f"{'  0%|          | 0/2 [00:00<?, ?it/s]'}\n{row * 2}{{'train_runtime': 40.0}}\n"
    path.write_text(first + bar % (3, 3, "01:30") + second + bar % (2, 2, "00:40"))
    trace = load(path)
    assert trace.metrics.steps.tolist() == [1, 2]
    assert "The whole training took 40 s, 20 s a step." in trace.run.notes
    assert "The log has 2 training runs; this is the last." in trace.run.notes


def test_a_row_that_was_broken_after_a_comma_is_one_step(tmp_path: Path) -> None:
    path = tmp_path / "pasted.log"
    path.write_text(
        "{'loss': 0.1, 'completions/mean_length': 77.5, 'completions/min_length': 74.0, \n"
        "'rewards/format/mean': 3.0, 'reward': 4.0, 'reward_std': 0.0}\n"
        "{'eval_loss': 0.1, 'completions/mean_length': 40.0}\n"
    )
    assert load(path).metrics.steps.tolist() == [1]
