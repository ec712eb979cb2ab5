"""What a run does now, read from the files of real recorded programs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from grpo_doctor.trace.spanfile import last_records, read_span_file
from grpo_doctor.watch.snapshot import Watched, as_json
from grpo_doctor_probes.record import layout
from grpo_doctor_reports.schema.watch import Snapshot
from tests.recording import run_job, spans_file, start_job

STEPS = """
    import sys, time
    from grpo_doctor_probes import phase, step
    for number in range({steps}):
        with step(number):
            with phase("train"), phase("rollout"), phase("generate"):  # as TRL's
                time.sleep(0.002)
            with phase("reward"):
                pass
            with phase("mine"):
                pass
"""
WAITS = """
    with step(7), phase("sync"):
        print("there", flush=True)
        sys.stdin.readline()
"""
HEAD = {"format": 1, "host": "a", "t_ns": 1}
GPU = {"gpu": "GPU-1", "index": 3, "name": "H100", "memory_total_bytes": 80 << 30, "visible": True}
HIDDEN = {**GPU, "gpu": "GPU-2", "visible": False}
TRACKS = [
    {"track": 0, "name": "gpu.util", "gpu": "GPU-1"},
    {"track": 1, "name": "gpu.memory_used", "gpu": "GPU-1"},
]


def lines(*rows: object) -> bytes:
    """Whole lines of a sample file."""
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def test_last_steps_with_their_phases(tmp_path: Path) -> None:
    run_job(STEPS.format(steps=70), tmp_path)
    forked = tmp_path / "ranks" / "00000.4711.spans"  # a process that the rank forked is no rank
    forked.write_bytes((tmp_path / "ranks" / "00000.spans").read_bytes())
    now = Watched(tmp_path).look()
    assert (now.state, now.ranks, now.where) == ("ended", 1, {})
    assert [step.number for step in now.steps] == list(range(10, 70))
    for step in now.steps:
        assert list(step.phases) == ["train", "rollout", "reward", "other"]
        assert 0 < sum(step.phases.values()) <= step.seconds
        assert step.phases["rollout"] >= 0.002
    assert msgspec.json.decode(as_json(now), type=Snapshot) == now


def test_a_process_is_in_the_span_it_opened_last(tmp_path: Path) -> None:
    job = start_job(STEPS.format(steps=1) + WAITS, tmp_path)
    assert job.stdout is not None
    assert job.stdout.readline() == "there\n"
    now = Watched(tmp_path).look()
    assert (now.state, now.where, now.exit_code) == ("running", {"sync": 1}, None)
    (rank,) = now.longest
    assert (rank.rank, rank.role, rank.step, rank.phase) == (0, "", 7, "sync")
    assert 0 <= rank.since_s < 60
    job.communicate("\n")
    assert Watched(tmp_path).look().where == {}


def test_the_tail_of_a_file_is_its_last_records(tmp_path: Path) -> None:
    """The work of one look does not grow with the run."""
    run_job(STEPS.format(steps=5000).replace("time.sleep(0.002)", "pass"), tmp_path)
    path = spans_file(tmp_path)
    whole = read_span_file(path).records
    tail = last_records(path, segments=1)
    assert len(whole) > layout.SEGMENT_RECORDS > len(tail) > 0
    assert np.array_equal(tail, whole[-len(tail) :])
    assert np.array_equal(last_records(path, segments=99), whole)


def test_gpus_are_read_as_they_are_appended(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    path = tmp_path / "hosts" / "a.samples.jsonl"
    path.parent.mkdir()
    last = lines({"t": 2, "v": {"0": 41.0, "1": 7.0, "9": 1}})
    path.write_bytes(lines(HEAD, GPU, HIDDEN, *TRACKS, ["no object"]) + b"{damaged\n" + last[:-5])
    watched = Watched(tmp_path)
    (gpu,) = watched.look().gpus
    assert (gpu.host, gpu.index, gpu.busy_pct) == ("a", 3, None)
    with path.open("ab") as file:
        file.write(last[-5:] + lines({"t": 3, "v": {"1": None}}))
    (gpu,) = watched.look().gpus
    assert (gpu.busy_pct, gpu.memory_bytes, gpu.memory_total_bytes) == (41.0, None, 80 << 30)
    with path.open("ab") as file:  # the sampler began again
        file.write(lines(HEAD))
    assert watched.look().gpus[0].busy_pct is None


def test_a_directory_that_vanishes_is_a_state(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "ranks").mkdir(parents=True)
    watched = Watched(run)
    assert watched.look().state == "ended"
    (run / "ranks").rmdir()
    run.rmdir()
    assert watched.look().state == "gone"


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\0" * layout.HEADER_BYTES])
def test_files_that_are_no_span_files_are_left_to_the_report(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "00000.spans").write_bytes(content)
    assert Watched(tmp_path).look().ranks == 0
