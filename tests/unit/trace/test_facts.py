"""What the supervisor and the job said of a run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.trace.facts import framework_of, read_facts
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Exit, Uncaught, Unhooked
from grpo_doctor.trace.read import read_trace
from grpo_doctor.trace.write import write_trace
from grpo_doctor_probes.record import clock


def write(folder: Path, name: str, **content: Any) -> None:
    (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize(("command", "framework"), [
    (["swift", "rlhf", "--rlhf_type", "grpo"], "ms-swift"),
    (["/opt/venv/bin/swift", "rlhf"], "ms-swift"),
    (["accelerate", "launch", "grpo.py"], "trl"),
    (["python", "-m", "verl.trainer.main_ppo"], "verl"),
    (["ray", "job", "openrlhf.cli.train_ppo_ray"], "openrlhf"),
    (["python", "train.py"], "unknown"),
    ([], "unknown"),
])  # fmt: skip
def test_the_framework_of_a_command(command: list[str], framework: str) -> None:
    assert framework_of(command, bundled=False) == framework
    assert framework_of(command, bundled=True) == "bundled"


def test_the_jobs_word_is_better_than_the_commands(tmp_path: Path) -> None:
    write(tmp_path, "run.json", command=["swift"], world_size=8, id="r")
    write(tmp_path, "job.json", framework="trl", framework_version="1.16.0", world_size=4,
          config={"learning_rate": 1e-6}, versions={"torch": "2.13"})  # fmt: skip
    run = read_facts(tmp_path).run
    assert (run.framework, run.framework_version, run.world_size) == ("trl", "1.16.0", 4)
    assert run.config == {"learning_rate": 1e-6}
    assert run.versions == {"torch": "2.13"}


def test_the_jobs_word_counts_too_where_it_says_no_settings(tmp_path: Path) -> None:
    write(tmp_path, "run.json", command=["swift", "rlhf", "--rlhf_type", "grpo", "--model", "m"])
    write(tmp_path, "job.json", framework="trl")
    assert read_facts(tmp_path).run.framework == "trl"


def test_a_command_that_is_known_only_by_its_script_has_its_framework(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("swift rlhf --rlhf_type grpo --model m\n")
    write(tmp_path, "run.json", command=["bash", str(tmp_path / "train.sh")])
    assert read_facts(tmp_path).run.framework == "ms-swift"
    write(tmp_path, "run.json", command=["bash", "gone.sh"])
    assert read_facts(tmp_path).run.framework == "unknown"


def test_a_script_that_is_of_no_framework_or_not_here_has_none(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import torch.distributed\n")
    (tmp_path / "of_trl.py").write_text("from trl import GRPOTrainer\n")
    folder = tmp_path / "recorded"
    folder.mkdir()
    for script, cwd, framework in (
        ("plain.py", str(tmp_path), "unknown"),
        ("of_trl.py", str(tmp_path), "trl"),
        ("of_trl.py", str(folder), "unknown"),
        ("of_trl.py", None, "unknown"),
        ("gone.py", str(tmp_path), "unknown"),
    ):
        write(folder, "run.json", command=["torchrun", "--nproc_per_node", "2", script], cwd=cwd)
        run = read_facts(folder).run
        assert (run.framework, run.facts) == (framework, {}), script


def test_a_script_that_was_written_after_the_start_is_not_what_ran(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("swift rlhf --rlhf_type grpo --model m --num_generations 4\n")
    written = script.stat().st_mtime_ns
    for started, framework in ((written + 1, "ms-swift"), (written - 1, "unknown")):
        write(tmp_path, "run.json", command=["bash", str(script)], started_unix_ns=started)
        run = read_facts(tmp_path).run
        assert run.framework == framework
        assert ("rollout.num_generations" in run.facts) is (framework == "ms-swift")


def test_no_files_at_all(tmp_path: Path) -> None:
    facts = read_facts(tmp_path)
    assert facts.run.id == tmp_path.name
    assert facts.run.exit == Exit("unknown")
    assert (facts.start_ns, facts.end_ns, facts.problems) == (None, None, ())


def test_a_job_is_running_only_while_it_lives(tmp_path: Path) -> None:
    started = clock.process_start_ns()
    own = {"job_pid": os.getpid(), "started_ns": started, "clock_id": clock.identity()}
    assert started is not None
    for off_ns, state in ((0, "running"), (19 * 10**8, "running"), (21 * 10**8, "unknown")):
        write(tmp_path, "run.json", **{**own, "started_ns": started + off_ns})
        assert read_facts(tmp_path).run.exit.state == state
    for other in (
        {"started_ns": time.monotonic_ns() + 10**12},  # the id belongs to another process now
        {"clock_id": "elsewhere"},
        {"job_pid": 2**22 + 1},
    ):
        write(tmp_path, "run.json", **{**own, **other})
        assert read_facts(tmp_path).run.exit.state == "unknown"


@pytest.mark.parametrize(("end", "exit_"), [
    ({"state": "finished", "code": 0}, Exit("finished", 0)),
    ({"state": "killed", "signal": "SIGKILL"}, Exit("killed", None, "SIGKILL")),
    ({"state": "exploded", "code": "1", "signal": ""}, Exit("unknown")),
])  # fmt: skip
def test_the_end_of_a_job(tmp_path: Path, end: dict[str, Any], exit_: Exit) -> None:
    write(tmp_path, "run.json", end=end)
    assert read_facts(tmp_path).run.exit == exit_


def test_what_the_job_said_and_else_what_the_supervisor_said(tmp_path: Path) -> None:
    write(tmp_path, "run.json", world_size=4, started_unix_ns=7, host="a", job_pid=12, id="x")
    facts = read_facts(tmp_path)
    assert (facts.run.world_size, facts.run.started_unix_ns, facts.run.id) == (4, 7, "x")
    assert (facts.host, facts.job_pid) == ("a", 12)
    write(tmp_path, "job.json", world_size=8)
    assert read_facts(tmp_path).run.world_size == 8
    write(tmp_path, "job.json", world_size=-8)
    assert read_facts(tmp_path).run.world_size == 0


def test_settings_that_no_job_said_are_read_from_its_command_and_the_files_it_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.sh").write_text(
        "N=4\nNPROC_PER_NODE=$N swift rlhf --rlhf_type grpo --num_generations $((N * 2)) "
        "--deepspeed zero3\n"
    )
    folder = tmp_path / "grpo-doctor-out" / "r"
    folder.mkdir(parents=True)
    write(folder, "run.json", command=["bash", "run.sh"], id="r")
    run = read_facts(folder).run
    assert run.framework == "ms-swift"
    assert (run.knobs["rollout.num_generations"], run.knobs["deepspeed.stage"]) == (8, 3)
    write(folder, "job.json", framework="ms-swift", config={"num_generations": 16})
    assert dict(read_facts(folder).run.knobs) == {"rollout.num_generations": 16}


def _lines(folder: Path, name: str, *rows: Any) -> None:
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_errors_that_ended_the_job_are_those_of_ranks_or_of_what_ended_with_it(
    tmp_path: Path,
) -> None:
    write(tmp_path, "run.json", end={"state": "failed", "code": 1, "ended_ns": 60_000_000_000})
    of_rank = {"text": "ValueError: a", "rank": 1}
    late = {"text": "KeyError: 'b'", "at_ns": 59 * 10**9}
    _lines(
        tmp_path, "errors.jsonl", of_rank, late,
        {"text": "ImportError: a probe of the script", "at_ns": 5 * 10**9},
        {"text": "ChildFailedError: ====", "at_ns": 59 * 10**9},
        {"rank": 1}, {"text": 7}, {"text": "x", "rank": "one"},
    )  # fmt: skip
    assert [error.text for error in read_facts(tmp_path).run.uncaught] == [
        "ValueError: a", "KeyError: 'b'",
    ]  # fmt: skip


def test_processes_without_hooks_survive_the_trace_file(tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "reason": "PYTHONPATH was unset", "remedy": "Keep it", "pid": 7, "rank": 1, "command": "x",
    }  # fmt: skip
    write(tmp_path, "run.json", started_ns=1, ended=["rank 1 ended first"])
    _lines(tmp_path, "unhooked.jsonl", row, {"reason": 1})
    _lines(tmp_path, "errors.jsonl", {"text": "ValueError: a", "rank": 0, "pid": 3, "host": "h"})
    (tmp_path / "ranks").mkdir()
    merged = merge(tmp_path)
    write_trace(merged, tmp_path / "trace.json")
    again = read_trace(tmp_path / "trace.json").run
    assert again.unhooked == merged.run.unhooked == (Unhooked(**row),)
    assert again.uncaught == merged.run.uncaught == (Uncaught("ValueError: a", 3, 0, "h"),)
    assert again.ended == ("rank 1 ended first",)
