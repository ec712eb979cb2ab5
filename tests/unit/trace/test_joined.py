"""Servers in a run's `joined/`: their roles, the time of theirs that counts, whose samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_doctor.document.views.timeline import track_entries
from grpo_doctor.errors import TraceError
from grpo_doctor.trace.events import series_pids
from grpo_doctor.trace.joined import series_within_run
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Series, Trace
from grpo_doctor.trace.read import load
from grpo_doctor.trace.write import write_trace
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


def sampled(folder: Path, host: str, *names: str, until: int = 30) -> None:
    rows: list[dict[str, Any]] = [
        {"format": 1, "host": host, "clock_id": f"boot-{host}", "t_ns": 0, "unix_ns": 0}
    ]
    rows += [{"track": n, "name": name, "unit": "%"} for n, name in enumerate(names)]
    rows += [{"t": t * S, "v": {str(n): t for n in range(len(names))}} for t in range(1, until)]
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


def commanded(folder: Path, *command: str) -> None:
    described = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**described, "command": command}))


def server_series(trace: Trace) -> list[tuple[str, int | None, int, int]]:
    return [
        (series.host, series.pid, int(series.t_ns[0]) // S, int(series.t_ns[-1]) // S)
        for series in trace.series
        if series.scope == "server"
    ]


def test_what_a_server_says_itself_is_its_roles_while_the_run_lasts(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    sampled(tmp_path, "a", "host.cpu", until=20)
    for pid in (5000, 6000):
        sampled(server_in(tmp_path, pid=pid), "a", "host.cpu", "server.requests_running")
    trace = merge(tmp_path)
    # From 3 s on the server's clock, where the run begins, to its end.
    assert server_series(trace) == [("a", 5000, 0, 17), ("a", 6000, 0, 17)]
    assert [s.name for s in trace.series].count("host.cpu") == 1
    pids = zip(trace.series, series_pids(trace))
    drawn = {pid for series, pid in pids if series.scope == "server"}
    assert drawn == {p.pid for p in trace.processes if p.role == "rollout"}
    labels = [track.label for track in track_entries(trace)[0]]
    assert "rollout of a, pid 5000: server.requests_running" in labels


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ("127.0.0.1:8000", [5000]),  # the same server: its own say more
        ("localhost:8000", [5000]),
        ("a.cluster.example:8000", [5000]),
        ("10.0.0.7:8000", [5000]),  # whose address that is nobody knows
        ("127.0.0.1:8001", [None, 5000]),  # another one
        ("b:8000", [None, 5000]),
        ("127.0.0.1:8000 127.0.0.1:8001", [None]),  # the sum has both
        ("b.cluster.example:8000", [None, 5000]),
    ],
)
def test_a_server_that_the_run_asked_too_counts_once(
    tmp_path: Path, addresses: str, expected: list[int | None]
) -> None:
    ranks_in(tmp_path)
    commanded(tmp_path, "trl", "grpo", "--vllm_server_base_url", *addresses.split())
    sampled(tmp_path, "a", "host.cpu", "server.requests_running")
    sampled(server_in(tmp_path), "a", "server.requests_running")
    trace = merge(tmp_path)
    assert [pid for _, pid, _, _ in server_series(trace)] == expected
    assert "host.cpu" in {series.name for series in trace.series}


@pytest.mark.parametrize(
    ("times_s", "expected"),
    [
        ([-5, 40], [(0, -5), (17, -5)]),  # said once before the run, and never changed
        ([-5, 3, 40], [(0, -5), (3, 3), (17, 3)]),
        ([-5, 3], [(0, -5), (3, 3)]),  # it ended within the run
        ([3, 40], [(3, 3), (17, 3)]),  # it began within the run
        ([-5, -3], []),
        ([18, 40], []),
    ],
)
def test_what_held_when_the_run_began_and_ended_counts(
    times_s: list[int], expected: list[tuple[int, int]]
) -> None:
    times = np.array(times_s, dtype=np.int64)
    series = Series("server.kv_cache", "%", "server", "a", times * S, times.astype(np.float64))
    clipped = series_within_run(series, 17 * S)
    assert list(zip((clipped.t_ns // S).tolist(), clipped.values.tolist())) == expected


def test_of_a_server_on_another_host_all_is_kept(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    sampled(server_in(tmp_path), "b", "host.cpu", "server.kv_cache", "rank.cpu")
    assert [(s.name, s.pid) for s in merge(tmp_path).series] == [
        ("host.cpu", None), ("server.kv_cache", 5000),
    ]  # fmt: skip


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


def test_a_server_is_known_by_its_command_also_in_a_file(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    sampled(server_in(tmp_path), "a", "server.requests_running")
    trace = merge(tmp_path)
    (server,) = trace.run.servers
    assert server.command == ("trl", "vllm-serve", "--model", "m")
    assert [(s.host, s.pid) for s in trace.series] == [(server.host, server.pid)]
    write_trace(trace, tmp_path / "trace.json")
    assert load(tmp_path / "trace.json").run.servers == trace.run.servers


def test_of_servers_that_the_run_did_not_ask_all_is_kept(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    addresses = ("127.0.0.1:8000", "127.0.0.1:8001")
    commanded(tmp_path, "trl", "grpo", "--vllm_server_base_url", *addresses)
    sampled(tmp_path, "a", "host.cpu")
    sampled(server_in(tmp_path), "a", "server.requests_running")
    assert [pid for _, pid, _, _ in server_series(merge(tmp_path))] == [5000]


@pytest.mark.parametrize(
    ("address", "expected"), [("127.0.0.1:8000", [None, 5000]), ("10.0.0.7:8000", [5000])]
)
def test_a_server_on_another_host_is_not_at_this_hosts_own_address(
    tmp_path: Path, address: str, expected: list[int | None]
) -> None:
    ranks_in(tmp_path)
    commanded(tmp_path, "trl", "grpo", "--vllm_server_base_url", address)
    sampled(tmp_path, "a", "host.cpu", "server.requests_running")
    sampled(server_in(tmp_path, host="b"), "b", "server.requests_running")
    assert [pid for _, pid, _, _ in server_series(merge(tmp_path))] == expected


def test_the_process_that_takes_requests_stands_for_a_server(tmp_path: Path) -> None:
    ranks_in(tmp_path)
    own = server_in(tmp_path)
    write_recording(own, 1, start_ns=S, closed_ns=30 * S, pid=5001, stem="w",
                    facts=facts(role="engine"))  # fmt: skip
    sampled(own, "a", "server.requests_running")
    trace = merge(tmp_path)
    (server,) = trace.run.servers
    fronts = [p.os_pid for p in trace.processes if p.role == "rollout"]
    assert [server.pid] == fronts == [5000]
    assert server_series(trace)[0][1] == 5000


@pytest.mark.parametrize(("words", "shown"), [(6, "a 1 2 3 4 5"), (7, "a 1 2 3 4 5 ...")])
def test_a_note_shows_six_words_of_a_servers_command(
    tmp_path: Path, words: int, shown: str
) -> None:
    ranks_in(tmp_path)
    commanded(server_in(tmp_path), *["a", "1", "2", "3", "4", "5", "6"][:words])
    assert any(f"`{shown}` on a joined this run" in note for note in merge(tmp_path).run.notes)
