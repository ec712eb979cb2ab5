"""Whatever bytes are in the files: a trace or a TraceError, and what is read can be written."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.read import load
from grpo_doctor.trace.write import write_trace
from grpo_doctor_probes.record import layout
from tests.recording import write_recording
from tests.unit.trace.test_round_trip import everything

S = 1_000_000_000
VALUES = [
    "null", "-1", "1e308", "NaN", '"\\u0000"', "[]", "{}", "true", "99999999999999999999", '""',
]  # fmt: skip


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run directory with something of each, and its trace."""
    folder = tmp_path_factory.mktemp("run")
    for rank in (0, 1):
        write_recording(
            folder, rank, [("step", 2 * S, 3 * S), ("rollout\x1f{\"a\": 1}", 2 * S, 3 * S)],
            opened=[("step", 4 * S), ("train", 5 * S)] if rank else [],
            closed_ns=0 if rank else 6 * S, pid=4000 + rank,
            facts={"host": "a", "clock_id": "b", "clocks": [{"unix_ns": 10**18, "monotonic_ns": 1}],
                   "process_start_ns": 1, "parent_pid": 1, "local_rank": rank},
        )  # fmt: skip
    head = {"format": 1, "host": "a", "t_ns": S, "unix_ns": 10**18, "hz": 10}
    track = {"track": 0, "name": "gpu.power", "unit": "W", "gpu": "GPU-1"}
    ticks = [{"t": n * S, "v": {"0": n}} for n in range(2, 9)]
    gpu = {"gpu": "GPU-1", "index": 0, "name": "H200", "memory_total_bytes": 1, "missing": ["a"]}
    (folder / "hosts").mkdir()
    rows = "\n".join(map(json.dumps, [head, gpu, track, *ticks]))
    (folder / "hosts" / "a.samples.jsonl").write_text(rows)
    (folder / "metrics.jsonl").write_text('{"step":1,"metrics":{"loss":0.5}}\n' * 3)
    (folder / "run.json").write_text(json.dumps({
        "id": "r", "command": ["swift"], "world_size": 2, "host": "a", "started_ns": S,
        "started_unix_ns": 10**18, "clock": {"unix_ns": 10**18, "monotonic_ns": 1}, "job_pid": 7,
        "end": {"state": "finished", "code": 0, "ended_ns": 9 * S},
    }))  # fmt: skip
    (folder / "job.json").write_text(json.dumps({
        "framework": "ms-swift", "framework_version": "4.6", "versions": {"torch": "2.13"},
        "config": {"deepspeed": {"zero_optimization": {"stage": 3}}, "learning_rate": 1e-6},
    }))  # fmt: skip
    write_trace(everything().build(), folder / "kept.json")
    yield folder
    shutil.rmtree(folder)


def damage(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut off, doubled, or a number replaced by something else."""
    broken = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(broken) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            del broken[at:]
        elif kind == 1:
            broken[at : at + chance.randint(1, 8)] = chance.randbytes(8)
        elif kind == 2:
            broken[at:at] = broken[at : at + chance.randint(1, 50)]
        elif kind == 3:
            del broken[at : at + chance.randint(1, 20)]
        else:
            colon = broken.find(b":", at)
            end = min(
                (e for e in (broken.find(c, colon) for c in (b",", b"}")) if e > 0), default=0
            )
            if 0 < colon < end:
                broken[colon + 1 : end] = chance.choice(VALUES).encode()
    return bytes(broken)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_run_directories(run_folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = ["run.json", "job.json", "metrics.jsonl", "hosts/a.samples.jsonl", "ranks/00000.json"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        shutil.copytree(run_folder, folder)
        for name in chance.sample(names, k=chance.randint(1, 3)):
            (folder / name).write_bytes(damage((folder / name).read_bytes(), chance))
        check(folder, folder / "out.json")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_recordings(run_folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        shutil.copytree(run_folder, folder)
        path = folder / "ranks" / "00001.spans"
        data = bytearray(path.read_bytes())
        used = [
            (0, 200),  # the fixed fields
            (layout.THREADS_OFFSET, layout.THREADS_OFFSET + 200),
            (layout.NAMES_OFFSET, layout.NAMES_OFFSET + 60),
            (layout.HEADER_BYTES, layout.HEADER_BYTES + 200),
        ]
        for _ in range(chance.randint(1, 6)):
            begin, end = chance.choice(used)
            data[chance.randrange(begin, end)] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        check(folder, folder / "out.json")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_traces(run_folder: Path, seed: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "trace.json"
        path.write_bytes(damage((run_folder / "kept.json").read_bytes(), random.Random(seed)))
        check(path, path.with_name("out.json"))


def check(source: Path, target: Path) -> None:
    """Reads `source`; what comes of it is written and read back without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            trace = load(source)
        except TraceError as problem:
            message = str(problem)
        else:
            message = ""
            write_trace(trace, target)
            again = load(target)
            assert len(again.spans) == len(trace.spans)
            assert again.loss.notes == trace.loss.notes
    assert not message or str(source) in message
