"""Sample files: changes only, several recordings in one file, damage."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.trace.read import load
from grpo_doctor.trace.samples import Samples, read_samples
from grpo_doctor.trace.write import write_trace
from tests.recording import write_recording

S = 1_000_000_000
HEAD = {"format": 1, "host": "a", "clock": "monotonic", "t_ns": S, "unix_ns": 10**18 + S, "hz": 10}
GPU = {
    "gpu": "GPU-1", "index": 0, "name": "NVIDIA H200", "memory_total_bytes": 1 << 37, "mig": None,
    "visible": True, "missing": ["gpm: not supported"],
}  # fmt: skip
POWER = {"track": 0, "name": "gpu.power", "unit": "W", "gpu": "GPU-1"}
CPU = {"track": 1, "name": "rank.cpu", "unit": "%", "pid": 4000, "rank": 0}


def read(folder: Path, *rows: Any) -> list[Samples]:
    path = folder / "a.samples.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return read_samples(path)


def tick(t: int, **values: Any) -> dict[str, Any]:
    return {"t": t * S, "v": {k.strip("t"): v for k, v in values.items()}}


def test_changes_hold_until_the_next_one(tmp_path: Path) -> None:
    (samples,) = read(
        tmp_path, HEAD, GPU, POWER, CPU,
        tick(2, t0=300, t1=50), tick(3, t1=60.5), tick(4, t0=None), {"end": True, "t": 5 * S},
    )  # fmt: skip
    power, cpu = samples.series
    assert (power.name, power.unit, power.scope, power.gpu) == ("gpu.power", "W", "gpu", "GPU-1")
    assert power.t_ns.tolist() == [2 * S, 4 * S]
    assert power.values[0] == 300
    assert math.isnan(power.values[1]), "not available from here on"
    assert (cpu.scope, cpu.rank, cpu.pid) == ("rank", 0, 4000)
    assert cpu.t_ns.tolist() == [2 * S, 3 * S, 5 * S]
    assert cpu.values.tolist() == [50, 60.5, 60.5]
    (gpu,) = samples.gpus
    assert (gpu.uuid, gpu.memory_total_bytes, gpu.missing) == (
        "GPU-1",
        1 << 37,
        ("gpm: not supported",),
    )


@pytest.mark.parametrize(("fields", "host"), [({"host": "b"}, "b"), ({"host": ""}, "a"), ({}, "a")])
def test_the_host_is_what_the_samples_say_or_else_the_files_name(
    tmp_path: Path, fields: dict[str, str], host: str
) -> None:
    head = {key: value for key, value in HEAD.items() if key != "host"}
    (samples,) = read(tmp_path, {**head, **fields}, POWER, tick(2, t0=300))
    assert (samples.host, samples.series[0].host) == (host, host)


def test_rows_of_one_moment_all_count_and_those_of_an_earlier_one_do_not(tmp_path: Path) -> None:
    (samples,) = read(
        tmp_path, HEAD, POWER, CPU, tick(3, t0=300), tick(3, t1=50), tick(2, t1=60), tick(4, t0=1),
    )  # fmt: skip
    power, cpu = samples.series
    assert (power.values.tolist(), cpu.values.tolist()) == ([300, 1], [50, 50])
    assert cpu.t_ns.tolist() == [3 * S, 4 * S]


def test_a_later_row_of_a_gpu_replaces_the_first(tmp_path: Path) -> None:
    (samples,) = read(tmp_path, HEAD, GPU, {**GPU, "visible": False})
    assert [g.visible for g in samples.gpus] == [False]


def test_a_second_header_begins_a_recording_of_its_own(tmp_path: Path) -> None:
    first, second = read(
        tmp_path, HEAD, POWER, tick(2, t0=300),
        {**HEAD, "t_ns": 5 * S}, {**CPU, "track": 0}, tick(6, t0=50),
    )  # fmt: skip
    assert [s.name for s in first.series] == ["gpu.power"]
    assert first.series[0].t_ns.tolist() == [2 * S]
    assert [s.name for s in second.series] == ["rank.cpu"]


def test_remarks_are_notes_and_said_once(tmp_path: Path) -> None:
    (samples,) = read(tmp_path, HEAD, {"note": "no NVIDIA driver"}, {"note": "no NVIDIA driver"})
    assert samples.notes == ("no NVIDIA driver",)
    assert samples.problems == ()


@pytest.mark.parametrize("rows", [
    [],
    [""],
    ["rubbish"],
    [tick(2, t0=1)],
    [HEAD, {"track": 0}],
    [HEAD, POWER, {"t": "soon", "v": {"0": 1}}],
    [HEAD, POWER, {"t": 10**40, "v": {"0": 1}}, {"t": True, "v": [1]}, {"t": 5, "v": 7}],
    [HEAD, {"track": [1], "name": {"a": 1}, "gpu": 5, "rank": "0", "pid": 1.5}],
    [HEAD, {"gpu": None, "index": "x", "memory_total_bytes": "many", "missing": 5}],
    [{"format": "one", "host": 5, "t_ns": "x"}, POWER],
    ['{"format":1,"host":"a"', POWER],
])  # fmt: skip
def test_damage_never_raises_and_can_be_written(tmp_path: Path, rows: list[Any]) -> None:
    (tmp_path / "hosts").mkdir()
    read(tmp_path / "hosts", *rows)
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts={})
    write_trace(load(tmp_path), tmp_path / "trace.json")
    assert len(load(tmp_path / "trace.json").spans) == 1


def test_the_libraries_of_all_hosts_are_the_runs(tmp_path: Path) -> None:
    rows = [{"libraries": names, "t": 2 * S} for names in (["torch"], ["NumPy"], None, ["torch"])]
    (samples,) = read(tmp_path, HEAD, *rows)
    assert (samples.libraries, samples.notes) == (("torch", "NumPy"), ())
    (tmp_path / "hosts").mkdir()
    read(tmp_path / "hosts", HEAD, *rows)
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts={})
    write_trace(load(tmp_path), tmp_path / "trace.json")
    for recording in (tmp_path, tmp_path / "trace.json"):
        assert load(recording).run.libraries == ("NumPy", "torch")


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    (samples,) = read(tmp_path, HEAD, POWER, tick(2, t0=300), "{cut", tick(3, t0=310), '{"t":4')
    assert samples.series[0].values.tolist() == [300, 310]
    assert samples.problems == ("a.samples.jsonl: 2 damaged lines left out",)


def test_values_of_every_kind(tmp_path: Path) -> None:
    (samples,) = read(
        tmp_path,
        HEAD,
        POWER,
        *(tick(n, t0=v) for n, v in enumerate([1, "high", 10**400, [1], 2], 2)),
    )
    assert [math.isnan(v) for v in samples.series[0].values] == [False, True, True, True, False]


def test_a_clock_that_goes_back_is_damage(tmp_path: Path) -> None:
    (samples,) = read(tmp_path, HEAD, POWER, tick(5, t0=1), tick(3, t0=2), tick(6, t0=3))
    assert samples.series[0].t_ns.tolist() == [5 * S, 6 * S]


def test_a_newer_format_is_left_out_and_said(tmp_path: Path) -> None:
    (samples,) = read(tmp_path, {**HEAD, "format": 2}, POWER, tick(5, t0=1))
    assert samples.series == ()
    assert "then pip install ." in samples.problems[0]


@pytest.mark.parametrize(
    ("host", "unix_ns", "expected"),
    [
        ("a", 10**18 + S, 1 * S),  # the same host: its ranks' clock
        ("a", 10**18 + S + 20_000_000, 1 * S),  # also after NTP has set the calendar clock
        ("a", 10**18 + 31 * S, 31 * S),  # another machine of that name
        ("b", 10**18 + 31 * S, 31 * S),
    ],
)
def test_samples_are_on_the_clock_of_their_host(
    tmp_path: Path, host: str, unix_ns: int, expected: int
) -> None:
    clocks = [{"monotonic_ns": S, "unix_ns": 10**18 + S}]
    facts = {"host": "a", "clock_id": "boot-a", "clocks": clocks}
    write_recording(tmp_path, 0, [("step", 2 * S, 3 * S)], closed_ns=4 * S, facts=facts)
    (tmp_path / "hosts").mkdir()
    read(tmp_path / "hosts", {**HEAD, "host": host, "unix_ns": unix_ns}, POWER, tick(2, t0=300))
    assert load(tmp_path).series[0].t_ns.tolist() == [expected]
