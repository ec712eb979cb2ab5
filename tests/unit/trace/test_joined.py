"""Servers in a run's `joined/`: their roles, the time of theirs that counts, whose samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Trace
from tests.recording import write_recording
from tests.unit.trace.test_merge import S, facts, run_json


def server_in(folder: Path, role: str | None = None, pid: int = 5000, **more: Any) -> Path:
    """A server that began 2 s before the run and ended 10 s after it, busy all the time."""
    own = folder / "joined" / f"a-{pid}"
    run_json(own, command=["trl", "vllm-serve", "--model", "m"], job_pid=pid, **more)
    write_recording(
        own, 0, [("rollout/generate", S, 9 * S), ("rollout/generate", 10 * S, 28 * S)],
        start_ns=S, closed_ns=30 * S, pid=pid, facts=facts(role=role),
    )  # fmt: skip
    return own


def ranks_in(folder: Path) -> None:
    run_json(folder, started_ns=3 * S, end={"state": "finished", "code": 0, "ended_ns": 20 * S})
    for rank in range(2):
        write_recording(
            folder, rank, [("step", 5 * S, 19 * S), ("rollout", 5 * S, 12 * S)],
            start_ns=3 * S, closed_ns=20 * S, facts=facts(world_size=2), pid=4000 + rank,
        )  # fmt: skip


def sampled(folder: Path, host: str, *names: str) -> None:
    rows: list[dict[str, Any]] = [
        {"format": 1, "host": host, "clock_id": f"boot-{host}", "t_ns": 0, "unix_ns": 0}
    ]
    rows += [{"track": n, "name": name, "unit": "%"} for n, name in enumerate(names)]
    rows += [{"t": t * S, "v": {str(n): t for n in range(len(names))}} for t in range(1, 30)]
    (folder / "hosts").mkdir(exist_ok=True)
    text = "\n".join(map(json.dumps, rows))
    (folder / "hosts" / f"{host}.samples.jsonl").write_text(text)


def of_role(trace: Trace, role: str) -> list[tuple[int, int]]:
    (process,) = (p.index for p in trace.processes if p.role == role)
    rows = trace.spans.select(trace.spans.process == process)
    return list(zip((rows.start_ns // S).tolist(), (rows.end_ns // S).tolist()))


def test_a_server_is_a_role_of_the_run_and_counts_while_that_lasts(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    server_in(tmp_path, end={"state": "interrupted", "code": 143, "ended_ns": 30 * S})
    trace = merge(tmp_path)
    assert [p.role for p in trace.processes] == ["trainer", "trainer", "rollout"]
    assert trace.ranks == (0, 1)
    assert trace.run.duration_ns == 17 * S  # the run's, not the server's
    assert of_role(trace, "rollout") == [(0, 6), (7, 17)]
    assert (trace.processes[2].start_ns, trace.processes[2].end_ns) == (0, 17 * S)
    assert not trace.loss.any
    (note,) = trace.run.notes
    assert "`trl vllm-serve --model m` on a joined this run (exit code 143)" in note


def test_a_process_that_says_its_role_keeps_it(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    server_in(tmp_path, role="engine")
    assert of_role(merge(tmp_path), "engine")


def test_a_servers_host_is_sampled_by_it_and_the_runs_by_the_run(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    own = server_in(tmp_path)
    sampled(tmp_path, "a", "host.cpu")
    sampled(own, "a", "host.cpu", "host.memory_available")
    sampled(own, "b", "host.cpu", "rank.cpu")
    trace = merge(tmp_path)
    assert [(s.host, s.name) for s in trace.series] == [("a", "host.cpu"), ("b", "host.cpu")]
    assert all(s.t_ns.min() >= 0 for s in trace.series if s.host == "b")


def test_without_ranks_the_launcher_is_the_run(tmp_path: Path) -> None:
    run_json(tmp_path, end={"state": "finished", "code": 0, "ended_ns": 20 * S})
    server_in(tmp_path)
    trace = merge(tmp_path)
    assert [p.role for p in trace.processes] == ["job"]
    assert "joined this run" in trace.run.notes[0]


def test_a_run_that_has_not_begun_is_no_run(tmp_path: Path) -> None:
    server_in(tmp_path)
    with pytest.raises(TraceError, match="is not a run directory"):
        merge(tmp_path)
