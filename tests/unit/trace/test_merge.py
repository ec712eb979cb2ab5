"""Run directories: whole, half-written, of several hosts, without a recorder, still going on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Kind, Trace
from grpo_doctor.trace.read import load
from grpo_doctor.trace.write import write_trace
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.rundir import NODES
from tests.recording import write_recording

S = 1_000_000_000
UNIX = 1_763_680_000 * S


def facts(
    host: str = "a", clock_id: str = "boot-a", boot_ns: int = UNIX, **more: Any
) -> dict[str, Any]:
    """A rank file of a host that was booted at `boot_ns`."""
    clocks = [{"monotonic_ns": S, "unix_ns": boot_ns + S}]
    return {"host": host, "clock_id": clock_id, "clocks": clocks, **more}


def run_json(folder: Path, **more: Any) -> None:
    content = {
        "format": 1, "id": "r1", "command": ["swift", "rlhf"], "world_size": 2, "host": "a",
        "job_pid": 77, "started_ns": S, "started_unix_ns": UNIX + S, "clock_id": "boot-a",
        "clock": {"monotonic_ns": S, "unix_ns": UNIX + S}, **more,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(content))


def end(**more: Any) -> dict[str, Any]:
    return {"state": "finished", "code": 0, "signal": None, "ended_ns": 20 * S, **more}


def names(trace: Trace, process: int) -> list[str]:
    mine = trace.spans.select(trace.spans.process == process)
    return [trace.names[n] for n in mine.name]


def test_ranks_of_two_hosts_are_on_one_clock(tmp_path: Path) -> None:
    """Rank 1's host was booted 100 s later, so its monotonic clock is 100 s behind."""
    later = UNIX + 100 * S
    spans = [("step", 5 * S, 9 * S), ("rollout", 5 * S, 8 * S)]
    write_recording(tmp_path, 0, [(n, b + 100 * S, e + 100 * S) for n, b, e in spans],
                    start_ns=101 * S, closed_ns=110 * S, facts=facts())  # fmt: skip
    write_recording(tmp_path, 1, spans, start_ns=S, closed_ns=11 * S, pid=4001,
                    facts=facts("b", "boot-b", later))  # fmt: skip
    trace = merge(tmp_path)
    first, second = (trace.spans.select(trace.spans.process == p) for p in (0, 1))
    assert first.start_ns.tolist() == second.start_ns.tolist() == [4 * S, 4 * S]
    assert [p.clock.method for p in trace.processes] == ["same clock", "wall clock"]
    assert [p.clock.offset_ns for p in trace.processes] == [0, 100 * S]
    assert trace.processes[1].clock.error_ns == 10_000_000
    assert trace.run.duration_ns == 10 * S


def test_without_a_rank_file_the_header_tells_the_clock(tmp_path: Path) -> None:
    write_recording(tmp_path, 0, [("init", 2 * S, 3 * S)], closed_ns=4 * S, facts=None)
    write_recording(tmp_path, 1, [("init", 2 * S, 3 * S)], closed_ns=4 * S, facts=None, pid=2)
    trace = merge(tmp_path)
    assert {p.clock.method for p in trace.processes} == {"wall clock"}
    assert trace.processes[1].clock.offset_ns == 0
    assert trace.processes[0].host == "unknown"


def test_what_never_ended_lasts_as_long_as_its_process_was_seen(tmp_path: Path) -> None:
    write_recording(
        tmp_path, 0, [("init", 2 * S, 3 * S)], opened=[("step", 4 * S), ("rollout", 5 * S)],
        facts=facts(),
    )  # fmt: skip
    run_json(tmp_path, end=end(state="killed", code=None, signal="SIGKILL"))
    trace = merge(tmp_path)
    assert trace.processes[0].state == "open"
    opened = trace.spans.select(trace.spans.open)
    assert [Kind(k) for k in opened.kind] == [Kind.STEP, Kind.SPAN]
    assert opened.end_ns.tolist() == [19 * S, 19 * S], "the run's end"
    assert opened.depth.tolist() == [0, 1]
    assert trace.loss.missing_ranks == (1,)


