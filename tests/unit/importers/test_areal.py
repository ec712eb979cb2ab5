"""AReaL's traces: one event a line, a file per process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.errors import TraceError
from grpo_doctor.importers import areal
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Kind, Trace


def event(name: str, start_us: float, length_us: float, **args: Any) -> dict[str, Any]:
    process = {"pid": 77, "tid": 1, "cat": "compute"}
    return {"name": name, "ph": "X", "ts": start_us, "dur": length_us, **process, "args": args}


def trainer_events(steps: int, rank: int = 0) -> list[dict[str, Any]]:
    """Steps of 1 s: 600 ms rollout, 100 ms log-probs, 200 ms update, 50 of it the optimizer."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 77, "args": {"name": f"Rank {rank}"}}
    ]
    for step in range(steps):
        at, args = 1e6 * step + 250.5, {"global_step": step, "rank": rank}
        events += [
            event("train.rollout", at, 600_000, **args),
            event("rollout_controller.prepare_batch", at + 10, 500_000, rank=rank),
            event("train.recompute_logp", at + 600_000, 100_000, **args),
            event("fsdp_engine.forward", at + 600_010, 90_000, rank=rank),
            event("fsdp_engine.step", at + 850_000, 50_000, rank=rank),
            event("train.ppo_update", at + 700_000, 200_000, **args),
            event("train.actor_offload", at + 900_000, 20_000, rank=rank),
            event("train.update_weights", at + 920_000, 60_000, **args),
        ]
    return events


def written(path: Path, events: list[dict[str, Any]], end: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(e) + "\n" for e in events) + end)
    return path


def test_steps_and_phases(tmp_path: Path) -> None:
    trace = load(written(tmp_path / "traces-r0.jsonl", trainer_events(5)))
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [0, 1, 2, 3, 4]
    assert analysis.steps.seconds[:4, 0].tolist() == pytest.approx([1.0] * 4)
    phases = {
        "rollout": 0.6,
        "logprob": 0.1,
        "train": 0.15,
        "optimizer": 0.05,
        "offload": 0.02,
        "sync": 0.06,
    }
    for phase, seconds in phases.items():
        # The last step ends with its last range, the others with the next one's begin.
        steps = analysis.seconds[:4, 0, CODES[phase]]
        assert steps == pytest.approx(seconds, abs=1e-6), phase


def test_a_folder_has_its_ranks_and_says_who_is_left_out(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path / f"traces-r{rank}.jsonl", trainer_events(3, rank))
    engine = [event("remote_inf_engine.pause_generation", 5.0, 10.0, rank=0, role="rollout")]
    written(tmp_path / "rollout" / "traces-r0.jsonl", engine)
    trace = load(tmp_path)
    assert trace.ranks == (0, 1)
    assert trace.run.notes == ("Left out: 1 of 3 processes, which have no steps.",)
    assert {process.clock.error_ns for process in trace.processes} == {None}


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "traces-r4.jsonl", trainer_events(2), end='{"name": "train.roll')
    trace = load(path)
    assert trace.loss.truncated
    assert trace.loss.dropped_events == 0
    assert trace.ranks == (0,)  # as the events say


def test_a_damaged_line_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "traces-r0.jsonl", trainer_events(2))
    path.write_text(path.read_text().replace('"dur": 60000,', '"dur": ,', 1))
    assert load(path).loss.dropped_events == 1


def steps_of(trace: Trace) -> list[tuple[float, float, float]]:
    """Number, begin and end of each step, in microseconds."""
    spans = trace.spans
    rows = spans.kind == Kind.STEP
    columns = (spans.value[rows], spans.start_ns[rows] / 1000, spans.end_ns[rows] / 1000)
    return list(zip(*(column.tolist() for column in columns)))


def test_a_step_lasts_until_the_next_and_the_last_one_as_long_as_its_ranges(tmp_path: Path) -> None:
    rows = [
        event("train.rollout", 100.0, 50.0, global_step=4),
        event("train.ppo_update", 130.0, 60.0, global_step=4),
        event("train.rollout", 300.0, 10.0, global_step=5),
        event("train.ppo_update", 305.0, 90.0, global_step=5),
        event("train.save", 390.0, 2.0, global_step=5),
        # Neither engines nor what has no step begin one.
        event("fsdp_engine.step", 50.0, 900.0, global_step=3),
        event("train.rollout", 60.0, 1.0),
        event("train.rollout", 70.0, 1.0, global_step=-1),
    ]
    trace = load(written(tmp_path / "traces-r0.jsonl", rows))
    assert steps_of(trace) == [(4, 50, 250), (5, 250, 345)]


def test_a_step_begins_with_its_first_range_whichever_was_written_first(tmp_path: Path) -> None:
    rows = [
        event("train.ppo_update", 130.0, 60.0, global_step=4),
        event("train.rollout", 100.0, 50.0, global_step=4),
    ]
    assert steps_of(load(written(tmp_path / "traces-r0.jsonl", rows))) == [(4, 0, 90)]


def test_a_file_whose_processes_all_step_leaves_none_out(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path / f"traces-r{rank}.jsonl", trainer_events(2, rank))
    assert load(tmp_path).run.notes == ()


@pytest.mark.parametrize(
    ("fields", "name", "rank"),
    [
        ({"rank": 3}, "traces-r5.jsonl", 3), ({}, "traces-r5.jsonl", 5), ({}, "other.jsonl", 0),
        ({"rank": 0}, "traces-r5.jsonl", 0), ({"rank": -1}, "traces-r5.jsonl", 0),
        ({"rank": (1 << 20) - 1}, "x.jsonl", (1 << 20) - 1), ({"rank": 1 << 20}, "x.jsonl", 0),
    ],
)  # fmt: skip
def test_the_rank_is_what_events_say_or_else_the_file(
    fields: dict[str, int], name: str, rank: int, tmp_path: Path
) -> None:
    trace = load(written(tmp_path / name, [event("train.rollout", 1.0, 2.0, **fields)]))
    assert trace.ranks == (rank,)
    assert trace.processes[0].os_pid == 77


def test_a_folder_is_known_by_the_names_and_the_beginning_of_its_files(tmp_path: Path) -> None:
    assert not areal.recognises(tmp_path, b"")
    (tmp_path / "traces-r0.jsonl").write_text('{"loss": 1}\n')
    assert not areal.recognises(tmp_path, b"")
    written(tmp_path / "traces-r0.jsonl", trainer_events(1))
    assert areal.recognises(tmp_path, b"")
    written(tmp_path / "other" / "x.jsonl", trainer_events(1))
    assert not areal.recognises(tmp_path / "other", b"")


def test_a_file_without_an_event_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "traces-r0.jsonl"
    path.write_text("\n\n[1]\n")
    with pytest.raises(TraceError, match="line 1 is not an event, nor is any other"):
        areal.load(path)
    only = {"name": "train.rollout", "ph": "B", "ts": 1, "pid": 1}
    assert len(load(written(path, [only])).spans) == 0


def test_names_become_spans_of_phases_or_stay() -> None:
    names = {
        "train.rollout": "rollout/generate",
        "train.save": "checkpoint",
        "train.actor_offload": "offload",
        "train.rollout_resume": "offload",
        "train.other": "train.other",
        "fsdp_engine.step": "optimizer",
        "fsdp_engine.steps": "fsdp_engine.steps",
        "engine/forward": "engine.forward",
    }
    assert {name: areal._span_of(name) for name in names} == names
