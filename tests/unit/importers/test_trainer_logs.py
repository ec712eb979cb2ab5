"""`trainer_state.json` and ms-swift's `logging.jsonl`: the metrics, and what they tell of time."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.learning import curve
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.laid import LoggedStep
from grpo_doctor.importers.load import load
from grpo_doctor.importers.swift_log import load as load_swift
from grpo_doctor.importers.swift_log import recognises as recognises_swift
from grpo_doctor.importers.trainer_log import LIMITS, facts, framework_of, logged_step, numbers
from grpo_doctor.importers.trainer_state import recognises as recognises_state
from grpo_doctor.trace.model import Trace


def trl_row(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "epoch": step / 40,
        "reward": 0.5,
        "reward_std": 0.25,
        "frac_reward_zero_std": 0.125,
        "completions/mean_length": 100.0 + step,
        "grad_norm": 0.4,
        **more,
    }


def state_text(*rows: dict[str, Any], **more: Any) -> str:
    return json.dumps({"epoch": 1.0, "global_step": 40, "log_history": rows, **more}, indent=2)


def trainer_state(folder: Path, *rows: dict[str, Any]) -> Trace:
    path = folder / "trainer_state.json"
    path.write_text(state_text(*rows, logging_steps=5, max_steps=40))
    return load(path)


def swift_row(step: int, elapsed_s: float, **more: Any) -> dict[str, Any]:
    row = trl_row(step, **more)
    del row["step"]
    return {
        **row,
        "global_step/max_steps": f"{step}/100",
        "elapsed_time": f"{int(elapsed_s) // 60}m {int(elapsed_s) % 60}s",
        "memory(GiB)": 61.5,
        "train_speed(s/it)": round(elapsed_s / step, 6),
    }


def swift_log(folder: Path, *rows: dict[str, Any], end: str = "") -> Trace:
    path = folder / "logging.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + end)
    return load(path)


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
    assert "mean of 5 steps" in notes


def test_nan_in_a_trainer_state_stays_nan(tmp_path: Path) -> None:
    metrics = trainer_state(tmp_path, trl_row(1, kl=math.nan), trl_row(2, kl=math.inf)).metrics
    assert math.isnan(metrics.values["kl"][0])
    assert math.isinf(metrics.values["kl"][1])
    assert "kl" not in metrics.absent


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


def test_settings_of_ms_swift_lie_beside_its_log(tmp_path: Path) -> None:
    arguments = {
        "rlhf_type": "grpo",
        "swift_version": "4.6.0",
        "global_world_size": 8,
        "num_generations": 16,
    }
    (tmp_path / "args.json").write_text(json.dumps(arguments))
    run = swift_log(tmp_path, swift_row(1, 7.5)).run
    assert run.framework_version == "4.6.0"
    assert run.world_size == 8
    assert run.knobs["rollout.num_generations"] == 16


def test_half_a_row_of_ms_swift_is_left_out(tmp_path: Path) -> None:
    trace = swift_log(tmp_path, swift_row(1, 7.5), swift_row(2, 15.0), end='{"loss": 0.1, "rew')
    assert trace.loss.truncated
    assert trace.metrics.steps.tolist() == [1, 2]


def test_a_damaged_row_of_ms_swift_is_named(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    lines = [json.dumps(swift_row(n, 7.5 * n)) for n in (1, 2, 3)]
    lines[1] = lines[1].replace(":", "=", 1)
    path.write_text("\n".join(lines) + "\n")
    trace = load(path)
    assert trace.metrics.steps.tolist() == [1, 3]
    assert trace.loss.notes == ("lines that are no JSON left out: [2]",)


def console(folder: Path, *rows: str, end: str = "\n") -> Trace:
    path = folder / "train.log"
    path.write_text("\n".join(["[2026-03-25 11:39:14] [INFO] started", *rows]) + end)
    return load(path)


def printed(**values: Any) -> str:
    row = {"loss": "0.01", "reward": "0.5", "completions/mean_length": "15.75", **values}
    return f"Train:   0%|  | 1/9 [00:00<37:47, 1.88it/s]   {row}"


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


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        (("loss", "reward"), "trl"),
        (("loss", "completions/mean_length"), "trl"),
        (("reward", "completions/mean_length"), "trl"),
        (("loss", "grad_norm"), "unknown"),
        ((), "unknown"),
    ],
)
def test_grpo_is_known_by_a_reward_or_by_completions(keys: tuple[str, ...], framework: str) -> None:
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
    ("steps", "text"), [((1, 2, 3), None), ((2, 4, 6, 7), "mean of 2"), ((5,), None), ((), None)]
)
def test_how_many_steps_a_row_is_of(steps: tuple[int, ...], text: str | None) -> None:
    logged = [LoggedStep(step, 1.0, metrics={"reward": 1.0}) for step in steps]
    notes = [n for n in facts("a log", Path("x/y"), logged, ()).notes if "Every row" in n]
    assert bool(notes) is (text is not None)
    assert text is None or text in notes[0]


@pytest.mark.parametrize(
    ("phases", "limited"),
    [((), True), ((("eval", 1.0),), True), ((("train", 1.0), ("eval", 1.0)), False)],
)
def test_where_time_goes_is_open_without_timed_functions(
    phases: tuple[tuple[str, float], ...], limited: bool
) -> None:
    log_facts = facts("a log", Path("x/y"), [LoggedStep(1, 1.0, phases)], ())
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


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (' {"loss": 1, "global_step/max_steps": "1/9"}', True), ('{"loss": 1}', False),
        ('["global_step/max_steps"]', False),
    ],
)  # fmt: skip
def test_ms_swifts_log_is_known_by_its_progress(text: str, known: bool) -> None:
    assert recognises_swift(Path("x"), text.encode()) is known


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


# -- ms-swift's speeds


def test_steps_per_second_are_a_speed_too(tmp_path: Path) -> None:
    rows = [swift_row(n, 7.5 * n) for n in (1, 2, 3)]
    for row, step in zip(rows, (1, 2, 3), strict=True):
        del row["train_speed(s/it)"]
        row["train_speed(iter/s)"] = round(1 / 7.5, 6)
        assert step
    seconds = analyse(swift_log(tmp_path, *rows)).steps.seconds[:, 0].tolist()
    assert seconds == pytest.approx([7.5] * 3, rel=1e-4)


@pytest.mark.parametrize("speed", [0.0, -1.0, "fast", None, 7])
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


def test_nan_in_a_log_of_ms_swift_stays_nan(tmp_path: Path) -> None:
    metrics = swift_log(tmp_path, swift_row(1, 7.5, kl=math.nan)).metrics
    assert math.isnan(metrics.values["kl"][0])
    assert "kl" not in metrics.absent


def test_a_log_of_ms_swift_without_a_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    path.write_text("\n[1]\n")
    with pytest.raises(TraceError, match="line 1 is no JSON object"):
        load_swift(path)


# -- what is printed


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


def test_whether_the_last_row_was_cut_off_counts(tmp_path: Path) -> None:
    whole = console(tmp_path, printed(), printed())
    assert (whole.loss.truncated, whole.loss.notes) == (False, ())
    assert console(tmp_path, printed(), printed()[:-9], end="").loss.notes == (
        "the last line is cut off",
    )


@pytest.mark.parametrize(("times", "text"), [({}, "since 0.26"), ({"step_time": 1.0}, "optimizer")])
def test_what_step_times_cover_is_told(times: dict[str, float], text: str, tmp_path: Path) -> None:
    assert any(text in note for note in console(tmp_path, printed(**times)).run.notes)