def test_clocks_without_an_identity_are_the_wall_clocks(tmp_path: Path) -> None:
    for rank, boot_ns in ((0, UNIX), (1, UNIX + 100 * S)):
        own_facts = {
            key: value for key, value in facts(boot_ns=boot_ns).items() if key != "clock_id"
        }
        late = 100 * S * (rank == 0)
        write_recording(tmp_path, rank, [("step", 5 * S + late, 9 * S + late)], pid=4000 + rank,
                        start_ns=S + late, closed_ns=11 * S + late, facts=own_facts)  # fmt: skip
    trace = merge(tmp_path)
    assert trace.spans.start_ns[0] == trace.spans.start_ns[1]
    assert [p.clock.method for p in trace.processes] == ["wall clock"] * 2


@pytest.mark.parametrize(("world_size", "missing"), [(0, ()), (2, (1,))])
def test_of_a_drivers_workers_those_that_know_of_no_other_rank_are_no_ranks(
    tmp_path: Path, world_size: int, missing: tuple[int, ...]
) -> None:
    run_json(tmp_path)
    write_recording(tmp_path, 0, [("step", 2 * S, 9 * S)], pid=10, stem="d",
                    facts=facts(role="driver"))  # fmt: skip
    write_recording(tmp_path, 0, [("train", 2 * S, 9 * S)], pid=11, stem="a",
                    facts=facts(role="actor", world_size=world_size))  # fmt: skip
    assert merge(tmp_path).loss.missing_ranks == missing


def test_init_begins_with_the_process(tmp_path: Path) -> None:
    write_recording(
        tmp_path, 0, [("init", 5 * S, 6 * S)], start_ns=4 * S, facts=facts(process_start_ns=3 * S)
    )
    trace = merge(tmp_path)
    assert (trace.spans.start_ns[0], trace.spans.end_ns[0]) == (0, 3 * S)


@pytest.mark.parametrize("started", [-1, 10**30, "early", 90_000 * S, None])
def test_a_process_start_that_can_not_be_is_not_used(tmp_path: Path, started: object) -> None:
    """Also one a day before: a notebook's kernel has lived before the recording began."""
    first = 86_400 * S if started is None else 4 * S
    facts_ = facts(process_start_ns=S if started is None else started)
    write_recording(tmp_path, 0, [("init", first + S, first + 2 * S)], start_ns=first, facts=facts_)
    trace = merge(tmp_path)
    assert trace.spans.start_ns.tolist() == [0]
    assert trace.run.duration_ns == 2 * S


def test_children_are_workers_and_a_second_run_is_not(tmp_path: Path) -> None:
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], facts=facts(), pid=10)
    write_recording(tmp_path, 0, [("dataload", 2 * S, 3 * S)], facts=facts(parent_pid=10), pid=11,
                    stem="00000.11")  # fmt: skip
    write_recording(tmp_path, 0, [("step", 6 * S, 7 * S)], facts=facts(parent_pid=1), pid=12,
                    stem="00000.12")  # fmt: skip
    roles = [(p.os_pid, p.role) for p in merge(tmp_path).processes]
    assert roles == [(10, "trainer"), (12, "trainer"), (11, "worker")]


