"""Files of W&B and TensorBoard, also a real run's: TRL 1.8 with wandb 0.31 offline, 12 steps with a
reward of 0.3 s, evaluated after steps 6 and 12.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Exit
from tests.unit.importers import test_verl_log

REAL = Path(__file__).with_name("trl_offline.wandb.gz")


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def items(row: Mapping[str, object], number: int = 1) -> bytes:
    """Keys with JSON, as wandb before 0.31 writes them."""
    return b"".join(
        message(number, message(1, key.encode()) + message(16, json.dumps(value).encode()))
        for key, value in row.items()
    )


def wandb_file(records: Iterable[bytes]) -> bytes:
    """LevelDB's log: parts that end with their block of 32 KiB."""
    data = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        begun, left = False, record
        while left or not begun:
            room = 32768 - len(data) % 32768 - 7
            if room < 0:
                data += bytes(room + 7)
                continue
            part, left = left[:room], left[room:]
            kind = (4 if begun else 1) if not left else (3 if begun else 2)
            data += struct.pack("<IHB", 0, len(part), kind) + part
            begun = True
    return bytes(data)


def events_file(steps: Iterable[int]) -> bytes:
    """TensorBoard's records of verl's rows, a scalar each, as torch's writer has them."""
    events = [struct.pack("<Bd", 9, 1.0) + message(3, b"brain.Event:2")]
    for step in steps:
        for key, value in verl_row(step).items():
            scalar = message(1, key.encode()) + struct.pack("<Bf", 0x15, value)
            head = struct.pack("<Bd", 9, 100.0 * step) + b"\x10" + varint(step)
            events.append(head + message(5, message(1, scalar)))
    return b"".join(struct.pack("<QI", len(e), 0) + e + bytes(4) for e in events)


def verl_row(step: int) -> dict[str, float]:
    timers = {f"timing_s/{name}": seconds for name, seconds in test_verl_log.TIMERS.items()}
    return {**timers, "timing_s/step": 43.2, "critic/score/mean": 0.1 * step}


def wandb_rows(steps: Iterable[int]) -> bytes:
    """A run of W&B with verl's rows, one number of which is none."""
    config = message(5, items({"trainer": {"n_gpus_per_node": 8}, "long": "x" * 100_000}))
    rows = ({**verl_row(step), "_step": step, "actor/grad_norm": "NaN"} for step in steps)
    return wandb_file([config, *(message(2, items(row)) for row in rows)])


def test_a_real_run_of_trl_has_the_phases_that_w_and_b_alone_gets() -> None:
    trace = load(REAL)
    assert trace.run.framework == "trl"
    assert trace.run.knobs["rollout.num_generations"] == 4
    assert trace.run.exit == Exit("finished", 0)
    document = build_document(trace)
    summary = document.summary
    assert summary.phases["reward"].seconds == pytest.approx(0.302, abs=0.003)
    assert summary.phases["rollout"].seconds == pytest.approx(0.025, abs=0.005)
    # Evaluations of 1.35 s are in no step.
    assert summary.longest_step is not None
    assert (summary.longest_step.seconds or 9) < 0.4
    assert "reward `slow_reward` is slow" in summary.verdict


def test_event_files_of_verl_have_its_timers(tmp_path: Path) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(tmp_path)
    for step in range(1, 9):
        for key, value in verl_row(step).items():
            writer.add_scalar(key, value, step)
    writer.close()
    trace = load(tmp_path)
    assert trace.run.framework == "verl"
    analysis = analyse(trace)
    assert analysis.step_s == pytest.approx(43.2, rel=1e-6)
    (file,) = tmp_path.glob("*tfevents*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    cut = load(file)
    assert cut.loss.truncated
    assert "is cut off or damaged" in cut.loss.notes[0]
    assert analyse(cut).step_s == pytest.approx(43.2, rel=1e-6)


def test_records_of_many_blocks_and_numbers_that_are_none_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(wandb_rows(range(1, 1200)))
    assert path.stat().st_size > 10 * 32768
    trace = load(tmp_path)
    assert trace.run.framework == "verl"
    assert analyse(trace).step_s == pytest.approx(43.2)
    assert trace.run.duration_ns == pytest.approx(1199 * 43.2e9)
    assert not trace.loss.truncated


def test_a_run_that_w_and_b_saw_failing_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "run-abc.wandb"
    rows = [message(2, items({**verl_row(step), "_step": step})) for step in range(1, 9)]
    path.write_bytes(wandb_file([*rows, message(18, b"\x08\x01")]))
    assert load(path).run.exit == Exit("failed", 1)


def test_samples_of_gpus_are_a_note_of_the_whole_run(tmp_path: Path) -> None:
    rows = [message(2, items({**verl_row(step), "_step": step})) for step in range(1, 9)]
    samples = [
        {f"gpu.{gpu}.gpu": busy, f"gpu.{gpu}.memoryAllocatedBytes": float(gpu << 30), "cpu": 9.0}
        for gpu, busy in ((0, 90.0), (1, 30.0), (1, 10.0), (0, "NaN"))
    ]
    stats = [message(7, b"\x08\x00" + items(row, 3)) for row in samples]
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(wandb_file([*rows, *stats]))
    run = load(path).run
    assert (
        "W&B sampled 2 GPUs: over the whole run 55% busy on average, GPU 1 the least with 20%; "
        "at most 1.0 GiB in use, on GPU 1." in run.notes
    )
    assert run.origin is not None
    assert [each[:20] for each in run.origin.limits if "GPU" in each] == ["GPUs: W&B's samples "]


def test_a_file_without_scalars_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(wandb_file([message(5, items({"lr": 1}))]))
    (tmp_path / "files").mkdir()
    (tmp_path / "files/output.log").write_text("x")
    with pytest.raises(
        TraceError, match=r"abc\.wandb has no scalar of a step.* diagnose \S+t\.log$"
    ):
        load(path)


def test_a_folder_of_w_and_b_is_read_by_its_newest_file(tmp_path: Path) -> None:
    shutil.copy(REAL, tmp_path / "run-abc.wandb")
    assert load(tmp_path).run.framework == "trl"
