"""Traces of the PyTorch profiler: steps, GPU time, ranks; whole, cut off and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.document.summary import phase_entries
from grpo_doctor.importers.kineto.assemble import span_of
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace
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