def test_a_driver_carries_the_steps_and_its_workers_are_no_ranks_of_theirs(tmp_path: Path) -> None:
    """Two actors of two ranks, a reward worker, and a process that has not said what it is."""
    run_json(tmp_path)
    write_recording(tmp_path, 0, [("step", 2 * S, 9 * S), ("rollout", 2 * S, 5 * S)], pid=10,
                    facts=facts(role="driver"), stem="00000.10")  # fmt: skip
    for rank in (0, 1):
        write_recording(tmp_path, rank, [("train", 5 * S, 9 * S)], pid=20 + rank, stem=f"a{rank}",
                        facts=facts(role="actor", world_size=2))  # fmt: skip
    write_recording(tmp_path, 0, [("reward", 3 * S, 4 * S)], pid=30, facts=facts(role="reward"),
                    stem="r")  # fmt: skip
    write_recording(tmp_path, 0, [("rollout", 3 * S, 4 * S)], pid=40, facts=facts())
    trace = merge(tmp_path)
    assert [p.role for p in trace.processes] == ["driver", "worker", "actor", "reward", "actor"]
    assert trace.ranks == (0,)
    assert trace.run.world_size == 2
    assert not trace.loss.missing_ranks
    write_trace(trace, tmp_path / "trace.json")
    assert load(tmp_path / "trace.json").processes == trace.processes
    text = (tmp_path / "trace.json").read_text()
    assert all(f'"{label} · a"' in text for label in ("driver", "rank 1 actor", "rank 0 reward"))


@pytest.mark.parametrize("role", ["", 7, {"a": 1}, None])
def test_a_role_that_is_none_is_that_of_a_rank(tmp_path: Path, role: object) -> None:
    write_recording(tmp_path, 0, [("step", 2 * S, 9 * S)], facts=facts(role=role))
    assert [p.role for p in merge(tmp_path).processes] == ["trainer"]


def test_a_command_without_a_recorder_is_one_process(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    run_json(tmp_path, end=end(code=3, state="failed"))
    trace = merge(tmp_path)
    (process,) = trace.processes
    assert (process.role, process.os_pid, process.state) == ("job", 77, "finished")
    assert names(trace, 0) == ["init"]
    assert trace.spans.end_ns.tolist() == [19 * S]
    assert (trace.run.exit.state, trace.run.exit.code) == ("failed", 3)
    assert trace.run.framework == "ms-swift"
    assert not trace.loss.any


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.34, 0.5, 0.9])
def test_a_half_written_rank_costs_what_it_lacks(tmp_path: Path, share: float) -> None:
    spans = [("step", (n + 2) * 1000, (n + 2) * 1000 + 900) for n in range(8000)]
    write_recording(tmp_path, 0, spans, start_ns=1, closed_ns=S, facts=facts())
    path = write_recording(tmp_path, 1, spans, start_ns=1, closed_ns=S, facts=facts(), pid=2)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    run_json(tmp_path, end=end())
    trace = merge(tmp_path)
    assert names(trace, 0).count("step") == 8000
    if len(data) * share < layout.HEADER_BYTES:
        assert trace.loss.missing_ranks == (1,)
        (note,) = trace.loss.notes
        assert str(path) in note
        assert "half-written" in note
        return
    assert trace.loss.missing_ranks == ()
    mine = trace.spans.select(trace.spans.process == 1)
    assert mine.start_ns.tolist() == trace.spans.start_ns[: len(mine)].tolist()
    if share < 0.5:
        assert trace.loss.truncated
        assert "00001.spans: cut off; the records that are there are used" in trace.loss.notes
    else:
        assert 0 < len(mine) <= 8000


DAMAGED_FILES = {
    "cut off": b'{"id": "r1", "comm', "empty": b"", "binary": bytes(range(256)),
    "a list": b"[1, 2]", "a number": b"7", "nan": b'{"id": NaN}', "deep": b'{"a":' + b"[" * 50_000,
}  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED_FILES.values(), ids=DAMAGED_FILES)
@pytest.mark.parametrize("name", ["run.json", "job.json", "ranks/00000.json"])
def test_a_damaged_file_is_named_and_the_rest_is_used(
    tmp_path: Path, name: str, content: bytes
) -> None:
    run_json(tmp_path)
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts=facts())
    write_recording(tmp_path, 1, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts=facts(), pid=2)
    (tmp_path / name).write_bytes(content)
    trace = merge(tmp_path)
    assert len(trace.spans) == 2
    (note,) = trace.loss.notes
    assert note.startswith(f"{Path(name).name} is damaged: ")


