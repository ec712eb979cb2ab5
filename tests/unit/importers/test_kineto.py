"""Traces of the PyTorch profiler: steps, GPU time, ranks; whole, cut off and damaged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.document.summary import phase_entries
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.kineto import stream
from grpo_doctor.importers.kineto.assemble import span_of
from grpo_doctor.importers.kineto.rank import Activity, covered_percent, merged, nanoseconds
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Kind, Trace
from tests.unit.importers.kineto_files import annotation, kernel, rank_events, text_of, write


def loaded(folder: Path, text: str, name: str = "rank0.pt.trace.json") -> Trace:
    return load(write(folder / name, text))


@pytest.mark.parametrize("indent", [2, None])
@pytest.mark.parametrize("name", ["a.pt.trace.json", "a.pt.trace.json.gz"])
def test_steps_phases_and_the_device(tmp_path: Path, indent: int | None, name: str) -> None:
    trace = loaded(tmp_path, text_of(rank_events(steps=6), indent=indent), name)
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [10, 11, 12, 13, 14, 15]
    assert analysis.step_s == pytest.approx(0.001)
    assert analysis.share("dataload") == pytest.approx(0.25)
    assert analysis.share("train") == pytest.approx(0.5)
    busy = analysis.gpu_busy
    assert busy is not None
    assert busy[0] == pytest.approx(50.0)  # 400 us, and 100 of the 200 us of communication
    assert trace.gpus[0].name == "NVIDIA H100"
    assert trace.gpus[0].memory_total_bytes == 80 << 30


def test_communication_is_told_from_computation(tmp_path: Path) -> None:
    trace = loaded(tmp_path, text_of(rank_events()))
    assert trace.run.notes == (
        "rank 0 GPU 0: busy 50% of the step time, in communication 20%, with no other kernel 10%.",
    )
    rows = np.flatnonzero(trace.spans.kind == Kind.COLLECTIVE)
    assert trace.spans.value[rows].tolist() == [0, 1, 2, 3]
    assert {trace.names[name] for name in trace.spans.name[rows]} == {"allreduce"}
    assert (trace.spans.thread[rows] != 0).all()


def test_a_folder_is_its_ranks_on_one_clock(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        text = text_of(rank_events(device=rank), rank=rank, world_size=4)
        write(tmp_path / f"host-a_{rank}.17000.pt.trace.json.gz", text)
    trace = load(tmp_path)
    assert trace.ranks == (0, 1, 2)
    assert {process.host for process in trace.processes} == {"host-a"}
    assert len({int(start) for start in analyse(trace).steps.start_ns[0]}) == 1
    assert trace.run.world_size == 4
    assert trace.run.origin is not None
    assert "Other ranks: 3 of 4 have a file here." in trace.run.origin.limits


def test_ranks_from_file_names_or_none(tmp_path: Path) -> None:
    write(tmp_path / "prof_rank-3_x.json", text_of(rank_events(), rank=None))
    write(tmp_path / "somebody.json", text_of(rank_events(), rank=None))
    trace = load(tmp_path)
    assert trace.ranks == (0, 3)
    assert any("somebody.json does not say its rank" in note for note in trace.run.notes)


def test_files_that_are_no_traces_are_left_out_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", text_of(rank_events()))
    write(tmp_path / "settings.json", '{"seed": 1}')
    trace = load(tmp_path)
    assert trace.ranks == (0,)
    assert "settings.json" in trace.loss.notes[0]


@pytest.mark.parametrize("indent", [2, None])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_off_gives_what_is_there(
    tmp_path: Path, indent: int | None, packed: bool
) -> None:
    content = text_of(rank_events(steps=50), indent=indent).encode()
    content = content[: len(content) * 3 // 4]
    path = tmp_path / ("rank0.json.gz" if packed else "rank0.json")
    path.write_bytes(gzip.compress(content)[:-20] if packed else content)
    trace = load(path)
    assert trace.loss.truncated
    assert 20 < len(analyse(trace).steps.numbers) < 50


def test_a_damaged_event_costs_itself_alone(tmp_path: Path) -> None:
    events = rank_events(steps=3)
    text = text_of([*events, annotation('broken "name"', 1.0, 2.0)])
    text = text.replace('broken \\"name\\"', 'broken "name"')
    trace = loaded(tmp_path, text)
    assert trace.loss.dropped_events == 1
    assert len(analyse(trace).steps.numbers) == 3


def test_blocks_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for indent in (2, None):
        path = write(tmp_path / "rank0.json", text_of(rank_events(steps=5), indent=indent))
        expected = load(path)
        for size in (300, 701, 4096):
            monkeypatch.setattr(stream, "_BLOCK_BYTES", size)
            pieces = load(path)
            assert pieces.names == expected.names
            assert pieces.spans.start_ns.tolist() == expected.spans.start_ns.tolist()
        monkeypatch.undo()


def test_a_bare_array_and_facts_after_the_events(tmp_path: Path) -> None:
    trace = loaded(tmp_path, json.dumps(rank_events(steps=2)), "rank5.json")
    assert trace.ranks == (5,)
    late = {"traceEvents": rank_events(steps=2), "distributedInfo": {"rank": 7, "world_size": 9}}
    trace = loaded(tmp_path, json.dumps(late), "x.json")
    assert trace.ranks == (7,)
    assert trace.run.world_size == 9


def test_a_trace_of_another_program_is_refused(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": "main", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "cat": "function"}]
    with pytest.raises(TraceError, match="none of the PyTorch profiler's"):
        loaded(tmp_path, json.dumps({"traceEvents": events}))
    with pytest.raises(TraceError, match="no `traceEvents` within the first"):
        loaded(tmp_path, '{"deviceProperties": [], "schemaVersion": 1}')


def test_without_steps_the_report_says_how_to_get_them(tmp_path: Path) -> None:
    events = [e for e in rank_events() if "ProfilerStep" not in str(e.get("name"))]
    document = build_document(loaded(tmp_path, text_of(events)))
    assert any("profiler.step()" in note for note in document.run.notes)
    assert any("GPU 0: busy 57% of the 0.0035 s" in note for note in document.run.notes)
    assert document.summary.steps_total == 0
    assert not document.rule_errors


def test_ranges_of_frameworks_are_phases() -> None:
    spans = {
        "rollout/generate": "rollout/generate",
        "execute_8192_context_9(sq)_generation_37(sq)": "rollout/generate",
        "step[EXTEND bs=15 toks=15360]": "rollout/generate",
        "Optimizer.step#AdamW.step": "optimizer",
        "ActorRolloutRefWorker.compute_ref_log_prob": "logprob/reference",
        "GRPOTrainer._calculate_rewards": "reward",
        "aten::step_count": None,
        "nccl:all_reduce": None,
    }
    assert {name: span_of(name) for name in spans} == spans


def test_epoch_microseconds_stay_exact() -> None:
    assert nanoseconds(1669783687384669.0) == 1_669_783_687_384_669_000
    assert nanoseconds(4458676416788.0625) == 4_458_676_416_788_062
    activity = Activity()
    activity.start_us.extend([1669783687384669.0, 1669783687384671.0])
    activity.length_us.extend([2.0, 1.0])
    start, end = activity.merged(0)
    assert start.tolist() == [1_669_783_687_384_669_000]
    assert (end - start).tolist() == [3000]


def test_what_stretches_cover() -> None:
    starts, ends = merged(np.array([50, 0, 10]), np.array([60, 20, 15]))
    assert starts.tolist() == [0, 50]
    assert ends.tolist() == [20, 60]
    edges = np.array([0, 10, 30, 100])
    assert covered_percent((starts, ends), edges).tolist() == pytest.approx([100, 50, 1000 / 70])


def test_a_range_lasts_until_the_last_kernel_launched_in_it_is_done(tmp_path: Path) -> None:
    events = []
    for number in range(4):
        at = 100_000.0 * number
        linked = {"args": {"External id": 7 * number + 1}}
        events += [
            annotation(f"ProfilerStep#{number}", at, 100_000),
            annotation("logprob", at, 1_000, **linked),
            annotation("reward", at + 1_000, 99_000),  # waits for the GPU, then scores
            {**annotation("logprob", at + 2_000, 58_000, **linked), "cat": "gpu_user_annotation"},
            kernel("gemm", at + 2_000, 58_000),
        ]
    analysis = analyse(loaded(tmp_path, text_of(events)))
    entries = phase_entries(analysis)
    assert entries["logprob"].seconds == pytest.approx(0.06, abs=1e-4)
    assert entries["reward"].seconds == pytest.approx(0.04, abs=1e-4)
    assert not any(entry.host_time for entry in entries.values())


def test_a_range_of_whose_kernels_nothing_is_told_is_host_time(tmp_path: Path) -> None:
    entries = phase_entries(analyse(loaded(tmp_path, text_of(rank_events()))))
    assert {name for name, entry in entries.items() if entry.host_time} == {"train"}