@pytest.mark.parametrize("name", ["run.json", "job.json", "metrics.jsonl", "ranks/00000.json"])
def test_a_folder_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts=None)
    (tmp_path / name).mkdir()
    trace = merge(tmp_path)
    assert len(trace.spans) == 1
    assert any("can't be read: Is a directory" in note for note in trace.loss.notes)


def test_a_folder_in_the_place_of_a_recording(tmp_path: Path) -> None:
    (tmp_path / "ranks" / "00000.spans").mkdir(parents=True)
    with pytest.raises(TraceError, match=r"00000\.spans is not a file"):
        merge(tmp_path)
    write_recording(tmp_path, 1, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts=facts())
    assert len(merge(tmp_path).spans) == 1


ODD: dict[str, dict[str, Any]] = {
    "numbers as text": {"command": 5, "world_size": "2", "started_unix_ns": "x", "id": 7},
    "huge": {"world_size": 10**18, "started_unix_ns": 10**40, "job_pid": 10**30},
    "negative": {"world_size": -5, "started_ns": -1},
    "lists": {"end": [1], "clock": [1], "host": ["a"], "versions": [1]},
    "strange end": {"end": {"state": "exploded", "code": "x", "signal": 9, "ended_ns": 1.5}},
    "ends before it begins": {"end": {"state": "finished", "ended_ns": 1}},
    "nothing": dict.fromkeys(("command", "host", "clock", "clock_id", "started_ns")),
    "nested command": {"command": [["a"], {"b": 1}, None]},
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_odd_facts_do_not_stop_the_merge_nor_the_file(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    run_json(tmp_path, **change)
    odd_facts = {
        "host": [1], "clock_id": 5, "clocks": {"a": 1}, "local_rank": "0", "parent_pid": {},
    }  # fmt: skip
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts=odd_facts)
    job = {"framework": 5, "framework_version": [1], "config": [1], "versions": {"a": 1}}
    (tmp_path / "job.json").write_text(json.dumps({**job, **change}))
    trace = merge(tmp_path)
    assert len(trace.spans) == 1
    assert len(trace.loss.missing_ranks) <= 1
    write_trace(trace, tmp_path / "trace.json")
    assert load(tmp_path / "trace.json").run == trace.run


def test_metrics_with_damage_are_used_as_far_as_they_go(tmp_path: Path) -> None:
    write_recording(tmp_path, 0, closed_ns=4 * S, facts=facts())
    lines = [
        '{"step":1,"metrics":{"loss":0.5,"kl":"nan"}}',
        '{"step":2,"metrics":{"loss":"-inf","new":1e400}}', "{rubbish",
        '{"step":"three","metrics":{}}', '{"step":4,"metrics":[1]}',
        '{"step":1,"metrics":{"reward":3,"odd":{"a":1}}}', '{"step":5,"metr',
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    trace = merge(tmp_path)
    assert trace.metrics.steps.tolist() == [1]
    assert trace.metrics.values["loss"].tolist() == [0.5]
    assert trace.metrics.values["reward"].tolist() == [3.0]
    assert math.isnan(trace.metrics.values["odd"][0])
    assert trace.loss.notes == (
        "metrics.jsonl: 3 damaged lines left out",
        "metrics.jsonl: 2 lines without a step or metrics left out",
    )


def test_a_nan_that_was_said_stays_apart_from_a_metric_that_was_not(tmp_path: Path) -> None:
    write_recording(tmp_path, 0, closed_ns=4 * S, facts=facts())
    lines = [
        '{"step":1,"metrics":{"loss":0.5,"reward":"nan","eval_reward":1}}',
        '{"step":2,"metrics":{"loss":0.4,"reward":"nan"}}',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    merged = merge(tmp_path)
    write_trace(merged, tmp_path / "trace.json")
    for trace in (merged, load(tmp_path / "trace.json")):
        assert np.isnan(trace.metrics.values["reward"]).all()
        assert np.isnan(trace.metrics.values["eval_reward"]).tolist() == [False, True]
        assert {k: v.tolist() for k, v in trace.metrics.absent.items()} == {
            "eval_reward": [False, True]
        }


def test_a_resumed_run_replaces_the_steps_that_it_repeats(tmp_path: Path) -> None:
    write_recording(tmp_path, 0, closed_ns=4 * S, facts=facts())
    rewards = [(1, 0.1), (2, 0.2), (3, 9.0), (4, 9.0), (2, 0.25), (3, 0.3)]
    lines = [f'{{"step":{step},"metrics":{{"reward":{value}}}}}' for step, value in rewards]
    lines.append('{"step":3,"metrics":{"eval_reward":1}}')  # more of the same step
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    trace = merge(tmp_path)
    assert trace.metrics.steps.tolist() == [1, 2, 3]
    assert trace.metrics.values["reward"].tolist() == [0.1, 0.25, 0.3]
    (note,) = trace.loss.notes
    assert "went back to an earlier step; the metrics of 3 steps" in note


def test_nothing_to_read_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"not a run directory: .* Give the folder"):
        merge(tmp_path)
    (tmp_path / "ranks").mkdir()
    with pytest.raises(TraceError, match=r"no rank left a readable recording.*grpo-doctor run"):
        merge(tmp_path)
    (tmp_path / "ranks" / "00000.spans").write_bytes(b"short")
    with pytest.raises(TraceError, match="ends after 5 bytes"):
        merge(tmp_path)


def test_lost_names_and_recorder_errors_are_said(tmp_path: Path) -> None:
    path = write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts=facts())
    data = bytearray(path.read_bytes())
    state = memoryview(data)[layout.STATE_OFFSET : layout.THREADS_OFFSET].cast("Q")
    state[layout.STATE_NAME_OVERFLOW], state[layout.STATE_ERRORS] = 4, 2
    state[layout.STATE_DROPPED] = 7
    path.write_bytes(data)
    loss = merge(tmp_path).loss
    assert loss.dropped_events == 7
    assert [n.split()[0] for n in loss.notes] == ["4", "the"]


def test_a_live_run_is_read_afresh_and_a_kept_trace_is_enough(tmp_path: Path) -> None:
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], facts=facts())
    assert len(load(tmp_path).spans) == 1
    write_trace(load(tmp_path), tmp_path / "trace.json")
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S), ("step", 3 * S, 4 * S)], facts=facts())
    assert len(load(tmp_path).spans) == 2
    (tmp_path / "ranks" / "00000.spans").unlink()
    assert len(load(tmp_path).spans) == 1


@pytest.mark.parametrize("copied", [True, False])
def test_hosts_that_recorded_apart_are_one_run(tmp_path: Path, copied: bool) -> None:
    """The trace is that of a shared folder, digit for digit; a missing host is named."""
    shared, apart = tmp_path / "shared", tmp_path / "apart"
    spans = [("step", 5 * S, 9 * S), ("rollout", 5 * S, 8 * S)]
    for folder, second in ((shared, shared), (apart, apart / NODES / "00001-b")):
        run_json(folder, nodes=1 if folder == shared else 2, end=end())
        write_recording(folder, 0, spans, start_ns=S, closed_ns=10 * S, facts=facts())
        if copied or folder == shared:
            write_recording(second, 1, spans, start_ns=S, closed_ns=11 * S, pid=4001,
                            facts=facts("b", "boot-b", UNIX - 2 * S))  # fmt: skip
        if copied and folder == apart:
            run_json(second, host="b", end=end(), ended=["rank 1 was killed"])
    traces = [merge(shared), merge(apart)]
    written = []
    for trace in traces:
        bare = replace(trace, source="", run=replace(trace.run, ended=()))
        write_trace(bare, tmp_path / "trace.json")
        written.append((tmp_path / "trace.json").read_bytes())
    assert (written[0] == written[1]) is copied
    assert traces[1].run.ended == (("rank 1 was killed",) if copied else ())
    missing = "the recordings of 1 of 2 hosts are missing: copy each host's folder"
    assert any(note.startswith(missing) for note in traces[1].loss.notes) is not copied
